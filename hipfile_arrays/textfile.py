"""Text files (``sep=``): parsed and written by NumPy, on the host."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from ._transfer import opening
from ._transfer.array import describe
from ._transfer.buffers import RegisteredBuffer
from ._transfer.newarray import empty, finished
from ._transfer.records import columns_of
from .file import File

__all__ = ["read_text", "write_text"]


def read_text(file: Any, dtype: np.dtype[Any], count: int, sep: str, offset: int, like: Any) -> Any:
    """Read a text file into a new device array, as ``numpy.fromfile`` with `sep`."""
    if offset:
        raise TypeError("'offset' argument only permitted for binary files")
    if isinstance(file, File):
        raise TypeError("text files (sep is not empty) are read from a path or an open file")
    (column,) = columns_of(dtype)
    host = np.fromfile(file, dtype, count, sep)
    array = empty(like, host.shape, column.device_dtype)
    if host.nbytes:
        with tempfile.TemporaryFile() as staging:
            host.astype(host.dtype.newbyteorder("="), copy=False).tofile(staging)
            with File(opening.borrow(staging, writes=False), "the parsed text") as parsed:
                parsed.read(array)
    return finished(like, array)


def write_text(array: Any, file: Any, sep: str, format: str) -> None:
    """Write a device array's items as text, as ``numpy.ndarray.tofile`` with `sep`."""
    if isinstance(file, File):
        raise TypeError("text (sep is not empty) is written to a path or an open file")
    source = array.array if isinstance(array, RegisteredBuffer) else array
    with tempfile.TemporaryFile() as staging:
        with File(opening.borrow(staging, writes=True), "the text") as items:
            items.write(source)
        np.fromfile(staging, describe(source).dtype).tofile(file, sep, format)
