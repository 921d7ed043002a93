"""Transfers that take their place in a stream: `Transfer`, and how one begins.

The calling thread checks and plans, as for any transfer, and queues the device's part of the work
on the stream; the file's part is done by threads of the native engine. A strided array goes through
temporary device memory of its size, gathered before or scattered after by a kernel on the stream.

Such a transfer is always staged. hipFile and cuFile know no streams: holding one back for them
would take a thread that needs the GPU runtime meanwhile, and that stands still for ever as soon as
another thread frees device memory. Where the device cannot wait for host memory, the transfer is
done before the call returns.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import warnings
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _native, config
from ..errors import DirectPathUnavailable, ShortReadError, StateError
from . import buffers, convert, kernels
from . import plan as planning
from .array import DeviceArray
from .convert import Request
from .records import packed_strides
from .run import error_of, gather, move
from .values import Extent, FileRange

__all__ = ["Transfer", "begin"]

# More operations than that on a stream, and the runtime lets the caller wait.
_MOST_CHUNKS = 256
_PAGE = 4096
# How often somebody who waits looks whether the device has failed, seconds.
_LOOK = 1.0

atexit.register(_native.finish_transfers)


class Transfer(concurrent.futures.Future[int]):
    """A transfer under way; made by `File.read_async` and `File.write_async`.

    A `concurrent.futures.Future` of the number of bytes, for all that waits for such; and awaitable
    in a coroutine.

    Later work on its stream needs no wait: a read's bytes are there before it, and a write has
    taken the array's bytes before it. `result` is for the host: for errors, for other streams, and
    for the file.

    Attributes
    ----------
    nbytes : int
        Bytes to be moved.
    """

    def __init__(self, what: str, nbytes: int) -> None:
        super().__init__()
        self.nbytes = nbytes
        self._what = what
        self._process = os.getpid()
        self._native: _native.StreamTransfer | None = None
        self._told = False

    def follow(self, native: _native.StreamTransfer) -> None:
        """Know what is under way."""
        self._native = native

    @property
    def progress(self) -> int:
        """Bytes moved so far."""
        if self._native is None:
            return self.nbytes if self.done() and not self.cancelled() else 0
        return self._native.progress

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return not self.done()

    def cancel(self) -> bool:
        """Ask it to stop; return False if it has ended already.

        It ends, cancelled or done, once its stream has got to it: `result` then raises
        ``CancelledError`` or gives the bytes. An array that was read into holds anything.
        """
        if self.done():
            return self.cancelled()
        if self._native is not None and os.getpid() == self._process:
            self._native.cancel()
        return True

    def result(self, timeout: float | None = None) -> int:
        """Wait for the end; return the bytes moved.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default for ever.

        Raises
        ------
        ShortReadError
            If the file shrank while it was read.
        OSError, HipFileError
            As `File.read` and `File.write`.
        concurrent.futures.CancelledError
            After `cancel`.
        TimeoutError
            If it has not ended by then; it goes on.
        KeyboardInterrupt
            It was stopped, and has ended.
        """
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end; return the exception that `result` would raise, or None."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        self._told = True
        if self.done():
            return
        if os.getpid() != self._process:
            raise StateError(f"{self._what} was begun by the process that this one was forked from")
        left = timeout
        try:
            while True:
                step = _LOOK if left is None else min(_LOOK, left)
                with contextlib.suppress(concurrent.futures.CancelledError, TimeoutError):
                    super().exception(step)
                if self.done():
                    return
                if left is not None:
                    left -= step
                    if left <= 0:
                        raise TimeoutError(f"{self._what} has not ended within {timeout} s")
                if self._native is not None:
                    self._native.check()
        except KeyboardInterrupt:
            self.cancel()
            while not self.done():
                with contextlib.suppress(Exception):
                    super().exception()
            raise

    def __await__(self) -> Generator[Any, None, int]:
        """Wait in a coroutine; a task that is cancelled cancels it, and waits for its end."""
        return self._in_coroutine().__await__()

    async def _in_coroutine(self) -> int:
        self._told = True
        future = asyncio.wrap_future(self)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self.cancel()
            while not self.done():
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await asyncio.shield(future)
            raise

    def __del__(self) -> None:
        if getattr(self, "_told", True) or not self.done() or self.cancelled():
            return
        error = super().exception(0)
        if error is not None:
            message = f"nobody asked how {self._what} ended: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        state = "under way"
        if self.done():
            state = (
                "cancelled" if self.cancelled() else "failed" if super().exception(0) else "done"
            )
        return f"<Transfer of {self.nbytes} bytes: {self._what}, {state}>"


@dataclass(frozen=True, slots=True)
class _Ending:
    """Called at a transfer's end, on a native thread; keeps alive what it uses until then."""

    transfer: Transfer
    name: str
    file_range: FileRange
    reads: bool
    kept: tuple[Any, ...]

    def __call__(self, outcome: _native.Outcome) -> None:
        transfer = self.transfer
        failure = outcome.failure
        if failure is not None and failure[0] == "interrupted":
            concurrent.futures.Future.cancel(transfer)
            transfer.set_running_or_notify_cancel()
            return
        error = error_of(outcome, self.name, self.file_range, self.reads, "staged")
        if error is None:
            self.moved_all_but(outcome.missing)
        else:
            transfer.set_exception(error)

    def moved_all_but(self, missing: int) -> None:
        nbytes = self.file_range.nbytes
        if not missing:
            self.transfer.set_result(nbytes)
            return
        error = ShortReadError(
            f"{self.name} shrank while it was read: {nbytes - missing} of {nbytes} bytes from "
            f"offset {self.file_range.offset} on were there",
            expected=nbytes,
            found=nbytes - missing,
        )
        self.transfer.set_exception(error)


