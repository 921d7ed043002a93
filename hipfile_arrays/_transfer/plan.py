"""Which bytes take which path, and why: a pure function of facts and settings.

The rules, in order:

1. ``path="library"``: the whole range goes to hipFile or cuFile, whatever it does with it.
2. Up to 64 KiB, ``auto`` takes one buffered read and one copy: nothing that needs a second
   thread, a second stream or a file-library call is quicker.
3. Otherwise ``auto`` looks whether the range is in the page cache (at least half of it): then
   the bytes are in memory already, and *staged* copies beat any device.
4. Else the aligned body goes *direct*, if nothing stands against it: file offset and length are
   multiples of the file's O_DIRECT offset alignment, the device address of its memory alignment.
   hipFile moves a whole request through a slow single-threaded fallback when one byte of it is
   unaligned; so the unaligned head and tail are cut off and staged, and the library is asked only
   for what its fast path takes.
5. Else *staged*, with O_DIRECT for reads where the file takes it (cold data gains nothing from a
   detour through the page cache), buffered otherwise.

``path="direct"`` follows rule 4 and raises, with every reason, where it cannot: it never degrades.
Pieces cover the range exactly once, in order.

Many ranges of one file (`make_many`) follow the same rules with one decision for all of them:
residency is that of all ranges' hull, rule 2 is asked of each range, and what `direct` does not
take of a range is staged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np

from .._native import SMALL
from ..config import Settings
from ..errors import DirectPathUnavailable
from .fileinfo import FileInfo
from .values import Choice, Extent, FileRange, Numbers, PathName, Piece, Ranges, Route

__all__ = [
    "SMALL",
    "Facts",
    "ManyPlan",
    "Plan",
    "check_wish",
    "make",
    "make_many",
    "may_map",
    "obvious_route",
    "one_piece",
]

# Parts smaller than this gain nothing from being read by another thread.
_LEAST_CHUNK = 256 * 1024
# Registering page-cache pages moves 13 to 20 GB/s on an H200's host, however many threads do it
# (the kernel's page-table lock and the driver serialise it); a thread that copies moves 7. So it
# pays for two threads at most, and for ranges that are worth a registration.
_MOST_MAPPED_THREADS = 2
_LEAST_MAPPED = 16 << 20
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Facts:
    """What the planner is told about one transfer.

    Attributes
    ----------
    reads : bool
        From the file to the device, or the other way.
    info : FileInfo
        Of the file.
    obstacles : tuple of str
        What keeps the file from the direct path, whatever the range.
    resident : int or None
        Bytes of the range in the page cache, where known.
    maps_page_cache : bool
        Whether the runtime copies straight from registered pages of the page cache.
    """

    reads: bool
    info: FileInfo
    obstacles: tuple[str, ...]
    resident: int | None
    maps_page_cache: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Pieces with their routes, and how the engine may run them.

    Attributes
    ----------
    pieces : tuple of Piece
        In file order, covering the range exactly once.
    choice : Choice
        The path that most bytes take, and why.
    threads : int
        At most.
    chunk : int
        Bytes of one staged copy.
    may_fall_back : bool
        Whether a direct piece that fails is finished staged.
    """

    pieces: tuple[Piece, ...]
    choice: Choice
    threads: int
    chunk: int
    may_fall_back: bool


def obvious_route(wish: PathName, nbytes: int) -> Route | None:
    """Return the route of a transfer whose plan is one piece whatever the facts: rules 1 and 2."""
    if wish == "auto" and nbytes <= SMALL:
        return Route.BUFFERED
    return Route.LIBRARY if wish == "library" else None


def may_map(settings: Settings, file_range: FileRange) -> bool:
    """Whether copying from registered page-cache pages is worth asking the runtime about."""
    return settings.threads <= _MOST_MAPPED_THREADS and file_range.nbytes >= _LEAST_MAPPED


def one_piece(file_range: FileRange, extent: Extent, route: Route) -> tuple[Piece, ...]:
    """Return the whole range as one piece; none if it is empty."""
    if not file_range.nbytes:
        return ()
    return (Piece(file_range.offset, extent.pointer, file_range.nbytes, route),)


