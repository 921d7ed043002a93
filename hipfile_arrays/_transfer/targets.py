"""Where written bytes go: into an open file, into a path, or into a new file that replaces one.

`Write` is what the caller does with the open file: it gets the native file and the offset of the
first byte.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias

from .. import _native
from . import opening

__all__ = ["Write", "write_atomically", "write_open_file", "write_path"]

Write: TypeAlias = Callable[[_native.OpenFile, int], None]


def write_open_file(
    file: IO[Any], offset: int | None, nbytes: int, write: Write, *, sync: bool
) -> None:
    """Write at an open file's position and leave it after the data; or at `offset`."""
    native = opening.borrow(file, writes=True)
    try:
        start = file.tell() if offset is None else offset
        write(native, start)
        if offset is None:
            file.seek(start + nbytes)
        if sync:
            os.fsync(native.fd)
    finally:
        native.close()


def write_path(
    path: opening.PathLike, offset: int | None, nbytes: int, write: Write, *, sync: bool
) -> None:
    """Write a whole file, created or cut to `nbytes`; or into one at `offset`."""
    native = opening.open_path(path, os.O_RDWR | os.O_CREAT)
    try:
        if offset is None:
            # Cut, not truncated to nothing: pages of the old file that stay are written over.
            size = native.size()
            if size is not None and size > nbytes:
                os.ftruncate(native.fd, nbytes)
        write(native, offset or 0)
        if sync:
            os.fsync(native.fd)
    finally:
        native.close()


def write_atomically(path: opening.PathLike, write: Write) -> None:
    """Write a new file without a name, flush it, and rename it over `path`."""
    target = Path(os.fsdecode(os.fspath(path))).resolve()
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}.part")
    try:
        # Until it is complete it has no name, so that a process that dies leaves nothing behind.
        native = opening.open_path(target.parent, os.O_RDWR | os.O_TMPFILE)
        unnamed = True
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
        native = opening.open_path(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        unnamed = False
    try:
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(native.fd, target.stat().st_mode & 0o7777)
        write(native, 0)
        os.fsync(native.fd)
        with _opened_folder(target.parent) as folder:
            if unnamed:
                # Naming a folder descriptor is what makes Python call linkat, which alone follows
                # the link in /proc to the nameless file.
                os.link(
                    f"/proc/self/fd/{native.fd}", temporary, src_dir_fd=folder, follow_symlinks=True
                )
            temporary.replace(target)
            os.fsync(folder)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        native.close()


@contextlib.contextmanager
def _opened_folder(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
