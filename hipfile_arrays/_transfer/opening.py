"""From what a user passes as ``file`` to an open descriptor.

Errors are the operating system's own: a missing file is a ``FileNotFoundError``, a directory an
``IsADirectoryError``, before any GPU library is called.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import IO, Any, Literal, TypeAlias

from .. import _native

__all__ = ["Mode", "PathLike", "borrow", "display_name", "flags_of", "is_path", "open_path"]

PathLike: TypeAlias = str | bytes | os.PathLike[Any]
Mode: TypeAlias = Literal["r", "r+", "w", "w+", "x", "x+"]

_FLAGS: dict[str, int] = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "x": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


def flags_of(mode: str) -> int:
    """Return the flags of `os.open` for a mode of the built-in `open`, with or without a "b"."""
    flags = _FLAGS.get(mode.replace("b", ""))
    if flags is None:
        raise ValueError(f"mode must be one of {sorted(_FLAGS)}, not {mode!r}")
    return flags


def is_path(file: object) -> bool:
    """Whether `file` is a path, not an open file."""
    return isinstance(file, str | bytes | os.PathLike)


def display_name(path: PathLike) -> str:
    """Return a path as text for messages, whatever bytes it holds."""
    return repr(os.fsdecode(os.fspath(path)))


def _refuse_odd_kinds(fd: int, name: str) -> None:
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        raise OSError(
            errno.ESPIPE,
            "pipes and sockets have no offsets to transfer at; read their bytes with NumPy",
            name,
        )


def open_path(path: PathLike, flags: int, mode: int = 0o666) -> _native.OpenFile:
    """Open a path.

    Parameters
    ----------
    path : str, bytes or path-like
        To open.
    flags : int
        As of `os.open`; ``O_CLOEXEC`` is added.
    mode : int, optional
        Permissions of a new file, before the umask.

    Returns
    -------
    OpenFile
        Owning its descriptor.
    """
    # O_NONBLOCK: opening a FIFO without a writer must not hang before it can be refused.
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    try:
        _refuse_odd_kinds(fd, os.fsdecode(os.fspath(path)))
        os.set_blocking(fd, True)
    except BaseException:
        os.close(fd)
        raise
    return _native.OpenFile(fd, flags & os.O_ACCMODE != os.O_RDONLY)


def borrow(file: IO[Any], *, writes: bool) -> _native.OpenFile:
    """Duplicate the descriptor of an open Python file, which stays the caller's.

    Parameters
    ----------
    file : file object
        With ``fileno``, ``tell`` and ``seek``; what it has buffered for writing is flushed.
    writes : bool
        Whether it will be written to.

    Returns
    -------
    OpenFile
        Owning the duplicate.
    """
    if getattr(file, "writable", lambda: writes)():
        file.flush()
    original = file.fileno()
    name = str(getattr(file, "name", original))
    _refuse_odd_kinds(original, name)
    fd = os.dup(original)
    try:
        access = _access_mode(fd)
        if writes and access == os.O_RDONLY:
            raise OSError(errno.EBADF, "the file is not open for writing", name)
        if not writes and access == os.O_WRONLY:
            raise OSError(errno.EBADF, "the file is not open for reading", name)
    except BaseException:
        os.close(fd)
        raise
    return _native.OpenFile(fd, access != os.O_RDONLY)


def _access_mode(fd: int) -> int:
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
