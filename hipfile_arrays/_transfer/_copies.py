"""Which kernels a strided copy needs, of which dtypes, byte orders and alignments. Pure functions.

The geometry is `_strided`'s; `kernels` compiles and launches what `plan` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from . import _strided
from ._strided import Axis, Box

__all__ = ["Dtype", "Kernel", "Launch", "Strided", "check_cast", "plan", "same_bits"]

Dtype: TypeAlias = "np.dtype[Any]"

THREADS = 256
# How many axes the kernels are compiled for: fewer kernels than one for every number of axes.
AXES = (1, 2, 3, 4, 6, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Strided:
    """A strided array in device memory; dtypes have a byte order, strides are in bytes."""

    ptr: int
    dtype: Dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides) or any(size < 0 for size in self.shape):
            raise ValueError(f"not a strided array: {self}")


@dataclass(frozen=True, slots=True)
class Scalars:
    """What is done to each item: scalars of which C++ type and size become which, swapped where."""

    dst: str
    src: str
    dst_size: int
    src_size: int
    dst_swap: bool = False
    src_swap: bool = False
    # Scalars of one item.
    count: int = 1


@dataclass(frozen=True, slots=True)
class Kernel:
    """Which kernel: the template arguments of the functions in ``shim.hip``."""

    scalars: Scalars
    group: int
    dst_align: int
    src_align: int
    axes: int
    edge: int = 0
    words: bool = False

    @property
    def source(self) -> str:
        """The kernel that instantiates the template."""
        s = self.scalars
        arguments = (
            f"{s.dst}, {s.src}, {self.group}, {self.dst_align}, {self.src_align}, "
            f"{str(s.dst_swap).lower()}, {str(s.src_swap).lower()}, {self.axes}"
        )
        if not self.edge:
            return (
                f'extern "C" __global__ void __launch_bounds__({THREADS}) kernel(char* dst, '
                f"const char* src, Bits32 count, Axes<{self.axes}> axes) {{\n"
                f"    copy_groups<{arguments}>(dst, src, count, axes);\n}}\n"
            )
        function = f"copy_tiles<{arguments}, {self.edge}>"
        if self.words:
            function = f"copy_word_tiles<{s.dst}, {self.axes}>"
        return (
            f'extern "C" __global__ void __launch_bounds__({THREADS}) kernel(char* dst, '
            f"const char* src, Bits32 count, Axes<{self.axes}> axes, TileAxis columns, "
            f"TileAxis rows) {{\n"
            f"    {function}(dst, src, count, axes, columns, rows);\n}}\n"
        )


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch of a plan."""

    kernel: Kernel
    dst: int
    src: int
    axes: tuple[Axis, ...]
    columns: Axis | None = None
    rows: Axis | None = None

    @property
    def count(self) -> int:
        """Groups or tiles."""
        return Box(0, 0, self.axes).count


_NAMES = {
    "b1": "Bool",
    "i1": "signed char",
    "i2": "short",
    "i4": "int",
    "i8": "long long",
    "u1": "Bits8",
    "u2": "Bits16",
    "u4": "Bits32",
    "u8": "Bits64",
    "f2": "Half",
    "f4": "Float",
    "f8": "Double",
    "c8": "Complex<Float>",
    "c16": "Complex<Double>",
}


def _swapped(dtype: Dtype) -> bool:
    return dtype.byteorder == (">" if np.little_endian else "<")


def _unit(dtype: Dtype) -> int:
    """Return the bytes that a byte order turns: an item, a complex's half, a character."""
    if dtype.kind == "c":
        return dtype.itemsize // 2
    return 4 if dtype.kind == "U" else dtype.itemsize


def _key(dtype: Dtype) -> str:
    return "bfloat16" if dtype.name == "bfloat16" else f"{dtype.kind}{dtype.itemsize}"


def _same_bits(a: Dtype, b: Dtype) -> bool:
    """Whether a cast between the two, in native byte order, changes no bit."""
    if a.newbyteorder("=") == b.newbyteorder("="):
        return True
    integers = "iu"
    return a.itemsize == b.itemsize and (
        (a.kind in integers and b.kind in integers)
        or (a.kind == "i" and b.kind in "mM")
        or (a.kind in "mM" and b.kind == "i")
    )


def same_bits(dst: Dtype, src: Dtype) -> bool:
    """Whether an item of `src` is the same bytes as `dst`: nothing to swap, nothing to cast."""
    return _same_bits(dst, src) and (_swapped(dst) == _swapped(src) or _unit(dst) == 1)


def check_cast(dst: Dtype, src: Dtype) -> None:
    """Raise `TypeError` if the kernels have no cast between the dtypes."""
    _scalars(dst, src)