def _body(file_range: FileRange, extent: Extent, alignment: tuple[int, int]) -> FileRange | None:
    """Return the largest part of the range that the direct path takes, if any."""
    memory_alignment, offset_alignment = alignment
    start = -(-file_range.offset // offset_alignment) * offset_alignment
    end = file_range.end // offset_alignment * offset_alignment
    if start >= end:
        return None
    if (extent.pointer + start - file_range.offset) % memory_alignment:
        return None
    return FileRange(start, end - start)


def _with_ends(
    file_range: FileRange, extent: Extent, body: FileRange, route: Route
) -> tuple[Piece, ...]:
    pieces = []
    for start, end, its_route in (
        (file_range.offset, body.offset, Route.BUFFERED),
        (body.offset, body.end, route),
        (body.end, file_range.end, Route.BUFFERED),
    ):
        if end > start:
            pointer = extent.pointer + start - file_range.offset
            pieces.append(Piece(start, pointer, end - start, its_route))
    return tuple(pieces)


def _direct(
    facts: Facts, file_range: FileRange, extent: Extent
) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """Pieces of the direct path, or the reasons why there are none."""
    if facts.obstacles or facts.info.direct_alignment is None:
        return (), facts.obstacles or ("the file cannot be opened with O_DIRECT",)
    memory_alignment, offset_alignment = facts.info.direct_alignment
    body = _body(file_range, extent, facts.info.direct_alignment)
    if body is None:
        return (), (
            f"no part of it is aligned: file offset {file_range.offset} (needs a multiple of "
            f"{offset_alignment}) and device address {extent.pointer:#x} (needs a multiple of "
            f"{memory_alignment}) do not come to alignment together within "
            f"{file_range.nbytes} bytes",
        )
    return _with_ends(file_range, extent, body, Route.DIRECT), ()


def _staged(
    facts: Facts, file_range: FileRange, extent: Extent, settings: Settings
) -> tuple[tuple[Piece, ...], str]:
    if _is_resident(facts, file_range):
        because = "the data is in the page cache"
        if facts.reads and facts.maps_page_cache and may_map(settings, file_range):
            return one_piece(file_range, extent, Route.MAPPED), because
        return one_piece(file_range, extent, Route.BUFFERED), because
    if facts.reads and facts.info.direct_alignment is not None and file_range.nbytes > SMALL:
        return one_piece(file_range, extent, Route.O_DIRECT), "cold data is read with O_DIRECT"
    if not facts.reads:
        return one_piece(file_range, extent, Route.BUFFERED), "written through the page cache"
    return one_piece(file_range, extent, Route.BUFFERED), "read through the page cache"


def _is_resident(facts: Facts, file_range: FileRange) -> bool:
    return facts.resident is not None and 2 * facts.resident >= file_range.nbytes


def _granted(pieces: tuple[Piece, ...], reasons: tuple[str, ...]) -> tuple[Piece, ...]:
    if reasons:
        raise DirectPathUnavailable(
            'path="direct" was asked for, but the direct path is not open: '
            + "; ".join(reasons)
            + '. Use path="auto" to let the library choose.'
        )
    return pieces


def _decide(
    facts: Facts, file_range: FileRange, extent: Extent, wish: PathName, settings: Settings
) -> tuple[tuple[Piece, ...], Choice]:
    if wish == "library":
        pieces = one_piece(file_range, extent, Route.LIBRARY)
        return pieces, Choice("library", 'path="library" was asked for')
    if wish == "direct":
        pieces = _granted(*_direct(facts, file_range, extent))
        return pieces, Choice("direct", 'path="direct" was asked for')
    if wish == "auto":
        if file_range.nbytes <= SMALL:
            pieces = one_piece(file_range, extent, Route.BUFFERED)
            return pieces, Choice("staged", "at most 64 KiB: one read and one copy is quickest")
        if not _is_resident(facts, file_range):
            pieces, reasons = _direct(facts, file_range, extent)
            if pieces:
                return pieces, Choice("direct", "storage and device can do it by themselves")
            staged, how = _staged(facts, file_range, extent, settings)
            return staged, Choice("staged", f"{how}; not direct, because " + "; ".join(reasons))
    pieces, how = _staged(facts, file_range, extent, settings)
    return pieces, Choice("staged", how)


def make(
    facts: Facts, file_range: FileRange, extent: Extent, settings: Settings, wish: PathName
) -> Plan:
    """Plan one transfer.

    Parameters
    ----------
    facts : Facts
        Of the file and the machine.
    file_range : FileRange
        Bytes of the file.
    extent : Extent
        As many bytes of device memory.
    settings : Settings
        In force for this transfer.
    wish : {"auto", "direct", "staged", "library"}
        The path asked for.

    Returns
    -------
    Plan
        Pure: the same arguments give the same plan.

    Raises
    ------
    DirectPathUnavailable
        If `wish` is ``"direct"`` and cannot be granted.
    """
    check_wish(wish)
    if file_range.nbytes != extent.nbytes:
        raise ValueError(f"{file_range} and {extent} differ in length")
    pieces, choice = _decide(facts, file_range, extent, wish, settings)
    threads, chunk = _shares(file_range.nbytes, settings)
    return Plan(pieces, choice, threads, chunk, may_fall_back=wish == "auto")


def check_wish(wish: PathName) -> None:
    """Raise `ValueError` for what is no path's name."""
    if wish not in get_args(PathName):
        raise ValueError(f"path must be one of {get_args(PathName)}, not {wish!r}")


def _shares(nbytes: int, settings: Settings) -> tuple[int, int]:
    """Return how many threads move so many bytes, and the bytes of one staged copy."""
    share = -(-nbytes // settings.threads)
    chunk = min(settings.chunk_bytes, max(_LEAST_CHUNK, -(-share // _PAGE) * _PAGE))
    return max(1, min(settings.threads, settings.pinned_limit_bytes // (2 * chunk))), chunk


@dataclass(frozen=True, slots=True)
class ManyPlan:
    """As `Plan`, for many ranges.

    Attributes
    ----------
    pieces : ndarray of int64, shape (n, 4)
        File offset, device address, bytes and route of each piece, in the order of the ranges.
    """

    pieces: Numbers
    choice: Choice
    threads: int
    chunk: int
    may_fall_back: bool


def _whole(ranges: Ranges, routes: Numbers | Route) -> Numbers:
    pieces = np.empty((len(ranges.offsets), 4), np.int64)
    for column, values in enumerate((ranges.offsets, ranges.pointers, ranges.nbytes, routes)):
        pieces[:, column] = values
    return pieces


def _cut_at_alignment(
    ranges: Ranges, alignment: tuple[int, int], otherwise: Route, *, least: int
) -> Numbers:
    """Return the aligned bodies as direct pieces, their ends staged; the rest goes `otherwise`.

    Ranges of up to `least` bytes have no direct part.
    """
    memory_alignment, offset_alignment = alignment
    ends = ranges.offsets + ranges.nbytes
    starts = -(-ranges.offsets // offset_alignment) * offset_alignment
    stops = ends // offset_alignment * offset_alignment
    aligned = (ranges.pointers + starts - ranges.offsets) % memory_alignment == 0
    direct = aligned & (starts < stops) & (ranges.nbytes > least)
    starts = np.where(direct, starts, ranges.offsets)
    stops = np.where(direct, stops, ends)
    cuts = np.stack([ranges.offsets, starts, stops, ends], axis=1)
    pieces = np.empty((len(direct), 3, 4), np.int64)
    pieces[:, :, 0] = cuts[:, :3]
    pieces[:, :, 1] = ranges.pointers[:, None] + cuts[:, :3] - ranges.offsets[:, None]
    pieces[:, :, 2] = np.diff(cuts, axis=1)
    pieces[:, :, 3] = Route.BUFFERED
    small = np.where(ranges.nbytes > SMALL, otherwise, Route.BUFFERED)
    pieces[:, 1, 3] = np.where(direct, Route.DIRECT, small)
    flat = pieces.reshape(-1, 4)
    return flat[flat[:, 2] > 0]


def make_many(facts: Facts, ranges: Ranges, settings: Settings, wish: PathName) -> ManyPlan:
    """Plan the transfer of many ranges of one file.

    Parameters
    ----------
    facts : Facts
        Of the file and the machine; `resident` is of the ranges' hull.
    ranges : Ranges
        Not empty.
    settings : Settings
        In force for this transfer.
    wish : {"auto", "direct", "staged", "library"}
        The path asked for.

    Raises
    ------
    DirectPathUnavailable
        If `wish` is ``"direct"`` and cannot be granted for every range.
    """
    check_wish(wish)
    pieces, choice = _decide_many(facts, ranges, wish)
    threads, chunk = _shares(ranges.total, settings)
    return ManyPlan(pieces, choice, threads, chunk, may_fall_back=wish == "auto")


def _decide_many(facts: Facts, ranges: Ranges, wish: PathName) -> tuple[Numbers, Choice]:
    number = f"{len(ranges.offsets)} ranges"
    if wish == "library":
        return _whole(ranges, Route.LIBRARY), Choice("library", 'path="library" was asked for')
    alignment = facts.info.direct_alignment
    if wish == "direct":
        for offset, pointer, nbytes in zip(
            ranges.offsets.tolist(), ranges.pointers.tolist(), ranges.nbytes.tolist(), strict=True
        ):
            extent = Extent(pointer, nbytes, ranges.platform, ranges.device)
            _granted(*_direct(facts, FileRange(offset, nbytes), extent))
        assert alignment is not None
        pieces = _cut_at_alignment(ranges, alignment, Route.BUFFERED, least=0)
        return pieces, Choice("direct", 'path="direct" was asked for')
    if _is_resident(facts, ranges.hull):
        return _whole(ranges, Route.BUFFERED), Choice("staged", "the data is in the page cache")
    if int(ranges.nbytes.max()) <= SMALL:
        because = f"{number} of at most 64 KiB are read together, through the page cache"
        return _whole(ranges, Route.BUFFERED), Choice("staged", because)
    cold = Route.O_DIRECT if facts.reads and alignment is not None else Route.BUFFERED
    if wish == "auto" and not facts.obstacles and alignment is not None:
        pieces = _cut_at_alignment(ranges, alignment, cold, least=SMALL)
        if (pieces[:, 3] == Route.DIRECT).any():
            return pieces, Choice("direct", "storage and device can do it by themselves")
    routes = np.where(ranges.nbytes > SMALL, cold, Route.BUFFERED)
    return _whole(ranges, routes), Choice("staged", f"{number}, read with {cold.name}")
