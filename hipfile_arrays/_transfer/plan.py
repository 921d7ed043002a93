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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from .._native import SMALL
from ..config import Settings
from ..errors import DirectPathUnavailable
from .fileinfo import FileInfo
from .values import Choice, Extent, FileRange, PathName, Piece, Route

__all__ = ["SMALL", "Facts", "Plan", "make", "may_map", "obvious_route", "one_piece"]

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


def _decide(
    facts: Facts, file_range: FileRange, extent: Extent, wish: PathName, settings: Settings
) -> tuple[tuple[Piece, ...], Choice]:
    if wish == "library":
        pieces = one_piece(file_range, extent, Route.LIBRARY)
        return pieces, Choice("library", 'path="library" was asked for')
    if wish == "direct":
        pieces, reasons = _direct(facts, file_range, extent)
        if reasons:
            raise DirectPathUnavailable(
                'path="direct" was asked for, but the direct path is not open: '
                + "; ".join(reasons)
                + '. Use path="auto" to let the library choose.'
            )
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
    if wish not in get_args(PathName):
        raise ValueError(f"path must be one of {get_args(PathName)}, not {wish!r}")
    if file_range.nbytes != extent.nbytes:
        raise ValueError(f"{file_range} and {extent} differ in length")
    threads = settings.threads
    pieces, choice = _decide(facts, file_range, extent, wish, settings)
    share = -(-file_range.nbytes // threads)
    chunk = min(settings.chunk_bytes, max(_LEAST_CHUNK, -(-share // _PAGE) * _PAGE))
    threads = max(1, min(threads, settings.pinned_limit_bytes // (2 * chunk)))
    return Plan(pieces, choice, threads, chunk, may_fall_back=wish == "auto")
