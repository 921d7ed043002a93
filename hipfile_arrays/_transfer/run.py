"""Facts, plan and engine, for one range; the outcome as a count or one exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from .. import _native, config
from ..errors import from_failure
from . import buffers, vendor
from . import plan as planning
from .fileinfo import FileInfo, inspect
from .plan import Facts, ManyPlan, Plan
from .values import Extent, FileRange, Numbers, PathName, Platform, Ranges, Route

__all__ = ["Progress", "error_of", "gather", "move", "move_many", "move_one", "table_of"]

# Called with (bytes done, bytes in all), from the calling thread, now and then.
Progress: TypeAlias = Callable[[int, int], object]


def gather(
    file: _native.OpenFile,
    file_range: FileRange,
    platform: Platform,
    device: int,
    wish: PathName,
    *,
    reads: bool,
    info: FileInfo | None = None,
    may_map: bool = True,
) -> Facts:
    """Ask about the file what the planner needs for this wish, and no more.

    Without `may_map`, nothing is planned that registers pages of the page cache.
    """
    info = info or inspect(file)
    ask_library = wish == "direct" or (wish == "auto" and file_range.nbytes > planning.SMALL)
    ask_residency = ask_library or wish == "staged"
    resident = (
        _native.resident_bytes(file.fd, file_range.offset, file_range.nbytes)
        if ask_residency and info.regular
        else None
    )
    obstacles: tuple[str, ...] = ()
    if ask_library:
        obstacles = vendor.direct_obstacles(platform, file, info)
    maps = bool(
        reads
        and may_map
        and resident
        and planning.may_map(config.get(), file_range)
        and _native.takes_file_mappings(int(platform), device, file)
    )
    return Facts(reads, info, obstacles, resident, maps)


def move(
    file: _native.OpenFile,
    name: str,
    file_range: FileRange,
    extent: Extent,
    stream: int,
    *,
    reads: bool,
    wish: PathName | None = None,
    registration: _native.Registration | None = None,
    progress: Progress | None = None,
) -> int:
    """Move a range between a file and device memory.

    Parameters
    ----------
    file : OpenFile
        Open for the direction.
    name : str
        Of the file, for messages.
    file_range, extent
        As many bytes on both sides; not empty.
    stream : int
        The caller's stream. Work queued on it comes first; the bytes have arrived on return.
    reads : bool
        From the file to the device, or the other way.
    wish : {"auto", "direct", "staged", "library"}, optional
        By default the settings' path.
    registration : Registration, optional
        One that holds the extent; looked for if not given.
    progress : callable, optional
        See `Progress`.

    Returns
    -------
    int
        Bytes of the range that the file did not have (reads only); 0 when all were moved.

    Raises
    ------
    OSError, HipFileError, DirectPathUnavailable, MemoryTypeError
        One exception naming file, range, path and cause; everything begun has ended by then.
    """
    if registration is None:
        registration = buffers.resolve(extent)
    settings = config.get()
    wish = wish or settings.path
    route = planning.obvious_route(wish, file_range.nbytes)
    if route is not None and progress is None:
        return move_one(
            file,
            name,
            file_range.offset,
            extent,
            stream,
            registration,
            route,
            reads,
            False,
        )
    facts = gather(file, file_range, extent.platform, extent.device, wish, reads=reads)
    plan = planning.make(facts, file_range, extent, settings, wish)
    return _execute(
        plan, table_of(plan), file, name, file_range, extent, stream, reads, registration, progress
    )


def table_of(plan: Plan) -> Numbers:
    """Return a plan's pieces as the engine takes them."""
    return np.array([(p.offset, p.pointer, p.nbytes, p.route) for p in plan.pieces], np.int64)


def move_many(
    file: _native.OpenFile,
    name: str,
    ranges: Ranges,
    stream: int,
    *,
    reads: bool,
    wish: PathName | None = None,
    registration: _native.Registration | None = None,
    progress: Progress | None = None,
) -> int:
    """Move many ranges between one file and one device's memory.

    As `move`; all pointers must be known to be plain device memory within their allocations, and
    `registration`, if given, holds them all.
    """
    if not len(ranges.offsets):
        return 0
    settings = config.get()
    wish = wish or settings.path
    hull = ranges.hull
    facts = gather(file, hull, ranges.platform, ranges.device, wish, reads=reads)
    plan = planning.make_many(facts, ranges, settings, wish)
    # The engine needs the device, not the extent, of pieces that lie anywhere.
    extent = Extent(int(ranges.pointers[0]), ranges.total, ranges.platform, ranges.device)
    return _execute(
        plan, plan.pieces, file, name, hull, extent, stream, reads, registration, progress
    )


def move_one(
    file: _native.OpenFile,
    name: str,
    offset: int,
    extent: Extent,
    stream: int,
    registration: _native.Registration | None,
    route: Route,
    reads: bool,
    exact: bool,
) -> int:
    """Move a range whose plan is one piece whatever the facts (`plan.obvious_route`).

    As `move`, by one call into the native module; with `exact`, device memory stays as it is where
    the range is not all there.
    """
    answer = _native.transfer_one(
        file,
        reads,
        extent.platform,
        extent.device,
        stream,
        offset,
        extent.pointer,
        extent.nbytes,
        route,
        registration,
        exact,
    )
    if isinstance(answer, tuple):
        file_range = FileRange(offset, extent.nbytes)
        raise from_failure(answer, _context(name, file_range, reads, route.path))
    return answer


def _execute(
    plan: Plan | ManyPlan,
    pieces: Numbers,
    file: _native.OpenFile,
    name: str,
    file_range: FileRange,
    extent: Extent,
    stream: int,
    reads: bool,
    registration: _native.Registration | None,
    progress: Progress | None,
) -> int:
    total = extent.nbytes
    outcome = _native.transfer(
        file,
        reads,
        int(extent.platform),
        extent.device,
        stream,
        pieces,
        registration,
        plan.may_fall_back,
        plan.threads,
        plan.chunk,
        None if progress is None else lambda done: progress(done, total),
    )
    error = error_of(outcome, name, file_range, reads, plan.choice.path)
    if error is not None:
        raise error
    if progress is not None:
        progress(total - outcome.missing, total)
    return outcome.missing


def error_of(
    outcome: _native.Outcome, name: str, file_range: FileRange, reads: bool, path: str
) -> Exception | None:
    """Make the exception for how a transfer ended, the first cause with the rest as notes."""
    if outcome.failure is None:
        return None
    error = from_failure(outcome.failure, _context(name, file_range, reads, path))
    for other in outcome.others:
        error.add_note(str(from_failure(other)))
    return error


def _context(name: str, file_range: FileRange, reads: bool, path: str) -> str:
    verb = "reading" if reads else "writing"
    return f"{verb} bytes {file_range.offset} to {file_range.end} of {name} by path {path}"
