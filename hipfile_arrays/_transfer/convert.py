"""Items of a file to and from device arrays of another layout, byte order or dtype.

Three ways, the first that fits:

1. The array's memory is what the file's bytes are: they go there, and nothing else happens.
2. It is packed the same way and its items have the same size: the bytes go there, and a kernel
   turns them in place.
3. Else the bytes go to temporary device memory, a bounded part at a time, and one kernel pass a
   part and column swaps, casts and scatters; writing gathers the other way round.

Kernels are queued on the caller's stream, which the engine orders its copies after: so temporary
memory is never overwritten before a kernel has read it. The stream is waited for at the end.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from .. import _native
from ..errors import MemoryTypeError, ShortReadError
from . import _copies, _strided, buffers, kernels, slab
from .array import DeviceArray
from .kernels import Strided
from .records import Column, packed_strides
from .run import Progress, move, move_many
from .source import Source
from .values import Extent, FileRange, PathName, Platform, Ranges

__all__ = [
    "Casting",
    "Order",
    "Place",
    "Request",
    "borrow",
    "hull_of",
    "memory_of",
    "place_of",
    "read_items",
    "read_slab",
    "write_array",
]

Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
Order: TypeAlias = Literal["C", "F"]

# Enough for the bus to be busy (an H200's takes 2.5 ms for it), little beside a GPU's memory.
MOST_TEMPORARY = 128 << 20
_LEAST_TEMPORARY = 1 << 20
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column's numbers belong on the device.

    Attributes
    ----------
    column : Column
        Of the file's items.
    array : DeviceArray
        The array; not yet looked at by `buffers.resolve`.
    memory : Strided
        It, with the axes of the file's items, outermost first, then those of the column's
        sub-array.
    """

    column: Column
    array: DeviceArray
    memory: Strided

    @property
    def plain(self) -> bool:
        """Whether the numbers are the same bits in the file and on the device."""
        return _copies.same_bits(self.memory.dtype, self.column.dtype)

    @property
    def packed(self) -> bool:
        """Whether they lie in the file's order without gaps."""
        packed = packed_strides(self.memory.shape, self.memory.dtype.itemsize)
        return _same_steps(self.memory.shape, self.memory.strides, packed)

    @property
    def per_item(self) -> int:
        """Numbers in one item of the file."""
        return math.prod(self.column.shape)


@dataclass(frozen=True, slots=True)
class Request:
    """What one transfer has in common for all its places."""

    platform: Platform
    device: int
    stream: int
    wish: PathName | None = None
    progress: Progress | None = None
    registration: _native.Registration | None = None

    def kernel(self, dst: Strided, src: Strided, first: int = 0, count: int | None = None) -> None:
        """Queue a copy of items on the stream."""
        kernels.copy(
            dst,
            src,
            device=self.device,
            stream=self.stream,
            platform=self.platform,
            first=first,
            count=count,
        )


