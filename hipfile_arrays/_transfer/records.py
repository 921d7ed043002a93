"""What one item of a file is made of: a number, a sub-array of numbers, or a record with fields.

GPU arrays have no byte order, no records and no strings. So an item of a file is taken apart into
*columns*: numbers that lie at the same place of every item. A plain dtype is one column that fills
the item; a structured dtype has one for every field, nested, aligned or swapped as it may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Column", "columns_of", "nested", "packed_strides"]


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers at the same place of every item.

    Attributes
    ----------
    names : tuple of str
        Of the field, the outermost first; empty for a plain item.
    dtype : numpy.dtype
        Of one number in the file, in the file's byte order.
    offset : int
        Bytes from the item's beginning.
    shape : tuple of int
        Of the sub-array in one item; empty for a single number.
    strides : tuple of int
        Bytes, of the sub-array.
    """

    names: tuple[str, ...]
    dtype: np.dtype[Any]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def device_dtype(self) -> np.dtype[Any]:
        """The dtype on a device: native byte order; times are their int64."""
        return np.dtype(np.int64) if self.dtype.kind in "mM" else self.dtype.newbyteorder("=")

    def fills(self, itemsize: int) -> bool:
        """Whether an item of `itemsize` bytes is these numbers, packed, and nothing else."""
        packed = packed_strides(self.shape, self.dtype.itemsize)
        return math.prod(self.shape) * self.dtype.itemsize == itemsize and self.strides == packed


def packed_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides, in bytes, of items that lie in C order without gaps."""
    strides = []
    step = itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _check_number(dtype: np.dtype[Any], where: str) -> None:
    if dtype.kind in "SU" or (dtype.kind == "V" and dtype.name.startswith("void")):
        raise TypeError(
            f"dtype {dtype}{where}: GPU arrays have no strings and no raw bytes; read uint8, or of "
            "a structured dtype only the fields that are numbers: dtype[['x', 'y']]"
        )
    if dtype == np.dtype(np.longdouble) or dtype == np.dtype(np.clongdouble):
        raise TypeError(f"dtype {dtype}{where}: no GPU computes in extended precision")


def _columns(
    dtype: np.dtype[Any],
    names: tuple[str, ...],
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> Iterator[Column]:
    base, inner = dtype.base, dtype.shape
    shape, strides = (*shape, *inner), (*strides, *packed_strides(inner, base.itemsize))
    if base.names is None:
        _check_number(base, f" of field {'.'.join(names)!r}" if names else "")
        yield Column(names, base, offset, shape, strides)
        return
    assert base.fields is not None
    for name in base.names:
        field, start = base.fields[name][:2]
        yield from _columns(field, (*names, name), offset + start, shape, strides)


def columns_of(dtype: np.dtype[Any]) -> tuple[Column, ...]:
    """Take a dtype apart.

    Parameters
    ----------
    dtype : numpy.dtype
        Of the file's items, plain or structured.

    Returns
    -------
    tuple of Column
        One for a plain dtype, with no name; else one for every field that has no fields itself.

    Raises
    ------
    TypeError
        For strings, raw bytes and extended precision: no GPU array can hold them; for a structured
        dtype without any field.
    """
    columns = tuple(_columns(dtype, (), 0, (), ()))
    if not columns:
        raise TypeError(f"dtype {dtype} has no fields, so there is nothing to read")
    return columns


def nested(columns: tuple[Column, ...], arrays: list[Any]) -> Any:
    """Put the columns' arrays where the fields are: a dict a record; the array itself if plain."""
    if not columns[0].names:
        return arrays[0]
    found: dict[str, Any] = {}
    for column, array in zip(columns, arrays, strict=True):
        record = found
        for name in column.names[:-1]:
            record = record.setdefault(name, {})
        record[column.names[-1]] = array
    return found