@lru_cache(maxsize=1024)
def _scalars(dst: Dtype, src: Dtype) -> Scalars:
    if _same_bits(dst, src):
        if dst.fields is not None or _swapped(dst) == _swapped(src) or _unit(dst) == 1:
            return Scalars("Bits8", "Bits8", 1, 1, count=dst.itemsize)
        unit = _unit(dst)
        if unit in (2, 4, 8, 16):
            name = f"Bits{8 * unit}"
            return Scalars(name, name, unit, unit, src_swap=True, count=dst.itemsize // unit)
    names = {**_NAMES, "bfloat16": "BFloat"}
    if _key(dst) not in names or _key(src) not in names:
        raise TypeError(f"the device kernels have no cast from {src} to {dst}")
    return Scalars(
        names[_key(dst)],
        names[_key(src)],
        dst.itemsize,
        src.itemsize,
        _swapped(dst),
        _swapped(src),
    )


def plan(dst: Strided, src: Strided, first: int = 0, count: int | None = None) -> list[Launch]:
    """Say which kernels copy items ``[first, first + count)`` of `src` to `dst`; pure.

    Parameters
    ----------
    dst, src : Strided
        Of one shape.
    first, count : int, optional
        The items, in C order of the shape; by default all.

    Returns
    -------
    list of Launch
        In any order.

    Raises
    ------
    ValueError
        If the shapes differ, items of `dst` overlap, or the items are not within the shape.
    TypeError
        If there is no cast between the dtypes.
    """
    if dst.shape != src.shape:
        raise ValueError(f"shapes differ: {dst.shape} and {src.shape}")
    items = int(np.prod(dst.shape, dtype=object)) if dst.shape else 1
    count = items - first if count is None else count
    if first < 0 or count < 0 or first + count > items:
        raise ValueError(f"items {first} to {first + count} are not within {items}")
    scalars = _scalars(dst.dtype, src.dtype)
    if not count or not dst.dtype.itemsize:
        return []
    if _strided.overlaps(dst.shape, dst.strides, dst.dtype.itemsize):
        raise ValueError(
            f"items of the target overlap (shape {dst.shape}, strides {dst.strides}, "
            f"items of {dst.dtype.itemsize} bytes): what it would hold is not defined"
        )
    axes = _strided.merged(tuple(map(Axis, dst.shape, dst.strides, src.strides)))
    whole = Box(dst.ptr, src.ptr, axes)
    return [
        launch for box in _strided.boxes(whole, first, count) for launch in _launches(box, scalars)
    ]


def _launches(items: Box, scalars: Scalars) -> Iterator[Launch]:
    if scalars.count > 1:
        inner = Axis(scalars.count, scalars.dst_size, scalars.src_size)
        items = Box(items.dst, items.src, (*items.axes, inner))
    box = _strided.ordered(items)
    if scalars.dst == scalars.src == "Bits8" and not scalars.src_swap:
        box, scalars = _widened(box)
    for groups, width in _strided.grouped(box, scalars.dst_size, scalars.src_size):
        for part in _strided.split(groups):
            yield _launch(part, scalars, width)


def _widened(box: Box) -> tuple[Box, Scalars]:
    """Move bytes as the widest words, up to 8, that all addresses and the inner run allow.

    A group of 16 bytes is two words of 8: one scalar type fewer to compile for.
    """
    last = box.axes[-1] if box.axes else Axis(1, 1, 1)
    word = 1
    if last.dst == last.src == 1:
        strides = [stride for axis in box.axes[:-1] for stride in axis[1:]]
        word = _strided.alignment(box.dst, box.src, last.size, *strides, most=8)
    scalars = Scalars(f"Bits{8 * word}", f"Bits{8 * word}", word, word)
    if word > 1:
        axes = (*box.axes[:-1], Axis(last.size // word, word, word))
        box = Box(box.dst, box.src, _strided.merged(axes))
    return box, scalars


def _launch(box: Box, scalars: Scalars, width: int) -> Launch:
    dst_bytes, src_bytes = width * scalars.dst_size, width * scalars.src_size
    dst_align = _strided.alignment(
        box.dst, *(a.dst for a in box.axes), most=min(16, dst_bytes & -dst_bytes)
    )
    src_align = _strided.alignment(
        box.src, *(a.src for a in box.axes), most=min(16, src_bytes & -src_bytes)
    )
    across = _strided.tile_axes(box)
    if across is None:
        box = _strided.source_inner(box)
        axes = _filled(box.axes)
        kernel = Kernel(scalars, width, dst_align, src_align, len(axes))
        return Launch(kernel, box.dst, box.src, axes)
    # Enough to fill a line of memory on both sides, within 17 KiB of shared memory.
    edge = {1: 128, 2: 64, 4: 64}.get(max(dst_bytes, src_bytes), 32)
    columns, rows = (box.axes[number] for number in across)
    others = [axis for number, axis in enumerate(box.axes) if number not in across]
    tiles = [
        Axis(-(-axis.size // edge), edge * axis.dst, edge * axis.src) for axis in (columns, rows)
    ]
    axes = _filled((*others, *tiles))
    words = width == 1 and _turns_words(box, scalars, across)
    kernel = Kernel(scalars, width, dst_align, src_align, len(axes), edge, words)
    return Launch(kernel, box.dst, box.src, axes, columns, rows)


def _turns_words(box: Box, scalars: Scalars, across: tuple[int, int]) -> bool:
    """Whether a transposing copy of items of 1 or 2 bytes can go by words of 4 on both sides."""
    size = scalars.dst_size
    if scalars.dst != scalars.src or scalars.src_swap or scalars.dst_swap or size not in (1, 2):
        return False
    columns, rows = across
    if not box.axes[columns].src == box.axes[rows].dst == size:
        return False
    dst = [axis.dst for number, axis in enumerate(box.axes) if number != rows]
    src = [axis.src for number, axis in enumerate(box.axes) if number != columns]
    return _strided.alignment(box.dst, box.src, *dst, *src, most=4) == 4


def _filled(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Put axes of one step in front, up to a number that kernels are compiled for."""
    number = next(n for n in AXES if n >= len(axes))
    return (*[Axis(1, 0, 0)] * (number - len(axes)), *axes)
