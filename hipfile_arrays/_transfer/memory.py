"""The device check: ``hipMemoryTypeDevice``, and the whole extent within one allocation.

The pointer decides, not the exporter: CuPy-ROCm 14.2 exports managed memory as kDLROCM too. And
hipFile takes "the rest of the allocation" as the length of an unregistered buffer, so nothing but
the check here keeps a transfer from writing into the neighbour within a pool's block.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import _native
from ..errors import DeviceMismatchError, MemoryTypeError
from .values import Extent

__all__ = ["Allocation", "check"]

_DEVICE = 2
_NAMES = {
    0: "memory that the GPU runtime does not know (ordinary host memory, or freed)",
    1: "pinned host memory (hipMemoryTypeHost)",
    3: "managed memory (hipMemoryTypeManaged)",
    10: "an array object (hipMemoryTypeArray)",
    11: "unified memory (hipMemoryTypeUnified)",
}
_ADVICE = {
    0: "Pass a live device array.",
    1: "Copy it to the device first, for example by cupy.asarray(x).",
    3: "Copy it to plain device memory first: under CuPy's default allocator x.copy() does it.",
}


@dataclass(frozen=True, slots=True)
class Allocation:
    """One device allocation: what the runtime answers about a pointer's surroundings."""

    base: int
    nbytes: int
    device: int


def check(extent: Extent) -> Allocation:
    """Ask the runtime about an extent (one lookup), and refuse what cannot be transferred.

    Parameters
    ----------
    extent : Extent
        Not empty.

    Returns
    -------
    Allocation
        The allocation that holds the extent.

    Raises
    ------
    MemoryTypeError
        If it is not plain device memory, or reaches beyond its allocation.
    DeviceMismatchError
        If the exporter named another device than the runtime does.
    """
    kind, device, base, nbytes = _native.locate(int(extent.platform), extent.pointer)
    if kind != _DEVICE:
        what = _NAMES.get(kind, f"memory of type {kind}")
        advice = _ADVICE.get(kind, "Only plain device memory can be transferred.")
        raise MemoryTypeError(
            f"device memory (hipMemoryTypeDevice) is needed, but address {extent.pointer:#x} is "
            f"{what}. {advice}"
        )
    if device != extent.device:
        raise DeviceMismatchError(
            f"the array says that it is on device {extent.device}, but its memory is on device "
            f"{device}"
        )
    if extent.pointer - base + extent.nbytes > nbytes:
        raise MemoryTypeError(
            f"the array's {extent.nbytes} bytes at {extent.pointer:#x} reach beyond their "
            f"allocation, which is {nbytes} bytes at {base:#x}"
        )
    return Allocation(base, nbytes, device)
