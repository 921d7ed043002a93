"""Which bytes of a file a slab is: basic indexing of an array on disk. Pure functions.

A *slab* is what NumPy's basic indexing selects: integers, slices with any step, an ellipsis, new
axes. As a `Box` it has, for each axis, how many items, and the bytes from one to the next on the
device and in the file. Neighbouring items of the file are read together, gaps included where a gap
is cheaper to read than to skip; so a slab is few *ranges* of one length at regular offsets. They
are read one behind the other, into the slab's own memory if that is packed the same way, else into
temporary device memory, from where a kernel puts the items where they belong.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._strided import Axis, Box
from .records import packed_strides

__all__ = ["Block", "Selection", "block_of", "box_of", "offsets", "parts", "select"]

# Skipping costs a system call, about a microsecond: as long as reading a page from the page cache,
# and storage reads whole pages anyway.
CHEAP_GAP = 4096
# Offsets of one part, so that the lists of ranges stay small.
MOST_RANGES = 1 << 18


@dataclass(frozen=True, slots=True)
class Selection:
    """The items that an index selects of an array in a file.

    Attributes
    ----------
    start : int
        Bytes from the array's beginning to the first selected item.
    shape : tuple of int
        Of the selection.
    strides : tuple of int
        Bytes in the file from item to item of each axis; negative for negative steps.
    """

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _full_index(index: Any, ndim: int) -> list[Any]:
    entries = list(index) if isinstance(index, tuple) else [index]
    for entry in entries:
        if isinstance(entry, bool | np.bool_ | list | np.ndarray):
            raise TypeError(
                f"index {entry!r}: only basic indexing is read from a file (integers, slices, "
                "an ellipsis, None); read the slab that holds the items, and index it on the device"
            )
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(entry is not Ellipsis and entry is not None for entry in entries)
    if used > ndim:
        raise IndexError(f"too many indices: the array has {ndim} axes, the index {used}")
    rest = [slice(None)] * (ndim - used)
    if Ellipsis not in entries:
        return entries + rest
    at = entries.index(Ellipsis)
    return entries[:at] + rest + entries[at + 1 :]


def select(shape: tuple[int, ...], itemsize: int, index: Any, order: str) -> Selection:
    """Say which items a basic index selects.

    Parameters
    ----------
    shape : tuple of int
        Of the array in the file.
    itemsize : int
        Bytes.
    index : int, slice, Ellipsis, None, or a tuple of these
        As NumPy's basic indexing.
    order : {"C", "F"}
        Of the array in the file.

    Raises
    ------
    IndexError
        As NumPy: an integer out of bounds, too many indices, two ellipses.
    TypeError
        For anything that is not basic indexing.
    """
    if any(size < 0 for size in shape):
        raise ValueError(f"shape must not be negative: {shape}")
    if order not in ("C", "F"):
        raise ValueError(f"order must be 'C' or 'F', not {order!r}")
    if order == "C":
        steps = packed_strides(shape, itemsize)
    else:
        steps = packed_strides(shape[::-1], itemsize)[::-1]
    axes = iter(zip(shape, steps, range(len(shape)), strict=True))
    start = 0
    sizes, strides = [], []
    for entry in _full_index(index, len(shape)):
        if entry is None:
            sizes.append(1)
            strides.append(0)
            continue
        size, step, axis = next(axes)
        if isinstance(entry, slice):
            chosen = range(size)[entry]
            sizes.append(len(chosen))
            strides.append(chosen.step * step)
            start += (chosen.start if len(chosen) else 0) * step
            continue
        number = operator.index(entry)
        if not -size <= number < size:
            raise IndexError(f"index {number} is out of bounds for axis {axis} with size {size}")
        start += number % size * step
    return Selection(start, tuple(sizes), tuple(strides))


def box_of(selection: Selection, offset: int, pointer: int, strides: tuple[int, ...]) -> Box:
    """Return a selection as a box: forwards in the file, the axes with the widest steps first.

    Parameters
    ----------
    selection : Selection
        Not empty.
    offset : int
        Of the array in the file, bytes.
    pointer : int
        Device address of the target's first item.
    strides : tuple of int
        Bytes from item to item of the target's axes.
    """
    dst, src, axes = pointer, offset + selection.start, []
    for size, device, file in zip(selection.shape, strides, selection.strides, strict=True):
        if size == 1:
            continue
        if file < 0:
            dst += (size - 1) * device
            src += (size - 1) * file
            device, file = -device, -file
        axes.append(Axis(size, device, file))
    axes.sort(key=lambda axis: -axis.src)
    return Box(dst, src, tuple(axes))


@dataclass(frozen=True, slots=True)
class Block:
    """How the ranges of a box look: what is read together.

    Attributes
    ----------
    outer : int
        So many of the box's axes lead from range to range; the others lie within a range.
    nbytes : int
        Of one range, gaps included.
    count : int
        How many ranges.
    """

    outer: int
    nbytes: int
    count: int

    @property
    def total(self) -> int:
        """Bytes that all ranges are together."""
        return self.nbytes * self.count


def block_of(box: Box, itemsize: int) -> Block:
    """Say what of a box is read together."""
    nbytes = itemsize
    outer = len(box.axes)
    while outer and box.axes[outer - 1].src - nbytes <= CHEAP_GAP:
        outer -= 1
        nbytes += (box.axes[outer].size - 1) * box.axes[outer].src
    return Block(outer, nbytes, math.prod(axis.size for axis in box.axes[:outer]))


def _fits(box: Box, itemsize: int, most: int) -> bool:
    block = block_of(box, itemsize)
    return block.total <= most and block.count <= MOST_RANGES


def parts(box: Box, itemsize: int, most: int) -> Iterator[Box]:
    """Cut a box into boxes whose ranges are at most `most` bytes together, in file order."""
    if not box.axes or _fits(box, itemsize, most):
        yield box
        return
    axis = box.axes[0]
    low, high = 1, axis.size
    while low < high:  # how many steps of the outermost axis fit
        middle = -(-(low + high) // 2)
        if _fits(box.part(0, 0, middle), itemsize, most):
            low = middle
        else:
            high = middle - 1
    for start in range(0, axis.size, low):
        part = box.part(0, start, min(low, axis.size - start))
        if part.axes[0].size > 1:
            yield part
        else:
            yield from parts(Box(part.dst, part.src, part.axes[1:]), itemsize, most)


def offsets(box: Box, block: Block) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where in the file the ranges of a box begin."""
    found = np.array([box.src], np.int64)
    for axis in box.axes[: block.outer]:
        steps = np.arange(axis.size, dtype=np.int64) * axis.src
        found = np.add.outer(found, steps).ravel()
    return found


def read_strides(box: Box, block: Block) -> tuple[int, ...]:
    """Return the bytes from item to item of each axis once the ranges lie one behind the other."""
    outer = packed_strides(tuple(axis.size for axis in box.axes[: block.outer]), block.nbytes)
    return (*outer, *(axis.src for axis in box.axes[block.outer :]))