def _same_steps(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether strides lead to the same bytes; those of an axis of one item lead nowhere."""
    return all(n == 1 or x == y for n, x, y in zip(shape, a, b, strict=True))


def memory_of(array: DeviceArray, order: Order, inner: int = 0) -> Strided:
    """Return an array's memory with its axes, but the last `inner`, in the order of the file."""
    shape, strides = array.shape, array.strides
    if order == "F":
        outer = len(shape) - inner
        shape = (*shape[:outer][::-1], *shape[outer:])
        strides = (*strides[:outer][::-1], *strides[outer:])
    return Strided(array.tensor.pointer, array.dtype, shape, strides)


def place_of(column: Column, array: DeviceArray, order: Order, casting: Casting) -> Place:
    """Say where a column belongs in an array that was made or given for it.

    Parameters
    ----------
    column : Column
        Of the file's items.
    array : DeviceArray
        Its shape is that of the items, then the column's.
    order : {"C", "F"}
        Of the items in the file.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
        As of `numpy.copyto`.

    Raises
    ------
    TypeError
        If the cast is not allowed, or no kernel has it.
    ValueError
        If items of the array share memory.
    KernelsUnavailable
        If a kernel is needed and CuPy is missing.
    """
    if not np.can_cast(column.device_dtype, array.dtype, casting):
        raise TypeError(
            f"cannot cast the file's items from {column.dtype} to {array.dtype} according to "
            f"the rule {casting!r}; casting= takes another rule, astype() on the device another way"
        )
    place = Place(column, array, memory_of(array, order, len(column.shape)))
    shape, strides = place.memory.shape, place.memory.strides
    if array.extent.nbytes and not (place.plain and place.packed):
        _copies.check_cast(array.dtype, column.dtype)
        if _strided.overlaps(shape, strides, array.dtype.itemsize):
            raise ValueError(
                "cannot read into this array: its items share memory "
                f"(shape {array.shape}, strides {array.strides} bytes)"
            )
        kernels.require(array.extent.platform)
    return place


def hull_of(array: DeviceArray) -> Extent:
    """Return the extent from an array's first byte to its last, whatever its strides."""
    if array.contiguous or not array.extent.nbytes:
        return array.extent
    reaches = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    low = sum(reach for reach in reaches if reach < 0)
    high = sum(reach for reach in reaches if reach > 0)
    extent = array.extent
    nbytes = high - low + array.dtype.itemsize
    return Extent(
        array.tensor.pointer + low, nbytes, extent.platform, extent.device, extent.exporter
    )


def read_items(
    found: Source, itemsize: int, count: int, places: Sequence[Place], how: Request
) -> int:
    """Read items from a source's start on, each number to its place.

    Parameters
    ----------
    found : Source
        Known to hold them.
    itemsize : int
        Bytes of one item in the file.
    count : int
        How many.
    places : sequence of Place
        In different memory.
    how : Request
        The rest.

    Returns
    -------
    int
        Bytes of them that the file did not have, because it shrank.
    """
    nbytes = itemsize * count
    if not nbytes or not places:
        return 0
    first = places[0]
    memory = first.memory
    if (
        len(places) == 1
        and first.column.fills(itemsize)
        and first.packed
        and memory.dtype.itemsize == first.column.dtype.itemsize
    ):
        missing = _move(found, found.start, memory.ptr, nbytes, how, first.array)
        if not first.plain:
            done = (nbytes - missing) // itemsize * first.per_item
            source = Strided(memory.ptr, first.column.dtype, memory.shape, memory.strides)
            how.kernel(memory, source, 0, done)
            _wait(how)
        return missing
    _check(place.array for place in places)
    with _temporary(itemsize, nbytes, how) as room:
        per_part = max(1, room.nbytes // itemsize)
        for begin in range(0, count, per_part):
            number = min(per_part, count - begin)
            start = found.start + begin * itemsize
            base = room.at(start)
            part = _part(how, begin * itemsize, nbytes)
            missing = _move(found, start, base, number * itemsize, part)
            whole = number - -(-missing // itemsize)
            for place in places:
                _scatter(place, base - begin * itemsize, itemsize, begin, whole, how)
            if missing:
                return nbytes - begin * itemsize - number * itemsize + missing
    return 0


def _scatter(place: Place, base: int, itemsize: int, first: int, count: int, how: Request) -> None:
    """Queue the copy of items from packed file bytes, the first of all of which is at `base`."""
    shape, column = place.memory.shape, place.column
    outer = shape[: len(shape) - len(column.shape)]
    strides = (*packed_strides(outer, itemsize), *column.strides)
    source = Strided(base + column.offset, column.dtype, shape, strides)
    how.kernel(place.memory, source, first * place.per_item, count * place.per_item)


def write_array(
    file: _native.OpenFile, name: str, start: int, array: DeviceArray, order: Order, how: Request
) -> None:
    """Write an array's items, packed in C or Fortran order, from byte `start` of a file on.

    Parameters
    ----------
    file : OpenFile
        Open for writing.
    name : str
        Of the file, for messages.
    start : int
        Offset of the first item, bytes.
    array : DeviceArray
        Of any strides.
    order : {"C", "F"}
        Of the items in the file.
    how : Request
        The rest.
    """
    memory = memory_of(array, order)
    itemsize = memory.dtype.itemsize
    count = math.prod(memory.shape)
    total = count * itemsize
    if not total:
        return

    def write(pointer: int, at: int, nbytes: int, part: Request, exporter: object = None) -> None:
        move(
            file,
            name,
            FileRange(start + at, nbytes),
            Extent(pointer, nbytes, how.platform, how.device, exporter),
            how.stream,
            reads=False,
            wish=how.wish,
            registration=part.registration,
            progress=part.progress,
        )

    packed = packed_strides(memory.shape, itemsize)
    if _same_steps(memory.shape, memory.strides, packed):
        write(memory.ptr, 0, total, how, array.extent.exporter)
        return
    kernels.require(how.platform)
    _check([array])
    with _temporary(itemsize, total, how) as room:
        per_part = max(1, room.nbytes // itemsize)
        for begin in range(0, count, per_part):
            number = min(per_part, count - begin)
            at = begin * itemsize
            base = room.at(start + at)
            how.kernel(
                Strided(base - at, memory.dtype, memory.shape, packed), memory, begin, number
            )
            write(base, at, number * itemsize, _part(how, at, total))


def read_slab(found: Source, selection: slab.Selection, place: Place, how: Request) -> None:
    """Read what an index selects of an array that begins where the source does.

    Parameters
    ----------
    found : Source
        The file; its start is the array's.
    selection : slab.Selection
        Not empty, of the place's shape.
    place : Place
        Of that shape.
    how : Request
        The rest.

    Raises
    ------
    ShortReadError
        If the file ends before the last selected item; nothing was written, unless it shrank
        meanwhile.
    """
    itemsize = place.column.dtype.itemsize
    memory = place.memory
    box = slab.box_of(selection, found.start, memory.ptr, memory.strides)
    last = box.src + itemsize + sum((axis.size - 1) * axis.src for axis in box.axes)
    if found.size is not None and last > found.size:
        _raise_short(found, last, found.size)
    _check([place.array])
    total = slab.block_of(box, itemsize).total
    fits = memory.dtype.itemsize == itemsize
    with contextlib.ExitStack() as stack:
        room: Room | None = None
        done = 0
        for part in slab.parts(box, itemsize, MOST_TEMPORARY):
            block = slab.block_of(part, itemsize)
            strides = slab.read_strides(part, block)
            shape = tuple(axis.size for axis in part.axes)
            # Gaps that are read with the items would fall on what lies between those of the target.
            in_place = (
                fits
                and block.total == itemsize * math.prod(shape)
                and strides == tuple(axis.dst for axis in part.axes)
            )
            if in_place:
                base = part.dst
            else:
                room = room or stack.enter_context(
                    _temporary(itemsize, min(total, MOST_TEMPORARY), how, exact=True)
                )
                base = room.at(part.src)
            its = _part(how, done, total, how.registration if in_place else None)
            missing = _move_ranges(found, part, block, base, its)
            if missing:
                _raise_short(found, last, last - missing)
            if not (in_place and place.plain):
                target = Strided(part.dst, memory.dtype, shape, tuple(a.dst for a in part.axes))
                how.kernel(target, Strided(base, place.column.dtype, shape, strides))
            done += block.total
        if not place.plain or room:
            _wait(how)


def _move_ranges(
    found: Source, box: _strided.Box, block: slab.Block, base: int, how: Request
) -> int:
    if block.count == 1:
        return _move(found, box.src, base, block.nbytes, how)
    starts = slab.offsets(box, block)
    pointers = base + block.nbytes * np.arange(block.count, dtype=np.int64)
    lengths = np.full(block.count, block.nbytes, np.int64)
    return move_many(
        found.file,
        found.name,
        Ranges(starts, pointers, lengths, how.platform, how.device),
        how.stream,
        reads=True,
        wish=how.wish,
        registration=how.registration,
        progress=how.progress,
    )


def _raise_short(found: Source, needed: int, end: int) -> None:
    raise ShortReadError(
        f"the slab ends at byte {needed} of {found.name}, which has {end}",
        expected=needed,
        found=end,
    )


def _move(
    found: Source,
    start: int,
    pointer: int,
    nbytes: int,
    how: Request,
    array: DeviceArray | None = None,
) -> int:
    exporter = array and array.extent.exporter
    extent = Extent(pointer, nbytes, how.platform, how.device, exporter)
    return move(
        found.file,
        found.name,
        FileRange(start, nbytes),
        extent,
        how.stream,
        reads=True,
        wish=how.wish,
        registration=how.registration,
        progress=how.progress,
    )


def _part(
    how: Request, done: int, total: int, registration: _native.Registration | None = None
) -> Request:
    """Return the same transfer for one part of it, which reports the progress of the whole."""
    told = how.progress
    progress = None if told is None else lambda part, _: told(done + part, total)
    return Request(how.platform, how.device, how.stream, how.wish, progress, registration)


def _check(arrays: Iterable[DeviceArray]) -> None:
    """Refuse what is not plain device memory before a kernel or a copy touches it."""
    for array in arrays:
        if array.extent.nbytes:
            buffers.resolve(hull_of(array))


@dataclass(frozen=True, slots=True)
class Room:
    """Temporary device memory for `nbytes` bytes that begin anywhere in a page."""

    pointer: int
    nbytes: int

    def at(self, file_offset: int) -> int:
        """Return where bytes of this file offset go: aligned in a page as they are in the file."""
        return self.pointer + (file_offset - self.pointer) % _PAGE


@contextlib.contextmanager
def _temporary(itemsize: int, nbytes: int, how: Request, *, exact: bool = False) -> Iterator[Room]:
    """Borrow device memory for at least an item; the stream is done with it before it goes back."""
    most = max(itemsize, min(nbytes, MOST_TEMPORARY))
    least = most if exact else max(itemsize, min(most, _LEAST_TEMPORARY))
    owner, room = _device_memory(least + _PAGE, most + _PAGE, how)
    try:
        yield Room(int(owner.ptr), room - _PAGE)
    finally:
        _wait(how)
        del owner


def _device_memory(least: int, most: int, how: Request) -> tuple[Any, int]:
    owner, nbytes = kernels.temporary(least, most, how.device, how.stream, how.platform)
    try:
        buffers.resolve(Extent(int(owner.ptr), nbytes, how.platform, how.device))
    except MemoryTypeError as error:
        error.add_note(
            "This is temporary memory from CuPy's current allocator, which converting needs; set "
            "one that gives plain device memory: cupy.cuda.set_allocator()"
        )
        raise
    return owner, nbytes


def borrow(array: DeviceArray, how: Request) -> tuple[Any, int]:
    """Borrow device memory for a copy of an array's items, after checking the array itself.

    Returns
    -------
    owner : object
        Keeps the memory; the stream's later work may have it as soon as this is gone.
    pointer : int
        Of its first byte.
    """
    kernels.require(how.platform)
    _check([array])
    nbytes = array.extent.nbytes
    owner, _ = _device_memory(nbytes, nbytes, how)
    return owner, int(owner.ptr)


def _wait(how: Request) -> None:
    _native.synchronize(int(how.platform), how.device, how.stream)
