"""`fromfile` and `tofile`: NumPy's arguments turned into a file range and an array.

Everything NumPy's functions define is kept; where NumPy is unclear or contradicts itself, decided
here: an offset past the end, a negative offset and a count below -1 are ``ValueError``; fewer items
than `count`, or a tail that fills no item, give NumPy's result and a `ShortReadWarning`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from . import _native
from ._transfer import opening, source, targets
from ._transfer.array import DeviceArray, describe, empty, target_of
from ._transfer.buffers import RegisteredBuffer, parts_of
from ._transfer.run import Progress, move
from ._transfer.source import Source, name_of
from ._transfer.values import FileRange, PathName
from .errors import ShortReadError, ShortReadWarning
from .file import File

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


def _check_plain(dtype: np.dtype[Any]) -> None:
    if dtype.names is not None:
        raise TypeError(
            f"structured dtype {dtype}: GPU arrays have no records. Read the bytes as uint8 and "
            "view each field."
        )
    if dtype.kind in "SU" or (dtype.kind == "V" and dtype.name.startswith("void")):
        raise TypeError(f"dtype {dtype}: GPU arrays have no strings and no raw bytes; read uint8")
    if dtype == np.dtype(np.longdouble) or dtype == np.dtype(np.clongdouble):
        raise TypeError(f"dtype {dtype}: no GPU computes in extended precision")


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
        Of the file's items; that of `out` by default, where `out` is given, else float64.
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
        Is filled, exactly, instead of making a new array.
    shape : tuple of int, optional
        Of the new array, exactly, instead of ``count``.
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
    array
        The new array, or `out`.

    Raises
    ------
    ValueError
        For an offset that is negative or past the end, a count below -1, a dtype of objects or of
        no bytes; if not exactly one of `like` and `out` is given.
    ShortReadError
        If the file holds less than `out` or `shape` needs, or, with ``strict=True``, than `count`
        says or than fills whole items. Nothing was written by then.
    MemoryTypeError
        If `like` or `out` is not plain device memory.
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
    if sep:
        return _from_text(file, dtype, count, sep, offset, like, out, shape)
    if out is not None:
        return _read_into(file, dtype, count, offset, out, stream, path, progress)
    return _read_new(file, dtype, count, offset, like, shape, strict, stream, path, progress)


def _read_new(
    file: Any,
    dtype: Any,
    count: int,
    offset: int,
    like: Any,
    shape: tuple[int, ...] | int | None,
    strict: bool,
    stream: int | None,
    path: PathName | None,
    progress: Progress | None,
) -> Any:
    raw = _raw_dtype(dtype, None)
    item, inner = raw.base, raw.shape
    _check_plain(item)
    if shape is not None:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(n < 0 for n in shape):
            raise ValueError(f"shape must not be negative: {shape}")
        count = int(np.prod(shape, dtype=np.int64))
    with _source(file, offset) as found:
        exact = strict or shape is not None
        items, warning = found.items(raw.itemsize, count, exact=exact)
        outer = shape if shape is not None else (items,)
        array = empty(like, (*outer, *inner), _device_dtype(item))
        described = target_of(array, stream=stream)
        nbytes = items * raw.itemsize
        missing = _fill(found, nbytes, described, path, progress)
        if missing:
            # The file shrank while it was read.
            items = (nbytes - missing) // raw.itemsize
            message = (
                f"{found.name} shrank while it was read: {items} whole items of {raw.itemsize} "
                f"bytes were there"
            )
            if exact:
                raise ShortReadError(message, expected=nbytes, found=nbytes - missing)
            warning = ShortReadWarning(message)
            array = array[:items]
        _leave_position(file, found.start + items * raw.itemsize)
    if warning is not None:
        warnings.warn(warning, stacklevel=3)
    return array


def _device_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the device array: native order; times are their integers."""
    if not dtype.isnative:
        raise TypeError(
            f"dtype {dtype} is not in this machine's byte order; read it as "
            f"{dtype.newbyteorder('=')} and swap the bytes on the device"
        )
    return np.dtype(np.int64) if dtype.kind in "mM" else dtype


