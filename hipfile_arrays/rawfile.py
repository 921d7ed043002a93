"""`fromfile` and `tofile`: NumPy's arguments turned into a file range and an array.

Everything NumPy's functions define is kept; where NumPy is unclear or contradicts itself, decided
here: an offset past the end, a negative offset and a count below -1 are ``ValueError``; fewer items
than `count`, or a tail that fills no item, give NumPy's result and a `ShortReadWarning`.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from . import _native
from ._transfer import opening, source, targets
from ._transfer.array import DeviceArray, target_of
from ._transfer.buffers import RegisteredBuffer, parts_of
from ._transfer.convert import (
    Casting,
    Order,
    Request,
    place_of,
    read_items,
    write_array,
)
from ._transfer.libraries import transposed
from ._transfer.newarray import empty, finished
from ._transfer.records import Column, columns_of, nested
from ._transfer.run import Progress
from ._transfer.source import Source, name_of
from ._transfer.values import PathName
from .errors import ShortReadError, ShortReadWarning
from .file import File
from .textfile import read_text, write_text

__all__ = ["fromfile", "tofile"]


class _Default:
    """Stands for ``float``, the default dtype, so that an explicit dtype can be told from it."""

    def __repr__(self) -> str:
        return "float"


_FLOAT = _Default()


def _raw_dtype(dtype: Any, described: DeviceArray | None) -> np.dtype[Any]:
    """Return the dtype of the file's items: that of `out` where none was given."""
    if isinstance(dtype, _Default):
        default: np.dtype[Any] = np.dtype(float)
        return default if described is None else described.dtype
    found: np.dtype[Any] = np.dtype(dtype)
    if found.hasobject:
        raise ValueError(
            f"dtype {found} holds Python objects, and pointers cannot be read from a file"
        )
    if found.itemsize == 0:
        raise ValueError(f"dtype {found} has no bytes, so a file holds no number of such items")
    return found


@contextlib.contextmanager
def _source(file: Any, offset: int) -> Iterator[Source]:
    if isinstance(file, File):
        yield source.located(file.handle, file.name, offset)
    else:
        with source.opened(file, offset) as found:
            yield found


def _leave_position(file: Any, position: int) -> None:
    """Leave an open file after the items that were read, as NumPy does."""
    if not isinstance(file, File) and not opening.is_path(file):
        file.seek(position)


def fromfile(
    file: Any,
    dtype: DTypeLike | _Default = _FLOAT,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    *,
    like: Any = None,
    out: Any = None,
    shape: tuple[int, ...] | int | None = None,
    order: Order = "C",
    casting: Casting = "same_kind",
    strict: bool = False,
    stream: int | None = None,
    path: PathName | None = None,
    progress: Progress | None = None,
) -> Any:
    """Read a file into a device array.

    Parameters
    ----------
    file : str, bytes, path-like, file object or File
        A path; or an open file, which is read from, and left at, its current position; or a
        `File`, which has no position.
    dtype : data-type, optional
        Of the file's items, in the file's byte order; that of `out` by default, where `out` is
        given, else float64. A device array has native byte order, whatever the file has.
    count : int, optional
        Items to read; -1 means all.
    sep : str, optional
        Not empty: the file is text, which NumPy parses on the host before it is copied.
    offset : int, optional
        Bytes to skip: from the beginning of a path, from the current position of an open file.
        Only for binary files.
    like : array, module or type, optional
        The new array belongs to the library, and lies on the device, of `like`.
    out : array or RegisteredBuffer, optional
        Is filled, exactly, instead of making a new array. It may have any strides, and another
        dtype, as far as `casting` allows.
    shape : tuple of int, optional
        Of the new array, exactly, instead of ``count``.
    order : {"C", "F"}, optional
        In which the items of `shape`, or of `out`, lie in the file.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}, optional
        From the file's items to those of `out`, as of `numpy.copyto`.
    strict : bool, optional
        Raise instead of warning when the file is short.
    stream : int, optional
        Work queued on it comes first; by default the stream that the array's library is on.
    path : {"auto", "direct", "staged", "library"}, optional
        How the bytes travel; by default the settings' path.
    progress : callable, optional
        Called now and then with (bytes done, bytes in all).

    Returns
    -------
    array, or dict of arrays
        The new array, or `out`. For a structured dtype a dict of new arrays, one for each field
        (GPU arrays have no records); a field with fields is a dict again. ``datetime64`` and
        ``timedelta64`` are their int64.

    Raises
    ------
    ValueError
        For an offset that is negative or past the end, a count below -1, a dtype of objects or of
        no bytes; if not exactly one of `like` and `out` is given.
    ShortReadError
        If the file holds less than `out` or `shape` needs, or, with ``strict=True``, than `count`
        says or than fills whole items. Nothing was written by then.
    TypeError
        If `casting` does not allow the cast; for strings, raw bytes and extended precision.
    MemoryTypeError
        If `like` or `out` is not plain device memory.
    KernelsUnavailable
        If byte order, dtype or strides need a device kernel, and CuPy is missing.
    OSError
        The operating system's own, about the file.

    Warns
    -----
    ShortReadWarning
        If fewer items were read than `count` says, or bytes were left over.

    Notes
    -----
    The data is in device memory when this returns, for every stream.

    Examples
    --------
    >>> import cupy as cp, numpy as np, hipfile_arrays as hfa
    >>> np.arange(4, dtype="f4").tofile("/tmp/numbers.f4")
    >>> hfa.fromfile("/tmp/numbers.f4", "f4", like=cp)
    array([0., 1., 2., 3.], dtype=float32)
    """
    if (
        type(out) is RegisteredBuffer
        and type(file) is File
        and dtype is _FLOAT
        and count == -1
        and like is None
        and shape is None
        and order == "C"
        and not sep
    ):
        # The hot path of repeated transfers: nothing below has anything to decide.
        file.read(out, offset, stream=stream, path=path, progress=progress)
        return out
    if (like is None) == (out is None):
        raise ValueError("give like= (a new array is made in its library) or out=, and not both")
    if shape is not None and (out is not None or count != -1):
        raise ValueError("shape= says how many items there are; leave count= and out= away")
    if count < -1:
        raise ValueError(f"count must be -1 (all) or not negative, not {count}")
    _check_order(order)
    if sep:
        if out is not None or shape is not None:
            raise TypeError("text files (sep is not empty) give a new array: like=, and no shape=")
        return read_text(file, _raw_dtype(dtype, None), count, sep, offset, like)
    if out is not None:
        return _read_into(file, dtype, count, offset, out, order, casting, stream, path, progress)
    raw = _raw_dtype(dtype, None)
    return _read_new(file, raw, count, offset, like, shape, order, strict, stream, path, progress)


