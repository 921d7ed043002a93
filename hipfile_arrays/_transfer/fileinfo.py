"""Facts about an open file that the planner needs: kind, size, file system, O_DIRECT."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import lru_cache

from .. import _native

__all__ = ["FileInfo", "inspect"]

# statfs numbers are not in Python's os module; /proc/self/mountinfo names the file system instead.
_MOUNTINFO = "/proc/self/mountinfo"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What a file is.

    Attributes
    ----------
    size : int
        Bytes; 0 for devices that do not tell.
    regular, block : bool
        A regular file, or a block device.
    file_system : str
        As the kernel names it: ``ext4``, ``xfs``, ``tmpfs``; empty where unknown.
    options : frozenset of str
        Mount and superblock options, such as ``data=journal``.
    direct_alignment : tuple of int, or None
        Bytes (memory, file offset) that O_DIRECT needs here; None where it is refused.
    """

    size: int
    regular: bool
    block: bool
    file_system: str
    options: frozenset[str]
    direct_alignment: tuple[int, int] | None


@lru_cache(maxsize=64)
def _mount_of(device: int) -> tuple[str, frozenset[str]]:
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(_MOUNTINFO) as file:
            for line in file:
                left, _, right = line.partition(" - ")
                fields = left.split()
                if len(fields) < 6 or fields[2] != wanted:
                    continue
                tail = right.split()
                options = frozenset(fields[5].split(",")) | frozenset(tail[-1].split(","))
                return tail[0], options
    except OSError:
        pass  # no /proc: the file system stays unknown
    return "", frozenset()


def inspect(file: _native.OpenFile) -> FileInfo:
    """Ask the kernel about an open file.

    Parameters
    ----------
    file : OpenFile
        Open for reading or writing.

    Returns
    -------
    FileInfo
        As of now; the size may change at any time.
    """
    status = os.fstat(file.fd)
    regular = stat.S_ISREG(status.st_mode)
    block = stat.S_ISBLK(status.st_mode)
    size = status.st_size
    if block:
        size = os.lseek(file.fd, 0, os.SEEK_END)
    name, options = _mount_of(status.st_dev) if regular else ("", frozenset[str]())
    alignment: tuple[int, int] | None = None
    if (regular or block) and file.takes_o_direct():
        # Kernels before 6.1 tell no alignment; the page size satisfies every device in use.
        alignment = _native.direct_alignment(file.fd) or (4096, 4096)
    return FileInfo(size, regular, block, name, options, alignment)
