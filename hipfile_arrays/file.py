"""`open` and `File`: a file kept open for many transfers at explicit offsets.

`File.read` and `File.write` are the hot path: on a `RegisteredBuffer` a small transfer is one call
into the native module.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from . import _native, config
from ._transfer import opening, slab
from ._transfer.array import DeviceArray
from ._transfer.buffers import parts_of, resolve
from ._transfer.convert import (
    Casting,
    Order,
    Transfer,
    place_of,
    read_items,
    read_slab,
    write_array,
)
from ._transfer.fileinfo import FileInfo, inspect
from ._transfer.plan import obvious_route
from ._transfer.records import columns_of
from ._transfer.run import Progress, move, move_one
from ._transfer.source import Source
from ._transfer.values import FileRange, PathName
from .errors import ShortReadError, StateError

__all__ = ["File", "open"]

Mode: TypeAlias = Literal["r", "r+", "w", "w+", "x", "x+"]

_FLAGS: dict[str, int] = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "x": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


class File:
    """A file opened for transfers; made by `open`. A context manager.

    Offsets are absolute, in bytes; there is no position. All methods may be called from many
    threads at once.

    Attributes
    ----------
    name : str
        The path, as text.
    """

    __slots__ = ("__weakref__", "_native", "name")

    def __init__(self, native: _native.OpenFile, name: str) -> None:
        self._native = native
        self.name = name

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._native.closed

    @property
    def size(self) -> int:
        """Its length in bytes, as of now."""
        return self.info().size

    def info(self) -> FileInfo:
        """Ask the kernel about the file: kind, size, file system, O_DIRECT alignment."""
        self._check_open()
        return inspect(self._native)

    def fileno(self) -> int:
        """Return the descriptor, which stays this object's."""
        self._check_open()
        return self._native.fd

    @property
    def handle(self) -> _native.OpenFile:
        """The native file; raise `StateError` once closed."""
        self._check_open()
        return self._native

    def read(
        self,
        out: Any,
        offset: int = 0,
        *,
        stream: int | None = None,
        path: PathName | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Fill a device array from the file.

        Parameters
        ----------
        out : array or RegisteredBuffer
            A device array of any strides and dtype; the file holds its items in C order.
        offset : int, optional
            Of the first byte in the file.
        stream : int, optional
            Work queued on it comes first; by default the stream that the array's library is on.
        path : {"auto", "direct", "staged", "library"}, optional
            By default the settings' path.
        progress : callable, optional
            Called now and then with (bytes done, bytes in all).

        Returns
        -------
        int
            Bytes read: all of `out`.

        Raises
        ------
        ShortReadError
            If the file holds less than `out` from `offset` on. Nothing was written into `out`,
            unless the file shrank meanwhile.
        MemoryTypeError
            If `out` is not plain device memory.

        Notes
        -----
        The data is in device memory when this returns, for every stream.
        """
        return self._transfer(out, offset, True, stream, path, progress)

    def write(
        self,
        array: Any,
        offset: int = 0,
        *,
        stream: int | None = None,
        path: PathName | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Write a device array's bytes into the file; it grows where needed, is never cut.

        Parameters
        ----------
        array : array or RegisteredBuffer
            A device array of any strides; its items are written in C order.
        offset : int, optional
            Of the first byte in the file.
        stream : int, optional
            Work queued on it comes first, so that finished values are written; by default the
            stream that the array's library is on.
        path : {"auto", "direct", "staged", "library"}, optional
            By default the settings' path.
        progress : callable, optional
            Called now and then with (bytes done, bytes in all).

        Returns
        -------
        int
            Bytes written: all of `array`.

        Raises
        ------
        MemoryTypeError
            If `array` is not plain device memory.
        """
        return self._transfer(array, offset, False, stream, path, progress)

    def _transfer(
        self,
        array: Any,
        offset: int,
        reads: bool,
        stream: int | None,
        path: PathName | None,
        progress: Progress | None,
    ) -> int:
        described, registration, stream = parts_of(array, stream, target=reads)
        extent = described.extent
        nbytes = extent.nbytes
        if offset < 0:
            raise ValueError(f"offset must not be negative: {offset} in {self.name}")
        if not nbytes:
            self._check_open()
            return 0
        wish = path or config.get().path
        if registration is None and not described.contiguous:
            how = Transfer(extent.platform, extent.device, stream, wish, progress)
            return self._transfer_strided(described, offset, reads, how)
        route = obvious_route(wish, nbytes)
        if route is not None and progress is None:
            if registration is None:
                registration = resolve(extent)
            missing = move_one(
                self._native,
                self.name,
                offset,
                extent,
                stream,
                registration,
                route,
                reads,
                True,
            )
            return nbytes if not missing else self._raise_short(offset, nbytes, missing)
        if reads:
            self._check_holds(offset, nbytes)
        missing = move(
            self.handle,
            self.name,
            FileRange(offset, nbytes),
            extent,
            stream,
            reads=reads,
            wish=wish,
            registration=registration,
            progress=progress,
        )
        return nbytes if not missing else self._raise_short(offset, nbytes, missing)

    def _transfer_strided(self, array: DeviceArray, offset: int, reads: bool, how: Transfer) -> int:
        nbytes = array.extent.nbytes
        if not reads:
            write_array(self.handle, self.name, offset, array, "C", how)
            return nbytes
        (column,) = columns_of(array.dtype)
        place = place_of(column, array, "C", "no")
        found = Source(self.handle, self.name, offset, self._native.size())
        self._check_holds(offset, nbytes)
        missing = read_items(found, array.dtype.itemsize, array.size, [place], how)
        return nbytes if not missing else self._raise_short(offset, nbytes, missing)

    def read_slab(
        self,
        out: Any,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        index: Any,
        *,
        offset: int = 0,
        order: Order = "C",
        casting: Casting = "same_kind",
        stream: int | None = None,
        path: PathName | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fill a device array with a part of an array in the file: ``out[...] = array[index]``.

        Only the part is read: neighbouring items together, gaps of more than a page skipped.

        Parameters
        ----------
        out : array or RegisteredBuffer
            A device array of the shape that the index gives; of any strides, and of another dtype
            as far as `casting` allows.
        shape : tuple of int
            Items of the array in the file.
        dtype : data-type
            Of its items, in the file's byte order.
        index : int, slice, Ellipsis, None, or a tuple of these
            As NumPy's basic indexing; slices may have any step.
        offset : int, optional
            Of the array's first item in the file, bytes.
        order : {"C", "F"}, optional
            Of the items in the file.
        casting : {"no", "equiv", "safe", "same_kind", "unsafe"}, optional
            From the file's items to those of `out`, as of `numpy.copyto`.
        stream : int, optional
            Work queued on it comes first; by default the stream that the array's library is on.
        path : {"auto", "direct", "staged", "library"}, optional
            By default the settings' path.
        progress : callable, optional
            Called now and then with (bytes done, bytes in all); gaps that are read count.

        Raises
        ------
        IndexError
            As NumPy, for an index that does not fit `shape`.
        ValueError
            If the part's shape is not that of `out`.
        TypeError
            If the index is not a basic one, the cast is not allowed, or GPUs have no such dtype.
        ShortReadError
            If the file ends before the last item of the part. Nothing was written into `out`,
            unless the file shrank meanwhile.
        MemoryTypeError
            If `out` is not plain device memory.
        KernelsUnavailable
            If byte order, dtype or strides need a device kernel, and CuPy is missing.

        Notes
        -----
        The data is in device memory when this returns, for every stream.

        Examples
        --------
        >>> import cupy as cp, numpy as np, hipfile_arrays as hfa
        >>> np.arange(12, dtype=">i4").reshape(3, 4).tofile("/tmp/matrix.i4")
        >>> column = cp.empty(3, "i4")
        >>> with hfa.open("/tmp/matrix.i4") as file:
        ...     file.read_slab(column, (3, 4), ">i4", np.s_[:, 1])
        >>> column
        array([1, 5, 9], dtype=int32)
        """
        described, registration, stream = parts_of(out, stream, target=True)
        (column,) = columns_of(np.dtype(dtype))
        if column.names or column.shape or not column.dtype.itemsize:
            raise TypeError(f"a slab's items are numbers, not {np.dtype(dtype)}")
        if offset < 0:
            raise ValueError(f"offset must not be negative: {offset} in {self.name}")
        selection = slab.select(tuple(shape), column.dtype.itemsize, index, order)
        if selection.shape != described.shape:
            raise ValueError(
                f"the index gives shape {selection.shape} of {tuple(shape)}, and the array has "
                f"shape {described.shape}"
            )
        place = place_of(column, described, "C", casting)
        found = Source(self.handle, self.name, offset, self._native.size())
        if not described.extent.nbytes:
            return
        extent = described.extent
        how = Transfer(extent.platform, extent.device, stream, path, progress, registration)
        read_slab(found, selection, place, how)

    def _check_holds(self, offset: int, nbytes: int) -> None:
        size = self._native.size()
        if size is not None and offset + nbytes > size:
            self._raise_short(offset, nbytes, min(nbytes, offset + nbytes - size))

    def _raise_short(self, offset: int, nbytes: int, missing: int) -> int:
        raise ShortReadError(
            f"{nbytes} bytes were asked for from offset {offset} of {self.name}, which has only "
            f"{nbytes - missing} there",
            expected=nbytes,
            found=nbytes - missing,
        )

    def _check_open(self) -> None:
        if self._native.closed:
            raise StateError(f"{self.name} is closed")

    def close(self) -> None:
        """Close the file, after waiting for transfers under way. Harmless when repeated."""
        self._native.close()

    def __enter__(self) -> File:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hipfile_arrays.File {self.name}{', closed' if self.closed else ''}>"


def open(file: opening.PathLike, mode: Mode = "r") -> File:
    """Open a file for transfers at explicit offsets.

    Parameters
    ----------
    file : str, bytes or path-like
        Its path.
    mode : {"r", "r+", "w", "w+", "x", "x+"}, optional
        As of the built-in `open`, always binary: read; read and write an existing file; create or
        truncate; create, failing if it exists. A ``"b"`` in it is allowed.

    Returns
    -------
    File
        A context manager.

    Raises
    ------
    OSError
        The operating system's own: ``FileNotFoundError``, ``IsADirectoryError`` and so on.

    Examples
    --------
    >>> import cupy, hipfile_arrays as hfa
    >>> x = cupy.empty(256, "u1")
    >>> with hfa.open("/tmp/data.bin", "w") as file:  # doctest: +SKIP
    ...     file.write(x, offset=4096)
    256
    """
    flags = _FLAGS.get(mode.replace("b", ""))
    if flags is None:
        raise ValueError(f"mode must be one of {sorted(_FLAGS)}, not {mode!r}")
    return File(opening.open_path(file, flags), opening.display_name(file))
