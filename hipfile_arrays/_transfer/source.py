"""What is read from: an open file, where reading begins, how many items are there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import _native
from ..errors import ShortReadError, ShortReadWarning
from . import opening

__all__ = ["Source", "located", "name_of", "opened"]


@dataclass(frozen=True, slots=True)
class Source:
    """An open file to be read from.

    Attributes
    ----------
    file : OpenFile
        The file.
    name : str
        For messages.
    start : int
        Offset of the first byte to read.
    size : int or None
        Bytes of the file; None for devices without an end.
    """

    file: _native.OpenFile
    name: str
    start: int
    size: int | None

    @property
    def available(self) -> int | None:
        """Bytes from `start` on."""
        return None if self.size is None else self.size - self.start

    def items(
        self, itemsize: int, wanted: int, *, exact: bool
    ) -> tuple[int, ShortReadWarning | None]:
        """Return how many items to read, and what to say if the file has too few.

        Parameters
        ----------
        itemsize : int
            Bytes.
        wanted : int
            Items; -1 for all.
        exact : bool
            Raise `ShortReadError` instead, because the caller promises all of `wanted`.
        """
        available = self.available
        if available is None:
            if wanted < 0:
                raise ValueError(f"{self.name} has no end: say how many items to read by count=")
            return wanted, None
        whole, tail = divmod(available, itemsize)
        if wanted < 0 and not tail:
            return whole, None
        if 0 <= wanted <= whole:
            return wanted, None
        if wanted < 0:
            expected = (whole + 1) * itemsize
            message = (
                f"the last {tail} of the {available} bytes from offset {self.start} of "
                f"{self.name} fill no item of {itemsize} bytes; {whole} items were read"
            )
        else:
            expected = wanted * itemsize
            message = (
                f"{wanted} items of {itemsize} bytes were asked for from offset {self.start} of "
                f"{self.name}, which holds {whole} there ({available} bytes)"
            )
        if exact:
            raise ShortReadError(message, expected=expected, found=available)
        return whole, ShortReadWarning(message)


def name_of(file: Any) -> str:
    """Return the name of a path or open file, for messages."""
    if opening.is_path(file):
        return opening.display_name(file)
    return repr(getattr(file, "name", file))


def located(file: _native.OpenFile, name: str, start: int) -> Source:
    """Return an open file as a source from `start` on; `ValueError` past its end."""
    if start < 0:
        raise ValueError(f"offset must not be negative: {start} in {name}")
    size = file.size()
    if size is not None and start > size:
        raise ValueError(f"offset {start} is past the end of {name}, which has {size} bytes")
    return Source(file, name, start, size)


@contextlib.contextmanager
def opened(file: Any, offset: int) -> Iterator[Source]:
    """Open a path, or borrow an open file; `offset` counts from its beginning or its position.

    An open file's own position stays as it is.
    """
    name = name_of(file)
    if offset < 0:
        raise ValueError(f"offset must not be negative: {offset} in {name}")
    if opening.is_path(file):
        native = opening.open_path(file, os.O_RDONLY)
        start = offset
    else:
        native = opening.borrow(file, writes=False)
        start = file.tell() + offset
    try:
        yield located(native, name, start)
    finally:
        native.close()
