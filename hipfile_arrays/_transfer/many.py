"""Many arrays at many offsets of one file, in one transfer.

All is checked before anything moves: memory, offsets, that the file holds every range, that no two
share bytes of the side that is written. Then the ranges are put in an order in which many adjoin,
those that adjoin on both sides become one, and the engine bundles the rest: ranges that adjoin in
the file are read by one call, and those that adjoin on the device copied by one.

hipFile's batch interface is not used: there each range stays a request of its own to the storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ShortReadError
from . import buffers, memory, vendor
from .array import DeviceArray
from .convert import hull_of
from .records import packed_strides
from .run import Progress, move_many
from .values import Numbers, PathName, Platform, Ranges

__all__ = ["move_all"]


@dataclass(frozen=True, slots=True)
class _Parts:
    """Device memory of one device and stream, for some of the offsets.

    Attributes
    ----------
    platform, device, stream
        Of all.
    registration : Registration or None
        One that holds all.
    which : ndarray of int64
        Their numbers among the offsets.
    pointers, nbytes : ndarray of int64
        Of each.
    kept : sequence of DeviceArray
        Keeps the memory alive.
    """

    platform: Platform
    device: int
    stream: int
    registration: _native.Registration | None
    which: Numbers
    pointers: Numbers
    nbytes: Numbers
    kept: Sequence[DeviceArray]


def move_all(
    file: _native.OpenFile,
    name: str,
    arrays: Any,
    offsets: npt.ArrayLike,
    *,
    reads: bool,
    stream: int | None,
    wish: PathName | None,
    progress: Progress | None,
) -> int:
    """Move every array, or every row of one array, from or to its offset.

    Parameters
    ----------
    file : OpenFile
        Open for the direction.
    name : str
        Of the file, for messages.
    arrays, offsets, stream, progress
        As `File.read_many`.
    reads : bool
        From the file to the device, or the other way.
    wish : {"auto", "direct", "staged", "library"} or None
        By default the settings' path.

    Returns
    -------
    int
        Bytes of all.
    """
    starts = _offsets_of(offsets, name)
    if isinstance(arrays, list | tuple):
        if len(arrays) != len(starts):
            raise ValueError(f"{len(arrays)} arrays and {len(starts)} offsets in {name}")
        parts = _parts_of_list(arrays, stream, reads)
    else:
        parts = [_parts_of_rows(arrays, len(starts), stream, reads)]
    _check_ranges(file, name, starts, parts, reads)
    total = sum(int(part.nbytes.sum()) for part in parts)
    done = 0
    for part in parts:
        done += _move(file, name, starts, part, done, total, reads, wish, progress)
    return total


def _offsets_of(offsets: npt.ArrayLike, name: str) -> Numbers:
    found = np.asarray(offsets)
    if found.ndim != 1:
        raise ValueError(f"offsets must be one-dimensional, not of shape {found.shape}")
    if len(found) and found.dtype.kind not in "iu":
        raise TypeError(f"offsets must be integers, not {found.dtype}")
    starts = found.astype(np.int64)
    if len(starts) and int(starts.min()) < 0:
        raise ValueError(f"offset must not be negative: {int(starts.min())} in {name}")
    return starts


def _parts_of_rows(array: Any, count: int, stream: int | None, reads: bool) -> _Parts:
    described, registration, stream = buffers.parts_of(array, stream, target=reads)
    shape, strides = described.shape, described.strides
    if not shape or shape[0] != count:
        raise ValueError(f"an array of shape {shape} does not have one row for {count} offsets")
    itemsize = described.dtype.itemsize
    row = described.extent.nbytes // count if count else 0
    inner = packed_strides(shape[1:], itemsize)
    packed = all(n == 1 or a == b for n, a, b in zip(shape[1:], strides[1:], inner, strict=True))
    if row and not packed:
        raise ValueError(
            f"the rows of an array of shape {shape} and strides {strides} are not contiguous"
        )
    if row and registration is None:
        registration = buffers.resolve(hull_of(described))
    extent = described.extent
    numbers = np.arange(count if row else 0, dtype=np.int64)
    pointers = described.tensor.pointer + (strides[0] * numbers if row else numbers)
    nbytes = np.full(len(numbers), row, np.int64)
    return _Parts(
        extent.platform, extent.device, stream, registration, numbers, pointers, nbytes, [described]
    )


def _parts_of_list(arrays: Sequence[Any], stream: int | None, reads: bool) -> list[_Parts]:
    groups: dict[tuple[Platform, int, int], list[tuple[int, DeviceArray]]] = {}
    for number, array in enumerate(arrays):
        described, registration, its_stream = buffers.parts_of(array, stream, target=reads)
        extent = described.extent
        if not extent.nbytes:
            continue
        if registration is None and not described.contiguous:
            raise ValueError(f"array {number} of {len(arrays)} is not contiguous")
        key = extent.platform, extent.device, its_stream
        groups.setdefault(key, []).append((number, described))
    found = []
    for (platform, device, its_stream), members in groups.items():
        kept = [described for _, described in members]
        found.append(
            _Parts(
                platform,
                device,
                its_stream,
                _check_memory(kept),
                np.array([number for number, _ in members], np.int64),
                np.array([described.extent.pointer for described in kept], np.int64),
                np.array([described.extent.nbytes for described in kept], np.int64),
                kept,
            )
        )
    return found


def _check_memory(arrays: Iterable[DeviceArray]) -> _native.Registration | None:
    """Check each, by one lookup for all in one allocation; return the one that holds them all."""
    base = end = 0
    holders: dict[int, _native.Registration] = {}
    registered = True
    for array in arrays:
        extent = array.extent
        if base <= extent.pointer and extent.pointer + extent.nbytes <= end:
            continue
        registration = buffers.find(extent)
        if registration is not None:
            holders[registration.base] = registration
            base, end = registration.base, registration.base + registration.size
            continue
        registered = False
        vendor.prepare(extent.platform)
        allocation = memory.check(extent)
        base, end = allocation.base, allocation.base + allocation.nbytes
    return holders.popitem()[1] if registered and len(holders) == 1 else None


def _check_ranges(
    file: _native.OpenFile, name: str, starts: Numbers, parts: Iterable[_Parts], reads: bool
) -> None:
    parts = [part for part in parts if len(part.which)]
    if not parts:
        return
    which = np.concatenate([part.which for part in parts])
    nbytes = np.concatenate([part.nbytes for part in parts])
    pointers = np.concatenate([part.pointers for part in parts])
    here = starts[which]
    if int((np.iinfo(np.int64).max - here - nbytes).min()) < 0:
        raise ValueError(f"offset {int(here.max())} in {name} is too large")
    sides = (pointers, "memory") if reads else (here, "bytes of the file")
    order = np.argsort(sides[0], kind="stable")
    firsts, lengths = sides[0][order], nbytes[order]
    shared = np.flatnonzero(firsts[1:] < firsts[:-1] + lengths[:-1])
    if len(shared):
        one, other = sorted(which[order[shared[0] : shared[0] + 2]].tolist())
        raise ValueError(f"numbers {one} and {other} share {sides[1]}, so the result is undefined")
    size = file.size() if reads else None
    if size is None:
        return
    missing = np.flatnonzero(here + nbytes > size)
    if len(missing):
        first = int(missing[0])
        raise ShortReadError(
            f"{len(missing)} of {len(here)} ranges reach beyond the end of {name}, which has "
            f"{size} bytes; number {int(which[first])} asks for {int(nbytes[first])} bytes from "
            f"offset {int(here[first])}",
            expected=int(nbytes.sum()),
            found=int(np.clip(size - here, 0, nbytes).sum()),
        )


def joined(
    offsets: Numbers, pointers: Numbers, nbytes: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Put ranges in the order in which most adjoin, and make one of those that adjoin twice."""

    def adjoin(keys: Numbers, order: Numbers) -> int:
        return int((keys[order][1:] == (keys + nbytes)[order][:-1]).sum())

    in_file = np.argsort(offsets, kind="stable")
    on_device = np.argsort(pointers, kind="stable")
    order = in_file
    if adjoin(pointers, on_device) > adjoin(offsets, in_file):
        order = on_device
    offsets, pointers, nbytes = offsets[order], pointers[order], nbytes[order]
    twice = (offsets[1:] == (offsets + nbytes)[:-1]) & (pointers[1:] == (pointers + nbytes)[:-1])
    first = np.flatnonzero(np.concatenate([[True], ~twice]))
    return offsets[first], pointers[first], np.add.reduceat(nbytes, first)


def _move(
    file: _native.OpenFile,
    name: str,
    starts: Numbers,
    part: _Parts,
    done: int,
    total: int,
    reads: bool,
    wish: PathName | None,
    progress: Progress | None,
) -> int:
    if not len(part.which):
        return 0
    nbytes = int(part.nbytes.sum())
    here, pointers, lengths = joined(starts[part.which], part.pointers, part.nbytes)
    missing = move_many(
        file,
        name,
        Ranges(here, pointers, lengths, part.platform, part.device),
        part.stream,
        reads=reads,
        wish=wish,
        registration=part.registration,
        progress=None if progress is None else lambda now, _: progress(done + now, total),
    )
    if missing:
        raise ShortReadError(
            f"{name} shrank while it was read: {nbytes - missing} of {nbytes} bytes were there",
            expected=nbytes,
            found=nbytes - missing,
        )
    return nbytes
