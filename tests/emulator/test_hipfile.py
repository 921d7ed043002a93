"""The emulated libhipfile, through its C ABI: codes, checks, paths."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest

from hipfile_arrays import emulator

pytestmark = pytest.mark.emulated


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("hip", ctypes.c_int)]


class Descriptor(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("fd", ctypes.c_int64), ("ops", ctypes.c_void_p)]


@pytest.fixture(scope="module")
def library() -> Any:
    loaded = ctypes.CDLL("libhipfile.so.0", use_errno=True)
    for name in ("HandleRegister", "BufRegister", "BufDeregister", "DriverOpen", "DriverClose"):
        getattr(loaded, f"hipFile{name}").restype = Error
    for name in ("Read", "Write"):
        function = getattr(loaded, f"hipFile{name}")
        function.restype = ctypes.c_ssize_t
        function.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t] + [ctypes.c_int64] * 2
    loaded.hipFileUseCount.restype = ctypes.c_long
    return loaded


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "f").write_bytes(np.arange(100_000, dtype="u1").tobytes())
    opened = os.open(tmp_path / "f", os.O_RDWR)
    yield opened
    os.close(opened)


@pytest.fixture
def handle(library: Any, fd: int) -> Iterator[ctypes.c_void_p]:
    made = ctypes.c_void_p()
    descriptor = Descriptor(1, fd)
    assert library.hipFileHandleRegister(ctypes.byref(made), ctypes.byref(descriptor)).code == 0
    yield made
    library.hipFileHandleDeregister(made)


def test_same_descriptor_twice_is_5028(library: Any, fd: int, handle: Any) -> None:
    again = ctypes.c_void_p()
    assert (
        library.hipFileHandleRegister(ctypes.byref(again), ctypes.byref(Descriptor(1, fd))).code
        == 5028
    )


def test_pipe_is_5018(library: Any) -> None:
    reader, writer = os.pipe()
    made = ctypes.c_void_p()
    assert (
        library.hipFileHandleRegister(ctypes.byref(made), ctypes.byref(Descriptor(1, reader))).code
        == 5018
    )
    os.close(reader)
    os.close(writer)


def test_unknown_handle_is_5027(library: Any) -> None:
    x = cp.empty(100, "u1")
    assert library.hipFileRead(12345, x.data.ptr, 100, 0, 0) == -5027


def test_registration_is_keyed_by_the_exact_base(library: Any, handle: Any) -> None:
    x = cp.empty(100_000, "u1")
    pointer = x.data.ptr
    register, deregister = library.hipFileBufRegister, library.hipFileBufDeregister
    size = ctypes.c_size_t(8192)
    assert deregister(ctypes.c_void_p(pointer)).code == 5024
    assert register(ctypes.c_void_p(pointer), size, 0).code == 0
    assert register(ctypes.c_void_p(pointer), size, 0).code == 5023
    emulator.reset_counters()
    assert library.hipFileRead(handle, pointer, 100, 0, 5) == 100
    assert emulator.counters()["hipfile.registered"] == 1
    assert "hipPointerGetAttributes" not in emulator.counters()
    assert library.hipFileRead(handle, pointer + 5, 100, 0, 0) == 100
    assert emulator.counters()["hipfile.on_the_fly"] == 1
    # Within the registered length, whatever the allocation would allow.
    assert library.hipFileRead(handle, pointer, 100, 0, 8100) == -5022
    assert library.hipFileRead(handle, pointer, 0, 0, 8192) == -5022
    assert deregister(ctypes.c_void_p(pointer)).code == 0


def test_range_past_the_allocation_is_5014(library: Any) -> None:
    pointer = cp.cuda.runtime.malloc(4096)
    try:
        assert (
            library.hipFileBufRegister(ctypes.c_void_p(pointer), ctypes.c_size_t(4097), 0).code
            == 5014
        )
    finally:
        cp.cuda.runtime.free(pointer)


@pytest.mark.parametrize("kind", ["host", "pinned", "managed"])
def test_wrong_memory_is_5013(library: Any, handle: Any, kind: str) -> None:
    keep: Any = {
        "host": lambda: np.empty(100, "u1"),
        "pinned": lambda: cp.cuda.alloc_pinned_memory(100),
        "managed": lambda: cp.cuda.malloc_managed(100),
    }[kind]()
    pointer = keep.ctypes.data if kind == "host" else keep.ptr
    assert (
        library.hipFileBufRegister(ctypes.c_void_p(pointer), ctypes.c_size_t(100), 0).code == 5013
    )
    assert library.hipFileRead(handle, pointer, 100, 0, 0) == -5013


def test_unregistered_buffer_reaches_to_the_end_of_its_allocation(
    library: Any, handle: Any
) -> None:
    pointer = cp.cuda.runtime.malloc(8192)
    try:
        assert library.hipFileRead(handle, pointer + 4096, 4096, 0, 0) == 4096
        assert library.hipFileRead(handle, pointer + 4096, 4097, 0, 0) == -5022
    finally:
        cp.cuda.runtime.free(pointer)


def test_negative_offset_is_errno(library: Any, handle: Any) -> None:
    x = cp.empty(100, "u1")
    ctypes.set_errno(0)
    assert library.hipFileRead(handle, x.data.ptr, 10, -1, 0) == -1
    assert ctypes.get_errno() == errno.EINVAL


def test_fast_path_takes_aligned_requests_only(library: Any, handle: Any) -> None:
    x = cp.empty(16_384, "u1")
    for size, offset, shift, path in (
        (8192, 4096, 0, "hipfile.fast"),
        (8191, 4096, 0, "hipfile.fallback"),
        (8192, 4095, 0, "hipfile.fallback"),
        (8192, 4096, 1, "hipfile.fallback"),
    ):
        emulator.reset_counters()
        assert library.hipFileRead(handle, x.data.ptr + shift, size, offset, 0) == size
        assert emulator.counters()[path] == 1
        want = (np.arange(offset, offset + size) % 256).astype("u1")
        assert np.array_equal(x[shift : shift + size].get(), want)


def test_fallback_can_be_forced_and_forbidden(
    library: Any, handle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = cp.empty(8192, "u1")
    # putenv, as the C library reads its environment.
    monkeypatch.setenv("HIPFILE_FORCE_COMPAT_MODE", "true")
    emulator.reset_counters()
    assert library.hipFileRead(handle, x.data.ptr, 8192, 0, 0) == 8192
    assert emulator.counters()["hipfile.fallback"] == 1
    monkeypatch.setenv("HIPFILE_ALLOW_COMPAT_MODE", "false")
    assert library.hipFileRead(handle, x.data.ptr, 8192, 0, 0) < -5000


def test_one_call_moves_at_most_its_limit(library: Any, handle: Any) -> None:
    x = cp.empty(100_000, "u1")
    with emulator.faults(limit=8192):
        assert library.hipFileRead(handle, x.data.ptr, 100_000, 0, 0) == 8192


def test_end_of_file(library: Any, handle: Any) -> None:
    x = cp.empty(1000, "u1")
    assert library.hipFileRead(handle, x.data.ptr, 1000, 99_900, 0) == 100
    assert library.hipFileRead(handle, x.data.ptr, 1000, 200_000, 0) == 0


def test_driver_is_reference_counted(library: Any) -> None:
    before = library.hipFileUseCount()
    assert library.hipFileDriverOpen().code == 0
    assert library.hipFileUseCount() == before + 1
    assert library.hipFileDriverClose().code == 0
    assert library.hipFileUseCount() == before


def test_not_ordered_with_streams(library: Any, handle: Any) -> None:
    """As the real one: a pending copy lands on top of what was read."""
    x = cp.asarray(np.zeros(4096, "u1"))
    late = np.frombuffer(cp.cuda.alloc_pinned_memory(4096), "u1", 4096)
    late[:] = 9
    cp.cuda.Device().synchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    with emulator.late_streams(400_000):
        x.set(late, stream=stream)
        assert library.hipFileRead(handle, x.data.ptr, 4096, 0, 0) == 4096
        stream.synchronize()
    assert (x.get() == 9).all()
