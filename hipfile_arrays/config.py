"""Settings: defaults, environment variables, and overrides for a block of code.

=========================  ===================================  ==================================
setting                    environment variable                 meaning
=========================  ===================================  ==================================
``threads``                ``HIPFILE_ARRAYS_THREADS``           threads of one staged transfer
``chunk_bytes``            ``HIPFILE_ARRAYS_CHUNK_BYTES``       bytes of one staged copy
``pinned_limit_bytes``     ``HIPFILE_ARRAYS_PINNED_LIMIT``      pinned staging memory of one
                                                                transfer
``path``                   ``HIPFILE_ARRAYS_PATH``              ``auto``, ``direct``, ``staged`` or
                                                                ``library``
``auto_register``          ``HIPFILE_ARRAYS_AUTO_REGISTER``     ``1`` or ``0``: whether repeated
                                                                transfers register their memory
``auto_register_count``    ``HIPFILE_ARRAYS_AUTO_COUNT``        allocations registered so at most
``auto_register_bytes``    ``HIPFILE_ARRAYS_AUTO_BYTES``        bytes registered so at most
=========================  ===================================  ==================================

A transfer reads the settings once, when it is planned; changing them never touches one that runs.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from ._transfer.values import PathName

__all__ = ["Settings", "get", "override", "set"]

_MIB = 1 << 20


def _default_threads() -> int:
    """Cores this process may use: its affinity and its cgroup's CPU limit, at most 16."""
    cores = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, max(1, -(-int(quota) // int(period))))
    except (OSError, ValueError):
        pass  # no cgroup v2 here: no limit to respect
    return max(1, min(16, cores))


@dataclass(frozen=True)
class Settings:
    """The settings that one transfer is planned with.

    Attributes
    ----------
    threads : int
        Threads that one staged transfer uses at most.
    chunk_bytes : int
        Bytes of one staged copy; a multiple of 4096.
    pinned_limit_bytes : int
        Pinned staging memory that one transfer uses at most.
    path : {"auto", "direct", "staged", "library"}
        The path of transfers that do not name one.
    auto_register : bool
        Whether the second transfer on an allocation registers it. It stays registered until its
        memory is freed, others are used more lately, or this is set to False.
    auto_register_count : int
        Allocations that are registered so at most.
    auto_register_bytes : int
        Bytes that are registered so at most.
    """

    threads: int = dataclasses.field(default_factory=_default_threads)
    chunk_bytes: int = 4 * _MIB
    pinned_limit_bytes: int = 256 * _MIB
    path: PathName = "auto"
    auto_register: bool = True
    auto_register_count: int = 64
    auto_register_bytes: int = 64 << 30

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 1024:
            raise ValueError(f"threads must be 1 to 1024, not {self.threads}")
        if self.chunk_bytes < 64 * 1024 or self.chunk_bytes % 4096:
            raise ValueError(
                f"chunk_bytes must be a multiple of 4096 of at least 65536, not {self.chunk_bytes}"
            )
        if self.pinned_limit_bytes < 2 * self.chunk_bytes:
            raise ValueError(
                f"pinned_limit_bytes must hold two chunks ({2 * self.chunk_bytes} bytes), "
                f"not {self.pinned_limit_bytes}"
            )
        if self.path not in get_args(PathName):
            raise ValueError(f"path must be one of {get_args(PathName)}, not {self.path!r}")
        if self.auto_register_count < 0 or self.auto_register_bytes < 0:
            raise ValueError("auto_register_count and auto_register_bytes must not be negative")


_VARIABLES = {
    "threads": "HIPFILE_ARRAYS_THREADS",
    "chunk_bytes": "HIPFILE_ARRAYS_CHUNK_BYTES",
    "pinned_limit_bytes": "HIPFILE_ARRAYS_PINNED_LIMIT",
    "path": "HIPFILE_ARRAYS_PATH",
    "auto_register": "HIPFILE_ARRAYS_AUTO_REGISTER",
    "auto_register_count": "HIPFILE_ARRAYS_AUTO_COUNT",
    "auto_register_bytes": "HIPFILE_ARRAYS_AUTO_BYTES",
}
_TRUTH = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


def _from_environment() -> Settings:
    values: dict[str, Any] = {}
    for field, variable in _VARIABLES.items():
        text = os.environ.get(variable)
        if text is None:
            continue
        if field == "path":
            values[field] = text
        elif field == "auto_register":
            if text.lower() not in _TRUTH:
                raise ValueError(f"{variable}={text!r} is neither 1 nor 0")
            values[field] = _TRUTH[text.lower()]
        else:
            try:
                values[field] = int(text)
            except ValueError:
                raise ValueError(f"{variable}={text!r} is not a number") from None
    return Settings(**values)


_process: Settings | None = None
_override: contextvars.ContextVar[Settings | None] = contextvars.ContextVar(
    "hipfile_arrays_settings", default=None
)


def get() -> Settings:
    """Return the settings in force here: of the innermost `override`, else of the process."""
    global _process
    here = _override.get()
    if here is not None:
        return here
    if _process is None:
        _process = _from_environment()
    return _process


def set(**changes: Any) -> None:
    """Change settings for the whole process.

    Parameters
    ----------
    **changes
        Fields of `Settings`.
    """
    global _process
    _process = dataclasses.replace(_process or _from_environment(), **changes)


@contextlib.contextmanager
def override(**changes: Any) -> Iterator[Settings]:
    """Change settings for a ``with`` block, in this thread or task only.

    Parameters
    ----------
    **changes
        Fields of `Settings`.

    Examples
    --------
    >>> import hipfile_arrays as hfa
    >>> with hfa.config.override(threads=4):
    ...     hfa.config.get().threads
    4
    """
    token = _override.set(dataclasses.replace(get(), **changes))
    try:
        yield get()
    finally:
        _override.reset(token)
