"""The emulated libraries called directly, through ctypes: what CuPy and hipFile users see below."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hipfile_arrays import emulator

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class PointerAttributes(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("device_pointer", ctypes.c_void_p),
        ("host_pointer", ctypes.c_void_p),
        ("is_managed", ctypes.c_int),
        ("allocation_flags", ctypes.c_uint),
    ]


class Hip:
    """libamdhip64: a method that returns the hipError_t, and shortcuts that insist on success."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(emulator.library_folder() / "libamdhip64.so.7"))

    def code(self, name: str, *arguments: Any) -> int:
        """Call; Python integers are passed as 64-bit values, bytes and buffers as pointers."""
        wide = [ctypes.c_void_p(a) if type(a) is int else a for a in arguments]
        return int(getattr(self._library, name)(*wide))

    def __call__(self, name: str, *arguments: Any) -> None:
        code = self.code(name, *arguments)
        assert code == 0, f"{name}: {self.error_name(code)} ({code})"

    def error_name(self, code: int) -> str:
        function = self._library.hipGetErrorName
        function.restype = ctypes.c_char_p
        return function(code).decode()

    def made(self, name: str, *arguments: Any) -> int:
        """What an entry point writes through its first argument, a pointer to a pointer."""
        out = ctypes.c_void_p()
        self(name, ctypes.byref(out), *arguments)
        return out.value or 0

    def attributes(self, address: int) -> PointerAttributes:
        found = PointerAttributes()
        self("hipPointerGetAttributes", ctypes.byref(found), address)
        return found

    def range(self, address: int) -> tuple[int, int]:
        base, size = ctypes.c_void_p(), ctypes.c_size_t()
        self("hipMemGetAddressRange", ctypes.byref(base), ctypes.byref(size), address)
        return base.value or 0, size.value

    def free_bytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def upload(self, address: int, data: bytes) -> None:
        self("hipMemcpy", address, data, len(data), HOST_TO_DEVICE)

    def download(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self("hipMemcpy", data, address, size, DEVICE_TO_HOST)
        return data.raw


@pytest.fixture
def hip() -> Iterator[Hip]:
    """The runtime; device 0 is current before and after, and no error is left for CuPy."""
    runtime = Hip()
    runtime("hipSetDevice", 0)
    yield runtime
    runtime("hipSetDevice", 0)
    runtime("hipDeviceSynchronize")
    runtime.code("hipGetLastError")


@pytest.fixture
def malloc(hip: Hip) -> Iterator[Callable[[int], int]]:
    """Device memory of the current device, freed after the test."""
    made: list[int] = []

    def allocate(size: int) -> int:
        made.append(hip.made("hipMalloc", size))
        return made[-1]

    yield allocate
    for address in made:
        hip.code("hipFree", address)


@pytest.fixture
def pinned(hip: Hip) -> Iterator[Callable[[int], int]]:
    """Pinned host memory, freed after the test."""
    made: list[int] = []

    def allocate(size: int) -> int:
        made.append(hip.made("hipHostMalloc", size, 0))
        return made[-1]

    yield allocate
    for address in made:
        hip("hipHostFree", address)


@pytest.fixture
def new_stream(hip: Hip) -> Iterator[Callable[..., int]]:
    """Streams, blocking ones unless told otherwise, destroyed after the test."""
    made: list[int] = []

    def create(flags: int = 0) -> int:
        made.append(hip.made("hipStreamCreateWithFlags", flags))
        return made[-1]

    yield create
    for stream in made:
        hip.code("hipStreamDestroy", stream)


class Gate:
    """A host function that keeps a stream busy until the gate opens: lateness without clocks."""

    def __init__(self, hip: Hip, stream: int) -> None:
        self._opened = threading.Event()
        self._function = HOST_FUNCTION(lambda _: self._opened.wait(60) and None)
        hip("hipLaunchHostFunc", stream, self._function, None)

    def open(self) -> None:
        self._opened.set()


@pytest.fixture
def gated(hip: Hip) -> Callable[[int], Any]:
    """``with gated(stream):`` nothing queued on the stream runs before the block ends."""

    @contextlib.contextmanager
    def hold(stream: int) -> Iterator[Gate]:
        gate = Gate(hip, stream)
        try:
            yield gate
        finally:
            gate.open()
            hip("hipStreamSynchronize", stream)

    return hold


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run code in a Python of its own, on the emulated device unless ``emulate=False``."""

    def run(
        code: str, *, emulate: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        prefix = "from hipfile_arrays import emulator; emulator.activate()\n" if emulate else ""
        return subprocess.run(
            [sys.executable, "-c", prefix + code],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run