def _check_order(order: str) -> None:
    if order not in ("C", "F"):
        raise ValueError(f"order must be 'C' or 'F', not {order!r}")


def _new_arrays(
    like: Any, outer: tuple[int, ...], columns: tuple[Column, ...], order: Order
) -> list[Any]:
    """Make an array for every column; in Fortran order its memory is as the file's, too."""
    shape = outer[::-1] if order == "F" else outer
    arrays = [empty(like, (*shape, *column.shape), column.device_dtype) for column in columns]
    if order == "C" or len(outer) < 2:
        return arrays
    turned = tuple(reversed(range(len(outer))))
    return [
        transposed(array, (*turned, *range(len(outer), len(outer) + len(column.shape))))
        for array, column in zip(arrays, columns, strict=True)
    ]


def _read_new(
    file: Any,
    dtype: np.dtype[Any],
    count: int,
    offset: int,
    like: Any,
    shape: tuple[int, ...] | int | None,
    order: Order,
    strict: bool,
    stream: int | None,
    path: PathName | None,
    progress: Progress | None,
) -> Any:
    columns = columns_of(dtype)
    if shape is not None:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(n < 0 for n in shape):
            raise ValueError(f"shape must not be negative: {shape}")
        count = math.prod(shape)
    with _source(file, offset) as found:
        exact = strict or shape is not None
        items, warning = found.items(dtype.itemsize, count, exact=exact)
        arrays = _new_arrays(like, (items,) if shape is None else shape, columns, order)
        described = [target_of(array, stream=stream) for array in arrays]
        places = [
            place_of(column, array, order, "no")
            for column, array in zip(columns, described, strict=True)
        ]
        how = _how(described[0], None, described[0].stream, path, progress)
        missing = read_items(found, dtype.itemsize, items, places, how)
        if missing:
            nbytes = items * dtype.itemsize
            items = (nbytes - missing) // dtype.itemsize
            message = (
                f"{found.name} shrank while it was read: {items} whole items of {dtype.itemsize} "
                f"bytes were there"
            )
            if exact:
                raise ShortReadError(message, expected=nbytes, found=nbytes - missing)
            warning = ShortReadWarning(message)
            arrays = [array[:items] for array in arrays]
        _leave_position(file, found.start + items * dtype.itemsize)
    if warning is not None:
        warnings.warn(warning, stacklevel=3)
    return nested(columns, [finished(like, array) for array in arrays])


def _how(
    array: DeviceArray,
    registration: _native.Registration | None,
    stream: int,
    path: PathName | None,
    progress: Progress | None,
) -> Request:
    extent = array.extent
    return Request(extent.platform, extent.device, stream, path, progress, registration)


