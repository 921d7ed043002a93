"""The geometry of a strided copy: which boxes, which axes, how wide an access. Pure functions.

A copy of items ``[first, first + count)``, in C order of a shape, is a few *boxes* of the shape.
A box is copied in whatever order suits the memory: its axes are turned forwards, sorted by the
target's strides and merged where neighbours lie together (`ordered`). An item is one or more
*scalars*, and a thread moves a *group* of scalars that lie together on both sides (`grouped`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

__all__ = ["Axis", "Box", "boxes", "grouped", "merged", "ordered", "overlaps", "split", "tile_axes"]

WIDEST = 16  # bytes that one thread moves at a time
# Indices are 32 bits wide in the kernels, so that they divide by a multiplication.
MOST_GROUPS = 2**31 - 1
# A transpose by tiles pays from this many groups on, along both axes.
LEAST_TILE = 12


class Axis(NamedTuple):
    """One axis: how many steps, and the bytes of a step in the target and in the source."""

    size: int
    dst: int
    src: int


@dataclass(frozen=True, slots=True)
class Box:
    """A part of both arrays: where it begins, and its axes, the last one the fastest."""

    dst: int
    src: int
    axes: tuple[Axis, ...]

    @property
    def count(self) -> int:
        """How many steps all axes together make."""
        return math.prod(axis.size for axis in self.axes)

    def part(self, number: int, start: int, size: int) -> Box:
        """Return the box of `size` steps from `start` on along axis `number`."""
        axis = self.axes[number]
        axes = (*self.axes[:number], axis._replace(size=size), *self.axes[number + 1 :])
        return Box(self.dst + start * axis.dst, self.src + start * axis.src, axes)


def merged(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Join neighbouring axes that lie together on both sides; axes of one step vanish."""
    found: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if found:
            outer = found[-1]
            if outer.dst == axis.size * axis.dst and outer.src == axis.size * axis.src:
                found[-1] = Axis(outer.size * axis.size, axis.dst, axis.src)
                continue
        found.append(axis)
    return tuple(found)


def boxes(box: Box, first: int, count: int) -> Iterator[Box]:
    """Yield the boxes that together are the items ``[first, first + count)`` in C order.

    At most two an axis: a partial row at either end, and whole rows between them.
    """
    if count == 0:
        return
    if count == box.count:
        yield box
        return
    outer = box.axes[0]
    if len(box.axes) == 1:
        yield box.part(0, first, count)
        return
    row = box.count // outer.size
    begin, head = divmod(first, row)
    end, tail = divmod(first + count, row)

    def within(index: int) -> Box:
        return Box(box.dst + index * outer.dst, box.src + index * outer.src, box.axes[1:])

    if begin == end:
        yield from boxes(within(begin), head, count)
        return
    if head:
        yield from boxes(within(begin), head, row - head)
        begin += 1
    if end > begin:
        yield box.part(0, begin, end - begin)
    if tail:
        yield from boxes(within(end), 0, tail)


