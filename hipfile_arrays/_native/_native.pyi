"""
Host half of the shim: GPU runtime and file library tables, registry, engine.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

class Tensor:
    """A tensor imported from a DLPack exporter, kept alive."""

    @property
    def pointer(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device_type(self) -> int: ...
    @property
    def device_id(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def flags(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def contiguous(self) -> bool: ...

def import_tensor(exporter: object, stream: int | None) -> Tensor:
    """Call __dlpack__ with this stream and take over the tensor."""

def adopt_tensor(
    owner: object,
    pointer: int,
    read_only: bool,
    device_type: int,
    device: int,
    code: int,
    bits: int,
    shape: Sequence[int],
    strides: Sequence[int],
) -> Tensor:
    """Describe memory that `owner` keeps alive; strides in items."""

def has_exchange(exporter: object) -> bool: ...
def current_stream(exporter: object, device_type: int, device: int) -> int:
    """Ask the exchange API of the exporter's type, which it must have."""

def new_array(
    exporter: object, device_type: int, device: int, shape: Sequence[int], code: int, bits: int
) -> object:
    """
    Allocate by the exchange API of the exporter's type, which it must have.
    """

class DeviceMemory:
    """Device memory of our own."""

    def __init__(self, platform: int, device: int, nbytes: int) -> None: ...
    @property
    def pointer(self) -> int: ...
    def capsule(
        self,
        device_type: int,
        code: int,
        bits: int,
        shape: Sequence[int],
        strides: Sequence[int],
        versioned: bool,
    ) -> object:
        """Export it by DLPack; strides in items."""

class OpenFile:
    """
    An open file descriptor, owned; its O_DIRECT twin and library handle are made on first need.
    """

    def __init__(self, fd: int, writable: bool) -> None: ...
    @property
    def fd(self) -> int: ...
    @property
    def writable(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    def size(self) -> int | None:
        """Bytes of a regular file; None for other kinds."""

    def takes_o_direct(self) -> bool: ...
    def register_handle(self, platform: int) -> None: ...
    def close(self) -> None: ...

class Registration:
    """Device memory known to the file library."""

    @property
    def base(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def device(self) -> int: ...
    @property
    def platform(self) -> int: ...
    @property
    def in_library(self) -> bool: ...
    @property
    def automatic(self) -> bool: ...
    @property
    def foreign(self) -> bool: ...
    @property
    def refusal(self) -> tuple[str, int, int, str, str, str] | None: ...
    @property
    def hits(self) -> int: ...
    @property
    def closed(self) -> bool: ...

class Outcome:
    """How a transfer ended."""

    @property
    def missing(self) -> int: ...
    @property
    def end_of_file(self) -> int: ...
    @property
    def failure(self) -> tuple[str, int, int, str, str, str] | None: ...
    @property
    def others(self) -> list[tuple[str, int, int, str, str, str]]: ...
    @property
    def moved(self) -> list[int]: ...

def register_buffer(
    platform: int, base: int, size: int, device: int, automatic: bool
) -> Registration: ...
def deregister_buffer(registration: Registration) -> None: ...
def deregister_idle_buffer(registration: Registration) -> bool:
    """
    Deregister unless a transfer uses it; return whether it is deregistered.
    """

def find_registration(pointer: int, nbytes: int) -> Registration | None: ...
def registrations() -> list[Registration]: ...
def set_search_path(
    platform: int,
    runtime_folders: Sequence[str],
    runtime_path: str,
    file_folders: Sequence[str],
    file_path: str,
) -> None: ...
def open_runtime(platform: int) -> tuple[str, int]:
    """Return the path and version of the GPU runtime, opened if need be."""

def mapped_runtimes(platform: int) -> list[str]:
    """
    Return the files under which HIP runtimes are mapped; of CUDA's always none.
    """

def open_file_library(platform: int) -> str:
    """Return the path of hipFile or cuFile, opened if need be."""

def locate(platform: int, pointer: int) -> tuple[int, int, int, int]:
    """
    Return (memory type, device, base, size in bytes of the allocation) of a pointer.
    """

def synchronize(platform: int, device: int, stream: int) -> None: ...
def transfer(
    file: OpenFile,
    reads: bool,
    platform: int,
    device: int,
    stream: int,
    pieces: Annotated[
        NDArray[numpy.int64], dict(shape=(None, 4), order="C", device="cpu", writable=False)
    ],
    registration: Registration | None,
    may_fall_back: bool,
    threads: int,
    chunk: int,
    progress: object | None,
) -> Outcome: ...
def transfer_one(
    file: OpenFile,
    reads: bool,
    platform: int,
    device: int,
    stream: int,
    offset: int,
    pointer: int,
    nbytes: int,
    path: int,
    registration: Registration | None,
    exact: bool,
) -> int | tuple[str, int, int, str, str, str]:
    """
    Move one small or library piece on this thread; return the bytes the file did not have.
    """

SMALL: int = 65536

class StreamTransfer:
    """A transfer in its place in a stream."""

    def cancel(self) -> None:
        """Ask it to stop within one chunk."""

    def check(self) -> None:
        """End it if the device has failed."""

    @property
    def progress(self) -> int:
        """Bytes moved so far."""

def takes_stream_waits(platform: int, device: int) -> bool:
    """Whether streams wait for host memory; tried once."""

def begin_transfer(
    file: OpenFile,
    reads: bool,
    platform: int,
    device: int,
    stream: int,
    pieces: Annotated[
        NDArray[numpy.int64], dict(shape=(None, 4), order="C", device="cpu", writable=False)
    ],
    registration: Registration | None,
    may_fall_back: bool,
    threads: int,
    chunk: int,
    ended: object,
) -> StreamTransfer:
    """
    Queue a transfer of one piece on the stream, and move its bytes on threads of its own.
    """

def finish_transfers() -> None:
    """For the end of the process: stop reads, wait for all, begin no more."""

def direct_alignment(fd: int) -> tuple[int, int] | None:
    """
    Return O_DIRECT's alignment (memory, file offset) in bytes, where the kernel tells.
    """

def resident_bytes(fd: int, offset: int, nbytes: int) -> int | None: ...
def takes_file_mappings(platform: int, device: int, file: OpenFile) -> bool:
    """
    Whether the runtime copies from registered pages of the page cache; tried once.
    """

def totals() -> list[list[tuple[int, int]]]: ...
def reset_totals() -> None: ...
def pinned_bytes() -> int: ...
def thread_count() -> int: ...
def release_resources() -> None:
    """End idle worker threads and free pinned staging memory."""
