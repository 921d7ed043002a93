"""The exceptions of this library, and the one place where native failures become exceptions.

Every class derives from `HipFileArraysError` and from the built-in that a Python user would catch.
A message says what was asked, what was found, and what to do. Errors of the operating system about
the file itself stay what they are: ``FileNotFoundError``, ``PermissionError``,
``IsADirectoryError``, ``OSError`` with ``errno`` set.
"""

from __future__ import annotations

import os
from typing import TypeAlias

__all__ = [
    "DeviceMismatchError",
    "DirectPathUnavailable",
    "FormatError",
    "HipFileArraysError",
    "HipFileError",
    "LibraryNotFound",
    "MemoryTypeError",
    "RegistrationWarning",
    "ShortReadError",
    "ShortReadWarning",
    "StateError",
]

# (channel, code, runtime code, call, name, text), as the native module reports a failure.
Failure: TypeAlias = tuple[str, int, int, str, str, str]


class HipFileArraysError(Exception):
    """Base of every exception that this library defines."""


class MemoryTypeError(HipFileArraysError, TypeError):
    """The array's memory is not plain device memory: host, pinned, managed, or another vendor's."""


class DeviceMismatchError(HipFileArraysError, ValueError):
    """Arrays, streams or memory of one call belong to different devices."""


class ShortReadError(HipFileArraysError, EOFError):
    """The file holds less than was asked for, and the call promised all of it.

    Attributes
    ----------
    expected, found : int
        Bytes asked for and bytes there are.
    """

    def __init__(self, message: str, *, expected: int = 0, found: int = 0) -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found


class DirectPathUnavailable(HipFileArraysError, RuntimeError):
    """``path="direct"`` was asked for and cannot be had; the message lists every reason."""


class HipFileError(HipFileArraysError, OSError):
    """A HIP, hipFile, CUDA or cuFile call failed.

    Attributes
    ----------
    code : int
        The library's own code: 5001 to 5038 from hipFile or cuFile, else a HIP or CUDA error.
    name : str
        The library's own name of that code.
    hip_error : int
        The GPU runtime's code behind it (0 if there is none).
    call : str
        The C function that failed.
    """

    def __init__(
        self, message: str, *, code: int = 0, name: str = "", hip_error: int = 0, call: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.hip_error = hip_error
        self.call = call


class LibraryNotFound(HipFileArraysError, ImportError):
    """A GPU runtime or file library could not be loaded; the message lists what was tried."""


class StateError(HipFileArraysError, RuntimeError):
    """Something was used that is closed, or in a process or state where it cannot work."""


class KernelsUnavailable(HipFileArraysError, ImportError):
    """Device kernels are needed, and CuPy, which compiles them, is missing or foreign."""


class FormatError(HipFileArraysError, ValueError):
    """A file is not what its format says it must be."""


class ShortReadWarning(UserWarning):
    """The file holds fewer items than were asked for, or a tail that fills no item."""


class RegistrationWarning(UserWarning):
    """A buffer was registered for repeated transfers, but hipFile or cuFile has no part in it."""


def describe(failure: Failure) -> str:
    """One line for a native failure: the call, the code with its name, the library's own text."""
    channel, code, runtime_code, call, name, text = failure
    if channel == "errno":
        return f"{call}: {text} (errno {code})"
    if channel == "file":
        behind = f": {text}" if text else ""
        if runtime_code:
            behind = f", behind it HIP error {runtime_code}: {text}"
        return f"{call} failed: error {code} ({name or 'unknown code'}){behind}"
    if channel == "runtime":
        return f"{call} failed: error {code} ({name or 'unknown code'}): {text}"
    return text


def from_failure(failure: Failure, context: str = "") -> Exception:
    """Make the exception for a failure that the native module reports.

    Parameters
    ----------
    failure : tuple
        ``(channel, code, runtime code, call, name, text)``.
    context : str, optional
        What was being done, put in front of the message.

    Returns
    -------
    Exception
        To be raised by the caller.
    """
    channel, code, runtime_code, call, name, _text = failure
    message = f"{context}: {describe(failure)}" if context else describe(failure)
    if channel == "errno":
        return OSError(code, f"{message}" if context else os.strerror(code))
    if channel == "file":
        return HipFileError(message, code=code, name=name, hip_error=runtime_code, call=call)
    if channel == "runtime":
        return HipFileError(message, code=code, name=name, hip_error=code, call=call)
    if channel == "library":
        return LibraryNotFound(message)
    if channel == "interrupted":
        return KeyboardInterrupt()  # type: ignore[return-value]
    return StateError(message)