def _read_into(
    file: Any,
    dtype: Any,
    count: int,
    offset: int,
    out: Any,
    order: Order,
    casting: Casting,
    stream: int | None,
    path: PathName | None,
    progress: Progress | None,
) -> Any:
    described, registration, stream = parts_of(out, stream, target=True)
    raw = _raw_dtype(dtype, described)
    columns = columns_of(raw)
    if columns[0].names:
        raise TypeError(
            f"structured dtype {raw}: a GPU array has no records, so out= cannot hold them; "
            "like= gives a dict of arrays, one for each field"
        )
    (column,) = columns
    inner = len(column.shape)
    if described.shape[len(described.shape) - inner :] != column.shape:
        raise ValueError(f"items of {raw} do not fit out=, whose shape is {described.shape}")
    items = math.prod(described.shape[: len(described.shape) - inner])
    if count not in (-1, items):
        raise ValueError(f"count={count} does not fit out=, which has {items} items")
    place = place_of(column, described, order, casting)
    nbytes = items * raw.itemsize
    with _source(file, offset) as found:
        available = found.available
        if available is not None and available < nbytes:
            raise ShortReadError(
                f"out= needs {nbytes} bytes from offset {found.start} of {found.name}, which "
                f"has {available} there",
                expected=nbytes,
                found=available,
            )
        how = _how(described, registration, stream, path, progress)
        missing = read_items(found, raw.itemsize, items, [place], how)
        if missing:
            raise ShortReadError(
                f"{found.name} shrank while it was read: {nbytes - missing} of {nbytes} bytes "
                "were there",
                expected=nbytes,
                found=nbytes - missing,
            )
        _leave_position(file, found.start + nbytes)
    return out


def tofile(
    array: Any,
    file: Any,
    sep: str = "",
    format: str = "%s",
    *,
    offset: int | None = None,
    order: Order = "C",
    stream: int | None = None,
    path: PathName | None = None,
    atomic: bool = False,
    sync: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write a device array's items into a file.

    Parameters
    ----------
    array : array or RegisteredBuffer
        Device array of any strides.
    file : str, bytes, path-like, file object or File
        A path, which is created or replaced; or an open file, which is written at its current
        position and left after the data; or a `File`, which is written at `offset`.
    sep : str, optional
        Not empty: items are written as text by NumPy, on the host.
    format : str, optional
        Of text items.
    offset : int, optional
        Write into the existing file at this byte; nothing else of it changes.
    order : {"C", "F"}, optional
        Of the items in the file, whatever the array's strides.
    stream : int, optional
        Work queued on it comes first, so that finished values are written; by default the stream
        that the array's library is on.
    path : {"auto", "direct", "staged", "library"}, optional
        How the bytes travel; by default the settings' path.
    atomic : bool, optional
        Write a new file beside it, flush that to storage, and rename it over `file`: readers see
        the old file or the new one, whole, whatever happens.
    sync : bool, optional
        Flush to storage before returning.
    progress : callable, optional
        Called now and then with (bytes done, bytes in all).

    Raises
    ------
    ValueError
        For a negative offset, or ``atomic=True`` with an open file or an offset.
    MemoryTypeError
        If `array` is not plain device memory.
    KernelsUnavailable
        If its items do not lie in the file's order, and CuPy, whose kernels gather them, is
        missing.
    OSError
        The operating system's own, about the file.

    Examples
    --------
    >>> import cupy as cp, numpy as np, hipfile_arrays as hfa
    >>> hfa.tofile(cp.asarray(np.arange(4, dtype="f4")), "/tmp/numbers.f4")
    """
    _check_order(order)
    if offset is not None and offset < 0:
        raise ValueError(f"offset must not be negative: {offset} in {name_of(file)}")
    if atomic and (offset is not None or not opening.is_path(file)):
        raise ValueError("atomic=True replaces a whole file: give a path, and no offset")
    described, registration, stream = parts_of(array, stream, target=False)
    if sep:
        write_text(array, file, sep, format)
        return
    how = _how(described, registration, stream, path, progress)
    nbytes = described.extent.nbytes

    def write(native: _native.OpenFile, start: int) -> None:
        write_array(native, name_of(file), start, described, order, how)

    if isinstance(file, File):
        write(file.handle, offset or 0)
        if sync:
            os.fsync(file.fileno())
    elif not opening.is_path(file):
        targets.write_open_file(file, offset, nbytes, write, sync=sync)
    elif atomic:
        targets.write_atomically(file, write)
    else:
        targets.write_path(file, offset, nbytes, write, sync=sync)