def begin(
    file: _native.OpenFile,
    name: str,
    offset: int,
    array: DeviceArray,
    how: Request,
    *,
    reads: bool,
) -> Transfer:
    """Queue a transfer of all of an array's items on a stream.

    Parameters
    ----------
    file : OpenFile
        Open for the direction.
    name : str
        Of the file, for messages.
    offset : int
        Of the first byte in the file.
    array : DeviceArray
        Of any strides, if there is no registration.
    how : Request
        The rest.
    reads : bool
        From the file to the device, or the other way.

    Raises
    ------
    MemoryTypeError, KernelsUnavailable, StateError, ValueError
        At once; then nothing was queued.
    """
    file_range = FileRange(offset, array.extent.nbytes)
    verb = "reading" if reads else "writing"
    what = f"{verb} bytes {file_range.offset} to {file_range.end} of {name}"
    transfer = Transfer(what, file_range.nbytes)
    _refuse_path(how)
    if not file_range.nbytes:
        transfer.set_result(0)
        return transfer
    if array.contiguous or how.registration is not None:
        registration = how.registration or buffers.resolve(array.extent)
        ending = _Ending(transfer, name, file_range, reads, (array, file))
        _queue(ending, file, array.extent, registration, how)
        return transfer
    memory = convert.memory_of(array, "C")
    owner, pointer = convert.borrow(array, how)
    packed = packed_strides(memory.shape, memory.dtype.itemsize)
    temporary = kernels.Strided(pointer, memory.dtype, memory.shape, packed)
    extent = Extent(pointer, file_range.nbytes, how.platform, how.device)
    ending = _Ending(transfer, name, file_range, reads, (array, file, owner))
    if reads:
        # Compiling waits for the whole device.
        kernels.prepare(memory, temporary, device=how.device, platform=how.platform)
    else:
        how.kernel(temporary, memory)
    _queue(ending, file, extent, None, how)
    if reads:
        how.kernel(memory, temporary)
    return transfer


def _refuse_path(how: Request) -> None:
    wish = how.wish or config.get().path
    planning.check_wish(wish)
    if wish in ("direct", "library"):
        raise DirectPathUnavailable(
            f'path="{wish}" was asked for, but transfers on a stream are staged: file libraries '
            'know no streams. Use path="auto", or read and write without _async.'
        )


def _queue(
    ending: _Ending,
    file: _native.OpenFile,
    extent: Extent,
    registration: _native.Registration | None,
    how: Request,
) -> None:
    file_range, reads = ending.file_range, ending.reads
    if not _native.takes_stream_waits(int(extent.platform), extent.device):
        missing = move(
            file,
            ending.name,
            file_range,
            extent,
            how.stream,
            reads=reads,
            wish="staged",
            registration=registration,
        )
        ending.moved_all_but(missing)
        return
    settings = config.get()
    facts = gather(
        file, file_range, extent.platform, extent.device, "staged", reads=reads, may_map=False
    )
    plan = planning.make(facts, file_range, extent, settings, "staged")
    (piece,) = plan.pieces
    # A long transfer is cut into longer chunks, as far as its share of pinned memory goes.
    longest = settings.pinned_limit_bytes // (2 * plan.threads) // _PAGE * _PAGE
    wanted = -(-file_range.nbytes // _MOST_CHUNKS // _PAGE) * _PAGE
    native = _native.begin_transfer(
        file,
        reads,
        int(extent.platform),
        extent.device,
        how.stream,
        np.array([(piece.offset, piece.pointer, piece.nbytes, piece.route)], np.int64),
        registration,
        False,
        plan.threads,
        max(plan.chunk, min(wanted, longest)),
        ending,
    )
    ending.transfer.follow(native)
