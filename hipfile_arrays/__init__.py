"""Files to and from GPU arrays over AMD's hipFile, with NumPy's own function shapes.

    import cupy as cp
    import hipfile_arrays as hfa

    x = hfa.fromfile("data.f4", "f4", like=cp)      # storage to GPU
    hfa.tofile(x, "copy.f4")                        # GPU to storage
    with hfa.register(x), hfa.open("data.f4") as f:
        f.read(x)                                   # again and again

Importing opens no GPU library; the first transfer does.
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING

if _os.environ.get("HIPFILE_ARRAYS_EMULATE", "").strip().lower() in ("1", "true", "yes", "on"):
    # Before anything can import CuPy: the first HIP runtime in a process is the one.
    from . import emulator

    emulator.activate()

from . import config, errors, stats
from ._transfer.asynchronous import Transfer
from ._transfer.buffers import BufferInfo, RegisteredBuffer, buffers, register
from ._transfer.values import Choice
from .diagnose import Diagnosis, diagnose
from .errors import (
    DeviceMismatchError,
    DirectPathUnavailable,
    FormatError,
    HipFileArraysError,
    HipFileError,
    KernelsUnavailable,
    LibraryNotFound,
    MemoryTypeError,
    RegistrationWarning,
    ShortReadError,
    ShortReadWarning,
    StateError,
)
from .file import File, open
from .like import like
from .rawfile import fromfile, tofile

if TYPE_CHECKING:
    from . import emulator

__version__ = "0.1.0"

__all__ = [
    "BufferInfo",
    "Choice",
    "DeviceMismatchError",
    "Diagnosis",
    "DirectPathUnavailable",
    "File",
    "FormatError",
    "HipFileArraysError",
    "HipFileError",
    "KernelsUnavailable",
    "LibraryNotFound",
    "MemoryTypeError",
    "RegisteredBuffer",
    "RegistrationWarning",
    "ShortReadError",
    "ShortReadWarning",
    "StateError",
    "Transfer",
    "buffers",
    "config",
    "diagnose",
    "emulator",
    "errors",
    "fromfile",
    "like",
    "open",
    "register",
    "stats",
    "tofile",
]


def __getattr__(name: str) -> object:
    if name == "emulator":
        import importlib

        return importlib.import_module(".emulator", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
