"""An open file without its transfers: what it is, its descriptor, its end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from . import _native
from ._transfer.fileinfo import FileInfo, inspect
from .errors import StateError

__all__ = ["OpenedFile"]


class OpenedFile:
    """What `File` is beside its transfers. A context manager.

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

    def _check_open(self) -> None:
        if self._native.closed:
            raise StateError(f"{self.name} is closed")

    def close(self) -> None:
        """Close the file, after waiting for transfers under way. Harmless when repeated."""
        self._native.close()

    def __enter__(self) -> Self:
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
