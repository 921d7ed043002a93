"""`diagnose`: which path a transfer would take, and why; from the code that plans it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from . import config
from ._transfer import buffers, memory, opening, run, vendor
from ._transfer import plan as planning
from ._transfer.array import describe
from ._transfer.fileinfo import FileInfo, inspect
from ._transfer.values import Choice, Extent, FileRange, Platform

__all__ = ["Diagnosis", "diagnose"]

# A device address that no alignment rule objects to, for a diagnosis without an array.
_ALIGNED = 1 << 21


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Which path reading a file would take, and why. Print it.

    Attributes
    ----------
    file : str
        The path.
    info : FileInfo
        What the file is.
    choice : Choice
        The path that most bytes would take, and the reason.
    obstacles : tuple of str
        What keeps the file from the direct path; empty if it is open.
    pieces : tuple of str
        Each part of the range, with its route.
    array : str
        What is known of the array, if one was given.
    """

    file: str
    info: FileInfo
    choice: Choice
    obstacles: tuple[str, ...]
    pieces: tuple[str, ...]
    array: str

    def __str__(self) -> str:
        alignment = self.info.direct_alignment
        lines = [
            f"{self.file}: {self.info.size} bytes on {self.info.file_system or 'unknown'}, "
            + (
                f"O_DIRECT with offsets in multiples of {alignment[1]} bytes"
                if alignment
                else "no O_DIRECT"
            ),
            f"path   {self.choice.path}",
            f"why    {self.choice.because}",
        ]
        lines += [f"direct is closed: {reason}" for reason in self.obstacles]
        lines += [f"piece  {piece}" for piece in self.pieces]
        if self.array:
            lines.append(f"array  {self.array}")
        return "\n".join(lines)


def diagnose(file: opening.PathLike, array: Any = None, *, platform: str = "hip") -> Diagnosis:
    """Tell which path reading a file from its beginning would take, and why.

    Parameters
    ----------
    file : str, bytes or path-like
        To be read.
    array : array, optional
        Device array that would be filled; without one, an aligned array for the whole file is
        assumed.
    platform : {"hip", "cuda"}, optional
        Of the assumed array.

    Returns
    -------
    Diagnosis
        Of the planner's own decision, under the settings in force.

    Raises
    ------
    MemoryTypeError
        If `array` is not plain device memory.
    OSError
        The operating system's own, about the file.

    Examples
    --------
    >>> import hipfile_arrays as hfa
    >>> print(hfa.diagnose("/tmp/numbers.f4"))  # doctest: +SKIP
    """
    native = opening.open_path(file, os.O_RDONLY)
    try:
        info = inspect(native)
        note = ""
        if array is None:
            extent = Extent(_ALIGNED, info.size, Platform[platform.upper()], 0)
            vendor.prepare(extent.platform)
        else:
            extent = describe(array).extent
            extent = extent.part(0, min(extent.nbytes, info.size))
            if extent.nbytes:
                registration = buffers.find(extent)
                note = "registered" if registration else "not registered: resolved on the fly"
                allocation = memory.check(extent)
                note += (
                    f", {extent.pointer - allocation.base} bytes into an allocation of "
                    f"{allocation.nbytes} on device {extent.device}"
                )
        file_range = FileRange(0, extent.nbytes)
        wish = config.get().path
        facts = run.gather(
            native, file_range, extent.platform, extent.device, wish, reads=True, info=info
        )
        obstacles = facts.obstacles or vendor.direct_obstacles(extent.platform, native, info)
        plan = planning.make(facts, file_range, extent, config.get(), wish)
        pieces = tuple(
            f"[{p.offset}, {p.offset + p.nbytes}) {p.route.name.lower()}" for p in plan.pieces
        )
        return Diagnosis(opening.display_name(file), info, plan.choice, obstacles, pieces, note)
    finally:
        native.close()
