"""All of an array or a `ShortReadError`: what a `File` promises, beside the hot path itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _native
from ..errors import ShortReadError
from . import slab
from .array import DeviceArray
from .convert import Casting, Order, Place, Request, place_of, read_items, write_array
from .records import columns_of
from .source import Source

__all__ = ["check_holds", "check_offset", "move_strided", "part_of", "raise_short"]


def check_offset(name: str, offset: int) -> None:
    """Raise `ValueError` for a negative offset in a file."""
    if offset < 0:
        raise ValueError(f"offset must not be negative: {offset} in {name}")


def check_holds(file: _native.OpenFile, name: str, offset: int, nbytes: int) -> None:
    """Raise `ShortReadError` if a regular file has less than `nbytes` from `offset` on."""
    size = file.size()
    if size is not None and offset + nbytes > size:
        raise_short(name, offset, nbytes, min(nbytes, offset + nbytes - size))


def raise_short(name: str, offset: int, nbytes: int, missing: int) -> int:
    """Raise `ShortReadError` for a range of which `missing` bytes are not there."""
    raise ShortReadError(
        f"{nbytes} bytes were asked for from offset {offset} of {name}, which has only "
        f"{nbytes - missing} there",
        expected=nbytes,
        found=nbytes - missing,
    )


def move_strided(
    file: _native.OpenFile, name: str, offset: int, array: DeviceArray, reads: bool, how: Request
) -> int:
    """Move all items of an array of any strides, in C order; return their bytes."""
    nbytes = array.extent.nbytes
    if not reads:
        write_array(file, name, offset, array, "C", how)
        return nbytes
    (column,) = columns_of(array.dtype)
    place = place_of(column, array, "C", "no")
    check_holds(file, name, offset, nbytes)
    found = Source(file, name, offset, file.size())
    missing = read_items(found, array.dtype.itemsize, array.size, [place], how)
    return nbytes if not missing else raise_short(name, offset, nbytes, missing)


def part_of(
    array: DeviceArray,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    index: Any,
    order: Order,
    casting: Casting,
) -> tuple[slab.Selection, Place]:
    """Say what an index selects of an array in a file, and where in `array` it belongs.

    Raises
    ------
    IndexError, TypeError, ValueError, KernelsUnavailable
        As `File.read_slab`.
    """
    (column,) = columns_of(dtype)
    if column.names or column.shape or not column.dtype.itemsize:
        raise TypeError(f"a slab's items are numbers, not {dtype}")
    selection = slab.select(shape, column.dtype.itemsize, index, order)
    if selection.shape != array.shape:
        raise ValueError(
            f"the index gives shape {selection.shape} of {shape}, and the array has "
            f"shape {array.shape}"
        )
    return selection, place_of(column, array, "C", casting)
