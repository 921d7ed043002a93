"""`open` and `File`: a file kept open for many transfers at explicit offsets.

`File.read` and `File.write` are the hot path: on a `RegisteredBuffer` a small transfer is one call
into the native module.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import config
from ._transfer import exact, many, opening
from ._transfer.asynchronous import Transfer, begin
from ._transfer.buffers import parts_of, resolve
from ._transfer.convert import Casting, Order, Request, read_slab
from ._transfer.plan import obvious_route
from ._transfer.run import Progress, move, move_one
from ._transfer.source import Source
from ._transfer.values import FileRange, PathName
from .openedfile import OpenedFile

__all__ = ["File", "open"]


class File(OpenedFile):
    """A file opened for transfers; made by `open`. A context manager.

    Offsets are absolute, in bytes; there is no position. All methods may be called from many
    threads at once.

    Attributes
    ----------
    name : str
        The path, as text.
    """

    __slots__ = ()

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
        exact.check_offset(self.name, offset)
        if not nbytes:
            self._check_open()
            return 0
        wish = path or config.get().path
        if registration is None and not described.contiguous:
            how = Request(extent.platform, extent.device, stream, wish, progress)
            return exact.move_strided(self.handle, self.name, offset, described, reads, how)
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
            return nbytes if not missing else exact.raise_short(self.name, offset, nbytes, missing)
        if reads:
            exact.check_holds(self.handle, self.name, offset, nbytes)
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
        return nbytes if not missing else exact.raise_short(self.name, offset, nbytes, missing)

    def read_async(
        self,
        out: Any,
        offset: int = 0,
        *,
        stream: int | None = None,
        path: PathName | None = None,
    ) -> Transfer:
        """Fill a device array from the file, in its place in a stream; return at once.

        Parameters
        ----------
        out : array or RegisteredBuffer
            A device array of any strides; of gaps between its items a copy of its size is made in
            temporary device memory.
        offset : int, optional
            Of the first byte in the file.
        stream : int, optional
            What was queued on it comes first, and what is queued on it later finds the bytes there;
            by default the stream that the array's library is on.
        path : {"auto", "staged"}, optional
            By default the settings' path; the bytes are staged in any case.

        Returns
        -------
        Transfer
            To wait for: ``result()``, or ``await``. Until then `out` and the file are kept.

        Raises
        ------
        ShortReadError
            If the file holds less than `out` from `offset` on. Nothing was queued.
        MemoryTypeError
            If `out` is not plain device memory.
        DirectPathUnavailable
            If another path was asked for.
        StateError
            If the stream is being captured into a graph.

        Notes
        -----
        If it fails or is cancelled, later work on the stream finds anything in `out`. A stream
        holds a thousand operations or so: some gigabytes return when most of them are there.

        Examples
        --------
        >>> import cupy as cp, numpy as np, hipfile_arrays as hfa
        >>> np.arange(4, dtype="f4").tofile("/tmp/numbers.f4")
        >>> x = cp.empty(4, "f4")
        >>> with hfa.open("/tmp/numbers.f4") as file:
        ...     transfer = file.read_async(x)
        ...     y = x + 1  # queued behind it
        ...     transfer.result()
        16
        >>> y
        array([1., 2., 3., 4.], dtype=float32)
        """
        return self._begin(out, offset, True, stream, path)

    def write_async(
        self,
        array: Any,
        offset: int = 0,
        *,
        stream: int | None = None,
        path: PathName | None = None,
    ) -> Transfer:
        """Write a device array's bytes into the file, in its place in a stream; return at once.

        Parameters
        ----------
        array : array or RegisteredBuffer
            A device array of any strides.
        offset : int, optional
            Of the first byte in the file.
        stream : int, optional
            What was queued on it comes first; what is queued on it later may change the array. By
            default the stream that the array's library is on.
        path : {"auto", "staged"}, optional
            By default the settings' path; the bytes are staged in any case.

        Returns
        -------
        Transfer
            To wait for: the file holds the bytes once it has ended.

        Raises
        ------
        MemoryTypeError, DirectPathUnavailable, StateError
            As `read_async`.
        """
        return self._begin(array, offset, False, stream, path)

    def _begin(
        self, array: Any, offset: int, reads: bool, stream: int | None, path: PathName | None
    ) -> Transfer:
        described, registration, stream = parts_of(array, stream, target=reads)
        extent = described.extent
        exact.check_offset(self.name, offset)
        if reads:
            exact.check_holds(self.handle, self.name, offset, extent.nbytes)
        how = Request(extent.platform, extent.device, stream, path, None, registration)
        return begin(self.handle, self.name, offset, described, how, reads=reads)

    def read_many(
        self,
        outs: Any,
        offsets: npt.ArrayLike,
        *,
        stream: int | None = None,
        path: PathName | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Fill many device arrays from the file, in one transfer.

        Parameters
        ----------
        outs : array, or list or tuple of arrays
            One device array, whose rows along the first axis are filled; or device arrays and
            registered buffers of any sizes. Rows and arrays must be contiguous, and share no
            memory.
        offsets : array-like of int, shape (n,)
            Of the first byte of each in the file.
        stream : int, optional
            Work queued on it comes first; by default the streams that the arrays' libraries are on.
        path : {"auto", "direct", "staged", "library"}, optional
            By default the settings' path; one decision for all.
        progress : callable, optional
            Called now and then with (bytes done, bytes in all).

        Returns
        -------
        int
            Bytes read: all of them.

        Raises
        ------
        ShortReadError
            If the file does not hold all ranges. Nothing was written, unless it shrank meanwhile.
        ValueError
            If there is not one offset for each, one is negative, an array is not contiguous, or two
            share memory.
        MemoryTypeError
            If an array is not plain device memory.

        Notes
        -----
        The data is in device memory when this returns, for every stream. Rows of one array are
        much cheaper than as many arrays, each of which is imported and checked.

        Examples
        --------
        >>> import cupy as cp, numpy as np, hipfile_arrays as hfa
        >>> np.arange(100, dtype="i4").tofile("/tmp/numbers.i4")
        >>> rows = cp.empty((3, 2), "i4")
        >>> with hfa.open("/tmp/numbers.i4") as file:
        ...     file.read_many(rows, [40, 0, 200])
        24
        >>> rows
        array([[10, 11],
               [ 0,  1],
               [50, 51]], dtype=int32)
        """
        return self._move_many(outs, offsets, True, stream, path, progress)

    def write_many(
        self,
        arrays: Any,
        offsets: npt.ArrayLike,
        *,
        stream: int | None = None,
        path: PathName | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Write many device arrays into the file, in one transfer.

        Parameters
        ----------
        arrays, offsets, stream, path, progress
            As of `read_many`.

        Returns
        -------
        int
            Bytes written: all of them.

        Raises
        ------
        ValueError, MemoryTypeError
            As `read_many`, and if two would be written to the same bytes of the file.
        """
        return self._move_many(arrays, offsets, False, stream, path, progress)

    def _move_many(
        self,
        arrays: Any,
        offsets: npt.ArrayLike,
        reads: bool,
        stream: int | None,
        path: PathName | None,
        progress: Progress | None,
    ) -> int:
        return many.move_all(
            self.handle,
            self.name,
            arrays,
            offsets,
            reads=reads,
            stream=stream,
            wish=path,
            progress=progress,
        )

    def read_slab(
        self,
        out: Any,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
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
        extent = described.extent
        exact.check_offset(self.name, offset)
        selection, place = exact.part_of(
            described, tuple(shape), np.dtype(dtype), index, order, casting
        )
        found = Source(self.handle, self.name, offset, self._native.size())
        if extent.nbytes:
            how = Request(extent.platform, extent.device, stream, path, progress, registration)
            read_slab(found, selection, place, how)


def open(file: opening.PathLike, mode: opening.Mode = "r") -> File:
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
    flags = opening.flags_of(mode)
    return File(opening.open_path(file, flags), opening.display_name(file))