def overlaps(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether two different items of such an array share a byte.

    Where that is hard to tell (it is NP-complete in general), the answer is yes.
    """
    if 0 in shape:
        return False
    axes = sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1)
    reach = itemsize
    for stride, size in axes:
        if stride < reach:
            break
        reach += (size - 1) * stride
    else:
        return False
    if axes[0][0] == 0:
        return True
    # Interleaved axes can still be free of overlap. Items that differ along an axis are, by
    # translation, the first item of that axis and one of the later ones.
    while axes:
        rest, (stride, size) = axes[:-1], axes[-1]
        try:
            if np.shares_memory(
                _phantom(0, [*rest, (stride, 1)], itemsize),
                _phantom(stride, [*rest, (stride, size - 1)], itemsize),
                max_work=10_000,  # type: ignore[arg-type]  # any number, says NumPy's manual
            ):
                return True
        except (RuntimeError, OverflowError):  # numpy's TooHardError is a RuntimeError
            return True
        axes = rest
    return False


def _phantom(offset: int, axes: list[tuple[int, int]], itemsize: int) -> np.ndarray[Any, Any]:
    """Make an array whose addresses are only ever compared."""

    class Memory:
        __array_interface__: ClassVar[dict[str, Any]] = {
            "version": 3,
            "typestr": f"|V{itemsize}",
            "shape": tuple(size for _, size in axes),
            "strides": tuple(stride for stride, _ in axes),
            "data": ((1 << 40) + offset, True),
        }

    return np.asarray(Memory())


def ordered(box: Box) -> Box:
    """Turn the axes forwards in the target, sort them by its strides, and merge them."""
    dst, src, axes = box.dst, box.src, []
    for axis in box.axes:
        if axis.dst < 0:
            dst += (axis.size - 1) * axis.dst
            src += (axis.size - 1) * axis.src
            axis = Axis(axis.size, -axis.dst, -axis.src)
        axes.append(axis)
    axes.sort(key=lambda axis: -axis.dst)
    return Box(dst, src, merged(tuple(axes)))


def alignment(*numbers: int, most: int = WIDEST) -> int:
    """Return the greatest power of two that divides all numbers, at most `most`."""
    bits = most
    for number in numbers:
        bits |= number
    return bits & -bits


def grouped(box: Box, dst_size: int, src_size: int) -> list[tuple[Box, int]]:
    """Let every thread move as many scalars as lie together, up to 16 bytes.

    Parameters
    ----------
    box : Box
        Ordered, with scalars as its items.
    dst_size, src_size : int
        Bytes of a scalar.

    Returns
    -------
    list of (Box, int)
        Boxes of groups, with the scalars in each group. More than one where an end of the inner
        axis is not aligned as its middle is.
    """
    if not box.axes or box.axes[-1][1:] != (dst_size, src_size):
        return [(box, 1)]
    last = len(box.axes) - 1
    inner = box.axes[last].size
    strides = [axis.dst for axis in box.axes[:last]]
    most = WIDEST // max(dst_size, src_size)
    if not strides:
        # One run: the target's alignment is reached after a few scalars.
        head = -box.dst % (most * dst_size)
        lead, rest = divmod(head, dst_size)
        if rest == 0 and lead > 0 and lead + 4 * most <= inner:
            return [
                (box.part(last, 0, lead), 1),
                *grouped(box.part(last, lead, inner - lead), dst_size, src_size),
            ]
    width = min(most, alignment(box.dst, *strides, most=most * dst_size) // dst_size)
    while width > 1 and inner < width:
        width //= 2
    if width <= 1:
        return [(box, 1)]
    if inner % width and inner < 8 * width:
        width = alignment(inner, most=width)
        if width == 1:
            return [(box, 1)]
    body = inner - inner % width
    grouped_axis = Axis(body // width, width * dst_size, width * src_size)
    found = [(Box(box.dst, box.src, merged((*box.axes[:last], grouped_axis))), width)]
    if body < inner:
        found.append((ordered(box.part(last, body, inner - body)), 1))
    return found


def tile_axes(box: Box) -> tuple[int, int] | None:
    """Return the axes (columns, rows) that a transposing copy of a box goes across, if it is one.

    Rows are the axis along which the target lies together, columns the one of the source.
    """
    if len(box.axes) < 2:
        return None
    rows = len(box.axes) - 1
    moving = [n for n, axis in enumerate(box.axes) if axis.src]
    if not moving:
        return None
    columns = min(moving, key=lambda n: abs(box.axes[n].src))
    if columns == rows or min(box.axes[columns].size, box.axes[rows].size) < LEAST_TILE:
        return None
    return columns, rows


def source_inner(box: Box) -> Box:
    """Make the source's short innermost axis the fastest one: its lines are then read once."""
    moving = [n for n, axis in enumerate(box.axes) if axis.src]
    if not moving:
        return box
    inner = min(moving, key=lambda n: abs(box.axes[n].src))
    if inner == len(box.axes) - 1 or box.axes[inner].size >= LEAST_TILE:
        return box
    axes = (*box.axes[:inner], *box.axes[inner + 1 :], box.axes[inner])
    return Box(box.dst, box.src, axes)


def split(box: Box) -> Iterator[Box]:
    """Yield boxes of at most `MOST_GROUPS` groups each."""
    if box.count <= MOST_GROUPS:
        yield box
        return
    outer = box.axes[0]
    rows = max(1, MOST_GROUPS // (box.count // outer.size))
    for start in range(0, outer.size, rows):
        part = box.part(0, start, min(rows, outer.size - start))
        if part.axes[0].size == 1:
            yield from split(Box(part.dst, part.src, part.axes[1:]))
        else:
            yield part