def _read_into(
    file: Any,
    dtype: Any,
    count: int,
    offset: int,
    out: Any,
    stream: int | None,
    path: PathName | None,
    progress: Progress | None,
) -> Any:
    described, registration, stream = parts_of(out, stream, target=True)
    raw = _raw_dtype(dtype, described)
    _check_plain(raw.base)
    if not described.contiguous:
        raise ValueError(
            f"out= must be contiguous; this one has shape {described.shape} with strides "
            f"{described.strides}"
        )
    if _device_dtype(raw.base) != described.dtype:
        raise TypeError(f"the file's items are {raw.base}, those of out= are {described.dtype}")
    if count not in (-1, described.size):
        raise ValueError(f"count={count} does not fit out=, which has {described.size} items")
    nbytes = described.extent.nbytes
    with _source(file, offset) as found:
        available = found.available
        if available is not None and available < nbytes:
            raise ShortReadError(
                f"out= needs {nbytes} bytes from offset {found.start} of {found.name}, which "
                f"has {available} there",
                expected=nbytes,
                found=available,
            )
        missing = _fill(found, nbytes, described, path, progress, stream, registration)
        if missing:
            raise ShortReadError(
                f"{found.name} shrank while it was read: {nbytes - missing} of {nbytes} bytes "
                "were there",
                expected=nbytes,
                found=nbytes - missing,
            )
        _leave_position(file, found.start + nbytes)
    return out


def _fill(
    found: Source,
    nbytes: int,
    described: DeviceArray,
    path: PathName | None,
    progress: Progress | None,
    stream: int | None = None,
    registration: _native.Registration | None = None,
) -> int:
    """Read into contiguous device memory; return how many bytes the file did not have."""
    if not nbytes:
        return 0
    return move(
        found.file,
        found.name,
        FileRange(found.start, nbytes),
        described.extent.part(0, nbytes),
        described.stream if stream is None else stream,
        reads=True,
        wish=path,
        registration=registration,
        progress=progress,
    )


def _from_text(
    file: Any,
    dtype: Any,
    count: int,
    sep: str,
    offset: int,
    like: Any,
    out: Any,
    shape: tuple[int, ...] | int | None,
) -> Any:
    if offset:
        raise TypeError("'offset' argument only permitted for binary files")
    if isinstance(file, File) or out is not None or shape is not None:
        raise TypeError("text files (sep is not empty) are read from a path or open file, by like=")
    raw = np.dtype(float) if isinstance(dtype, _Default) else np.dtype(dtype)
    _check_plain(raw.base)
    host = np.fromfile(file, raw, count, sep)
    array = empty(like, host.shape, host.dtype)
    if host.nbytes:
        with tempfile.TemporaryFile() as staging:
            host.tofile(staging)
            staging.seek(0)
            fromfile(staging, host.dtype, out=array)
    return array


def tofile(
    array: Any,
    file: Any,
    sep: str = "",
    format: str = "%s",
    *,
    offset: int | None = None,
    order: Literal["C"] = "C",
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
        Device array.
    file : str, bytes, path-like, file object or File
        A path, which is created or replaced; or an open file, which is written at its current
        position and left after the data; or a `File`, which is written at `offset`.
    sep : str, optional
        Not empty: items are written as text by NumPy, on the host.
    format : str, optional
        Of text items.
    offset : int, optional
        Write into the existing file at this byte; nothing else of it changes.
    order : {"C"}, optional
        Of the items in the file.
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
    OSError
        The operating system's own, about the file.

    Examples
    --------
    >>> import cupy as cp, numpy as np, hipfile_arrays as hfa
    >>> hfa.tofile(cp.asarray(np.arange(4, dtype="f4")), "/tmp/numbers.f4")
    """
    if order != "C":
        raise ValueError(f"order must be 'C', not {order!r}")
    if offset is not None and offset < 0:
        raise ValueError(f"offset must not be negative: {offset} in {name_of(file)}")
    if atomic and (offset is not None or not opening.is_path(file)):
        raise ValueError("atomic=True replaces a whole file: give a path, and no offset")
    described, registration, stream = parts_of(array, stream, target=False)
    if sep:
        _to_text(array, file, sep, format)
        return
    if not described.contiguous:
        raise ValueError(
            f"the array must be contiguous; this one has shape {described.shape} with strides "
            f"{described.strides}"
        )
    extent = described.extent

    def write(native: _native.OpenFile, start: int) -> None:
        if extent.nbytes:
            move(
                native,
                name_of(file),
                FileRange(start, extent.nbytes),
                extent,
                stream,
                reads=False,
                wish=path,
                registration=registration,
                progress=progress,
            )

    if isinstance(file, File):
        write(file.handle, offset or 0)
        if sync:
            os.fsync(file.fileno())
    elif not opening.is_path(file):
        targets.write_open_file(file, offset, extent.nbytes, write, sync=sync)
    elif atomic:
        targets.write_atomically(file, write)
    else:
        targets.write_path(file, offset, extent.nbytes, write, sync=sync)


def _to_text(array: Any, file: Any, sep: str, format: str) -> None:
    if isinstance(file, File):
        raise TypeError("text (sep is not empty) is written to a path or an open file")
    source = array.array if isinstance(array, RegisteredBuffer) else array
    described = describe(source)
    with tempfile.TemporaryFile() as staging:
        tofile(source, staging)
        staging.seek(0)
        np.fromfile(staging, described.dtype).tofile(file, sep, format)
