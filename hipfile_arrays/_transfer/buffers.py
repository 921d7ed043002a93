"""Registered buffers: device memory that hipFile (cuFile) knows, for repeated transfers.

hipFile's map is keyed by the exact base pointer. The native registry finds the registration that
holds a range, so that every slice of a registered buffer is sent as registered base + offset, and
costs no pointer lookup: neither here nor in the library.

A `RegisteredBuffer` owns a reference to the array's memory through DLPack, so the memory outlives
the registration whatever happens to the array's own name.
"""

from __future__ import annotations

import atexit
import contextlib
import warnings
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from .. import _native, config
from ..errors import RegistrationWarning, StateError
from ..errors import describe as describe_failure
from . import automatic, memory, vendor
from .array import DeviceArray, describe, device_type_of, target_of
from .libraries import stream_of
from .values import Extent

__all__ = ["BufferInfo", "RegisteredBuffer", "buffers", "find", "parts_of", "register", "resolve"]


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """One registered buffer, as `buffers` lists it.

    Attributes
    ----------
    pointer : int
        Device address of its first byte.
    nbytes : int
        Its length in bytes.
    device : int
        Device number.
    in_library : bool
        Whether hipFile or cuFile knows it.
    hits : int
        Transfers that used it.
    automatic : bool
        Whether a repeated transfer registered it, and not `register`; see
        `config.Settings.auto_register`.
    """

    pointer: int
    nbytes: int
    device: int
    in_library: bool
    hits: int
    automatic: bool


class RegisteredBuffer:
    """Device memory registered for repeated transfers; made by `register`.

    Pass it wherever an array can be read into or written from; or pass the array, or any
    contiguous slice of it. A context manager; `close` waits for transfers under way.

    Attributes
    ----------
    array : object
        The array that was registered.
    nbytes : int
        Its length in bytes.
    """

    __slots__ = ("__weakref__", "_described", "_registration", "array", "nbytes")

    def __init__(
        self, array: Any, described: DeviceArray, registration: _native.Registration
    ) -> None:
        self.array = array
        self.nbytes = described.extent.nbytes
        self._described = described
        self._registration: _native.Registration | None = registration

    @property
    def registered(self) -> bool:
        """Whether hipFile or cuFile knows the buffer; `because` says why not."""
        return self._registration is not None and self._registration.in_library

    @property
    def because(self) -> str:
        """Why the library does not know the buffer; empty if it does."""
        if self._registration is None:
            return "it is closed"
        refusal = self._registration.refusal
        return "" if refusal is None else describe_failure(refusal)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._registration is None

    def open_parts(self) -> tuple[DeviceArray, _native.Registration]:
        """Return the imported array and its registration; raise `StateError` once closed."""
        if self._registration is None:
            raise StateError("this registered buffer is closed")
        return self._described, self._registration

    def current_stream(self) -> int:
        """Return the stream that the array's library is on now."""
        extent = self._described.extent
        return stream_of(self.array, device_type_of(extent.platform), extent.device)

    def close(self) -> None:
        """End the registration, after waiting for transfers under way. Harmless when repeated."""
        registration, self._registration = self._registration, None
        if registration is not None:
            _live.discard(self)
            _native.deregister_buffer(registration)

    def __enter__(self) -> RegisteredBuffer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not _exiting and getattr(self, "_registration", None) is not None:
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "registered" if self.registered else "not in library"
        return f"<RegisteredBuffer of {self.nbytes} bytes, {state}>"


_live: weakref.WeakSet[RegisteredBuffer] = weakref.WeakSet()
_exiting = False


@atexit.register
def _close_all() -> None:
    """No native call may happen while the interpreter finalises: end everything before it does."""
    global _exiting
    for buffer in list(_live):
        with contextlib.suppress(Exception):
            buffer.close()
    _exiting = True


def register(array: Any) -> RegisteredBuffer:
    """Register a device array's memory for repeated transfers.

    Parameters
    ----------
    array : object
        A contiguous device array (any DLPack exporter).

    Returns
    -------
    RegisteredBuffer
        To be closed, or used as a context manager. The same memory registered twice shares one
        registration, which ends with the last.

    Raises
    ------
    MemoryTypeError
        If the memory is not plain device memory.
    ValueError
        If the array is not contiguous, empty, or read-only.
    StateError
        If it overlaps another registered buffer without being the same.

    Warns
    -----
    RegistrationWarning
        If hipFile or cuFile cannot be loaded or refuses the memory. Transfers work all the same,
        and still save the pointer lookups on this library's side.

    Examples
    --------
    >>> import cupy, hipfile_arrays as hfa
    >>> x = cupy.empty(1024, "f4")
    >>> with hfa.register(x) as buffer:
    ...     buffer.nbytes
    4096
    """
    described = target_of(array)
    extent = described.extent
    if not described.contiguous:
        raise ValueError(
            "only contiguous arrays can be registered; register the array that this is a view of"
        )
    if extent.nbytes == 0:
        raise ValueError("an empty array has no memory to register")
    vendor.prepare(extent.platform)
    memory.check(extent)
    automatic.give_way(extent)
    registration = _native.register_buffer(
        int(extent.platform), extent.pointer, extent.nbytes, extent.device, False
    )
    buffer = RegisteredBuffer(array, described, registration)
    _live.add(buffer)
    if not buffer.registered:
        warnings.warn(
            f"{extent.platform.file_library} does not know this buffer: {buffer.because}",
            RegistrationWarning,
            stacklevel=2,
        )
    return buffer


def parts_of(
    array: Any, stream: int | None, *, target: bool
) -> tuple[DeviceArray, _native.Registration | None, int]:
    """Return an array or registered buffer imported, its registration if known, and its stream.

    Parameters
    ----------
    array : array or RegisteredBuffer
        What a user passes to be read into or written from.
    stream : int or None
        The caller's; None means the one that the array's library is on.
    target : bool
        Whether it will be written into.
    """
    if isinstance(array, RegisteredBuffer):
        described, registration = array.open_parts()
        return described, registration, array.current_stream() if stream is None else stream
    described = (target_of if target else describe)(array, stream=stream)
    return described, None, described.stream


def resolve(extent: Extent) -> _native.Registration | None:
    """Return the registration that holds an extent; else check the extent (one lookup).

    The second time, the check registers the whole allocation, if it can be watched.

    Parameters
    ----------
    extent : Extent
        Not empty.

    Returns
    -------
    Registration or None
        None: not registered, and found to be plain device memory within one allocation.
    """
    registration = find(extent)
    if registration is not None:
        return registration
    vendor.prepare(extent.platform)
    return automatic.notice(memory.check(extent), extent)


def find(extent: Extent) -> _native.Registration | None:
    """Return the registration that holds an extent, without any lookup; None if there is none.

    Parameters
    ----------
    extent : Extent
        Not empty.
    """
    registration = _native.find_registration(extent.pointer, extent.nbytes)
    if registration is None or not registration.automatic:
        return registration
    if not config.get().auto_register:
        automatic.close(registration)
        return None
    return registration if automatic.vouches(registration, extent.exporter) else None


def buffers() -> list[BufferInfo]:
    """List what is registered now.

    Returns
    -------
    list of BufferInfo
        By address.
    """
    return [
        BufferInfo(r.base, r.size, r.device, r.in_library, r.hits, r.automatic)
        for r in _native.registrations()
    ]
