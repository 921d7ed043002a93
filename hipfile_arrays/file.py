"""`open` and `File`: a file kept open for many transfers at explicit offsets.

`File.read` and `File.write` are the hot path: on a `RegisteredBuffer` a small transfer is one call
into the native module.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Literal, TypeAlias

from . import _native, config
from ._transfer import opening
from ._transfer.array import DeviceArray
from ._transfer.buffers import parts_of, resolve
from ._transfer.fileinfo import FileInfo, inspect
from ._transfer.plan import obvious_route
from ._transfer.run import Progress, move, move_one
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
            A contiguous device array, of any dtype: bytes are read as they are.
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
            A contiguous device array.
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
        if registration is None:
            _check_contiguous(described, reads)
        extent = described.extent
        nbytes = extent.nbytes
        if offset < 0:
            raise ValueError(f"offset must not be negative: {offset} in {self.name}")
        if not nbytes:
            self._check_open()
            return 0
        wish = path or config.get().path
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


def _check_contiguous(described: DeviceArray, reads: bool) -> None:
    if not described.contiguous:
        call = "fromfile(out=...)" if reads else "tofile"
        raise ValueError(
            f"a contiguous array is needed here, this one has shape {described.shape} with "
            f"strides {described.strides}; {call} takes strided arrays"
        )


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
