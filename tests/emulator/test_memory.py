"""Every pointer's type and range; memory that the host cannot touch; honest limits."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import signal
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest

from hipfile_arrays import emulator

UNREGISTERED, HOST, DEVICE, MANAGED = 0, 1, 2, 3
INVALID_VALUE, OUT_OF_MEMORY, NOT_FOUND = 1, 2, 500
ALREADY_REGISTERED, NOT_REGISTERED = 712, 713
READ_ONLY = 8
PAGE = 4096


class TestPointerQueries:
    def test_device_memory(self, hip: Any, malloc: Any) -> None:
        address = malloc(10_000)
        for offset in (0, 1, 4096, 9_999):
            found = hip.attributes(address + offset)
            assert (found.type, found.device, found.is_managed) == (DEVICE, 0, 0)
            assert found.device_pointer == address + offset
            assert found.host_pointer is None
            assert hip.range(address + offset) == (address, 10_000)

    def test_memory_of_the_second_device(self, hip: Any, malloc: Any) -> None:
        hip("hipSetDevice", 1)
        address = malloc(100)
        hip("hipSetDevice", 0)
        assert hip.attributes(address).device == 1

    def test_pinned_memory(self, hip: Any, pinned: Any) -> None:
        address = pinned(10_000)
        found = hip.attributes(address + 5)
        assert found.type == HOST
        assert found.host_pointer == found.device_pointer == address + 5
        assert hip.range(address + 9_999) == (address, 10_000)

    def test_managed_memory(self, hip: Any) -> None:
        address = hip.made("hipMallocManaged", 10_000, 1)
        found = hip.attributes(address)
        assert (found.type, found.is_managed) == (MANAGED, 1)
        ctypes.memset(address, 7, 10_000)  # the host may touch it
        assert hip.download(address, 3) == b"\7\7\7"
        hip("hipFree", address)

    def test_registered_host_memory(self, hip: Any) -> None:
        memory = mmap.mmap(-1, 2 * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        hip("hipHostRegister", address, 2 * PAGE, 0)
        assert hip.attributes(address + PAGE).type == HOST
        hip("hipHostUnregister", address)
        assert hip.attributes(address).type == UNREGISTERED

    def test_ordinary_host_memory_is_an_answer_not_an_error(self, hip: Any) -> None:
        memory = ctypes.create_string_buffer(10)
        assert hip.attributes(ctypes.addressof(memory)).type == UNREGISTERED
        assert hip.code("hipPeekAtLastError") == 0

    def test_past_the_end_before_the_base_freed_and_null(self, hip: Any, malloc: Any) -> None:
        address = malloc(10_000)
        freed = hip.made("hipMalloc", 100)
        hip("hipFree", freed)
        base, size = ctypes.c_void_p(), ctypes.c_size_t()
        for wrong in (address + 10_000, address - 1, freed, 0):
            code = hip.code("hipMemGetAddressRange", ctypes.byref(base), ctypes.byref(size), wrong)
            assert code == NOT_FOUND
        for wrong in (address + 10_000, address - 1, freed):
            assert hip.attributes(wrong).type == UNREGISTERED
        attributes = ctypes.create_string_buffer(32)
        assert hip.code("hipPointerGetAttributes", attributes, 0) == INVALID_VALUE

    def test_segments_answer_for_themselves_only(self, hip: Any) -> None:
        before = hip.free_bytes()
        base = emulator.allocate_segments(2 * PAGE, 3)
        assert hip.free_bytes() == before - 6 * PAGE
        for i in range(3):
            segment = base + i * 2 * PAGE
            assert hip.range(segment) == (segment, 2 * PAGE)
            assert hip.range(segment + 2 * PAGE - 1) == (segment, 2 * PAGE)
        # One copy may cross them, as with mapped virtual memory.
        data = os.urandom(6 * PAGE)
        hip.upload(base, data)
        assert hip.download(base, 6 * PAGE) == data
        for i in range(3):
            hip("hipFree", base + i * 2 * PAGE)


class TestTheHostCannotTouchDeviceMemory:
    ALLOCATE = """
import ctypes
hip = ctypes.CDLL(str(emulator.library_folder() / "libamdhip64.so.7"))
p = ctypes.c_void_p()
assert hip.hipMalloc(ctypes.byref(p), ctypes.c_size_t(4096)) == 0
"""

    @pytest.mark.parametrize(
        "touch", ["ctypes.string_at(p.value, 1)", "ctypes.memset(p.value, 0, 1)"]
    )
    def test_a_load_or_store_faults(self, python: Any, touch: str) -> None:
        run = python(f"{self.ALLOCATE}\n{touch}")
        assert run.returncode == -signal.SIGSEGV

    def test_nor_can_a_host_function(self, python: Any) -> None:
        run = python(
            self.ALLOCATE + "call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)"
            "(lambda _: ctypes.memset(p.value, 0, 1) and None)\n"
            "hip.hipLaunchHostFunc(None, call, None)\nhip.hipDeviceSynchronize()"
        )
        assert run.returncode == -signal.SIGSEGV

    def test_a_system_call_gets_efault(self, make_file: Any, malloc: Any) -> None:
        memory = (ctypes.c_char * PAGE).from_address(malloc(PAGE))
        fd = os.open(make_file(b"x" * PAGE), os.O_RDWR)
        try:
            with pytest.raises(OSError, match="Bad address"):
                os.preadv(fd, [memory], 0)
            with pytest.raises(OSError, match="Bad address"):
                os.pwritev(fd, [memory], 0)
        finally:
            os.close(fd)


class TestAllocation:
    def test_guards_lie_between_allocations(self, malloc: Any) -> None:
        addresses = sorted(malloc(PAGE) for _ in range(20))
        gaps = [b - a for a, b in itertools.pairwise(addresses)]
        assert min(gaps) >= 2 * PAGE

    def test_a_freed_address_comes_back_first(self, hip: Any, malloc: Any) -> None:
        first, second = hip.made("hipMalloc", 3 * PAGE), malloc(PAGE)
        hip("hipFree", first)
        assert malloc(3 * PAGE) == first
        assert second != first

    def test_new_memory_holds_neither_zeros_nor_old_data(self, hip: Any, malloc: Any) -> None:
        first = hip.made("hipMalloc", PAGE)
        hip.upload(first, b"secret!!" * 512)
        hip("hipFree", first)
        again = malloc(PAGE)
        assert again == first
        assert hip.download(again, PAGE) == b"\xa5" * PAGE

    def test_memory_information_is_true(self, hip: Any) -> None:
        before = hip.free_bytes()
        address = hip.made("hipMalloc", 1 << 20)
        assert hip.free_bytes() == before - (1 << 20)
        hip("hipFree", address)
        assert hip.free_bytes() == before

    def test_more_than_there_is(self, hip: Any, malloc: Any) -> None:
        out = ctypes.c_void_p(1)
        too_much = hip.free_bytes() + 1
        assert hip.code("hipMalloc", ctypes.byref(out), too_much) == OUT_OF_MEMORY
        assert not out.value
        assert hip.code("hipMalloc", ctypes.byref(out), 2**64 - 1) == OUT_OF_MEMORY
        assert hip.code("hipGetLastError") == OUT_OF_MEMORY
        assert hip.code("hipGetLastError") == 0
        malloc(PAGE)

    def test_a_large_allocation_costs_no_memory_until_used(self, hip: Any, malloc: Any) -> None:
        def shared_kib() -> int:
            status = Path("/proc/self/status").read_text()
            return int(status.split("RssShmem:")[1].split()[0])

        before = shared_kib()
        address = malloc(5 << 30)
        assert shared_kib() - before < 64 << 10
        hip.upload(address + (5 << 30) - 4, b"last")
        assert hip.download(address + (5 << 30) - 4, 4) == b"last"

    def test_wrong_frees_fail_and_free_nothing(self, hip: Any, malloc: Any, pinned: Any) -> None:
        device, host = malloc(PAGE), pinned(PAGE)
        assert hip.code("hipFree", device + 1) == INVALID_VALUE
        assert hip.code("hipFree", host) == INVALID_VALUE
        assert hip.code("hipHostFree", device) == INVALID_VALUE
        assert hip.attributes(device).type == DEVICE
        assert hip.attributes(host).type == HOST
        hip("hipFree", device)
        assert hip.code("hipFree", device) == INVALID_VALUE
        hip("hipFree", 0)

    def test_size_of_the_device(self, python: Any) -> None:
        run = python(
            "import cupy as cp\nprint(cp.cuda.runtime.memGetInfo())",
            HIPFILE_ARRAYS_EMULATOR_MEMORY=str(1 << 24),
        )
        assert run.stdout.strip() == f"({1 << 24}, {1 << 24})", run.stderr

    def test_strict_guard_puts_the_end_at_the_guard_page(self, python: Any) -> None:
        run = python(
            """
import cupy as cp
for size in (1, 16, 100, 4096, 5000):
    pointer = cp.cuda.runtime.malloc(size)
    assert (pointer + -(-size // 16) * 16) % 4096 == 0, size
    assert pointer % 16 == 0
    cp.cuda.runtime.memset(pointer, 1, size)
    cp.cuda.runtime.free(pointer)
""",
            HIPFILE_ARRAYS_EMULATOR_GUARD="1",
        )
        assert run.returncode == 0, run.stderr


class TestCopies:
    def test_reaching_out_of_an_allocation_is_an_error(self, hip: Any, malloc: Any) -> None:
        a, b = malloc(PAGE), malloc(2 * PAGE)
        data = b"x" * (2 * PAGE)
        assert hip.code("hipMemcpy", a, data, PAGE + 1, 1) == INVALID_VALUE
        assert hip.code("hipMemcpy", a, b, PAGE + 1, 3) == INVALID_VALUE
        assert hip.code("hipMemset", a + 1, 0, PAGE) == INVALID_VALUE
        assert hip.download(a, PAGE) == b"\xa5" * PAGE

    def test_reaching_out_of_pinned_memory_is_an_error(
        self, hip: Any, malloc: Any, pinned: Any
    ) -> None:
        device, host = malloc(PAGE), pinned(100)
        assert hip.code("hipMemcpy", device, host, 101, 1) == INVALID_VALUE
        assert hip.code("hipMemcpy", host + 50, device, 51, 2) == INVALID_VALUE
        hip("hipMemcpy", host + 50, device, 50, 2)

    def test_freed_memory_is_an_error(self, hip: Any) -> None:
        address = hip.made("hipMalloc", PAGE)
        hip("hipFree", address)
        assert hip.code("hipMemcpy", address, b"x" * 16, 16, 1) == INVALID_VALUE

    def test_between_devices(self, hip: Any, malloc: Any) -> None:
        here = malloc(PAGE)
        hip("hipSetDevice", 1)
        there = malloc(PAGE)
        data = os.urandom(PAGE)
        hip.upload(there, data)
        hip("hipMemcpyPeer", here, 0, there, 1, PAGE)
        hip("hipSetDevice", 0)
        assert hip.download(here, PAGE) == data

    def test_nothing_to_copy(self, hip: Any) -> None:
        hip("hipMemcpy", 0, 0, 0, 1)
        hip("hipMemset", 0, 0, 0)

    def test_nothing_to_allocate(self, hip: Any) -> None:
        assert hip.made("hipMalloc", 0) == 0
        assert hip.made("hipHostMalloc", 0, 0) == 0
        out = ctypes.c_void_p(1)
        assert hip.code("hipMallocManaged", ctypes.byref(out), 0, 1) == INVALID_VALUE


class TestRegistration:
    @pytest.fixture
    def memory(self) -> Any:
        return mmap.mmap(-1, 4 * PAGE)

    @staticmethod
    def address(memory: mmap.mmap) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def test_twice_and_not_at_all(self, hip: Any, memory: mmap.mmap) -> None:
        address = self.address(memory)
        assert hip.code("hipHostUnregister", address) == NOT_REGISTERED
        hip("hipHostRegister", address, 2 * PAGE, 0)
        assert hip.code("hipHostRegister", address, 2 * PAGE, 0) == ALREADY_REGISTERED
        assert hip.code("hipHostRegister", address + PAGE, PAGE, 0) == ALREADY_REGISTERED
        assert hip.code("hipHostUnregister", address + PAGE) == NOT_REGISTERED
        hip("hipHostUnregister", address)
        hip("hipHostRegister", address + PAGE, PAGE, 0)  # in the middle of the next
        assert hip.code("hipHostRegister", address, 4 * PAGE, 0) == ALREADY_REGISTERED
        hip("hipHostUnregister", address + PAGE)
        hip("hipHostRegister", address, PAGE, 0)
        hip("hipHostUnregister", address)
        assert hip.code("hipHostRegister", address, 0, 0) == INVALID_VALUE

    def test_pinned_memory_is_not_freed_as_registered(self, hip: Any, memory: mmap.mmap) -> None:
        address = self.address(memory)
        hip("hipHostRegister", address, PAGE, 0)
        assert hip.code("hipHostFree", address) == INVALID_VALUE
        hip("hipHostUnregister", address)

    def test_unmapped_memory_is_refused(self, hip: Any) -> None:
        assert hip.code("hipHostRegister", 1 << 20, PAGE, 0) == INVALID_VALUE

    def test_read_only_file_pages_are_copied_from(
        self, hip: Any, malloc: Any, make_file: Any
    ) -> None:
        data = os.urandom(4 * PAGE)
        with make_file(data).open("rb") as file:
            mapped = np.memmap(file, "u1", "r")
            address = mapped.ctypes.data
            assert hip.code("hipHostRegister", address, 4 * PAGE, 0) == INVALID_VALUE
            hip("hipHostRegister", address, 4 * PAGE, READ_ONLY)
            device = malloc(4 * PAGE)
            hip("hipMemcpy", device, address, 4 * PAGE, 1)
            assert hip.download(device, 4 * PAGE) == data
            hip("hipHostUnregister", address)
            mapped._mmap.close()

    def test_truncated_file_is_an_error_not_a_signal(
        self, hip: Any, malloc: Any, make_file: Any
    ) -> None:
        path = make_file(os.urandom(4 * PAGE))
        with path.open("rb") as file:
            mapped = np.memmap(file, "u1", "r")
            address = mapped.ctypes.data
            hip("hipHostRegister", address, 4 * PAGE, READ_ONLY)
            os.truncate(path, PAGE)
            device = malloc(4 * PAGE)
            assert hip.code("hipMemcpy", device, address, 4 * PAGE, 1) == 700
            hip("hipMemcpy", device, address, PAGE, 1)
            hip("hipHostUnregister", address)
            mapped._mmap.close()


class TestCuPy:
    """The unmodified wheel's arrays live in this memory."""

    def test_arrays_go_there_and_back(self) -> None:
        x = np.arange(100_003, dtype="f8")
        assert np.array_equal(cp.asarray(x).get(), x)
        assert np.array_equal(cp.asnumpy(cp.asarray(x)[1000:2000]), x[1000:2000])
        assert cp.zeros(1000, "i4").get().sum() == 0

    def test_dlpack_names_the_device(self) -> None:
        x = cp.asarray(np.arange(10))
        assert x.__dlpack_device__() == (10, 0)
        y = cp.from_dlpack(x)
        assert y.data.ptr == x.data.ptr
        with cp.cuda.Device(1):
            assert cp.empty(3).__dlpack_device__() == (10, 1)

    def test_pool_gives_pieces_of_one_allocation(self, hip: Any) -> None:
        pool = cp.cuda.MemoryPool()
        with cp.cuda.using_allocator(pool.malloc):
            block = cp.empty(1 << 20, "u1")
            base, size = hip.range(block.data.ptr)
            del block
            a, b = cp.empty(1000, "u1"), cp.empty(1000, "u1")
            assert hip.range(a.data.ptr) == hip.range(b.data.ptr) == (base, size)
            del a, b
        pool.free_all_blocks()

    def test_pinned_memory(self, hip: Any) -> None:
        memory = cp.cuda.alloc_pinned_memory(1000)
        assert hip.attributes(memory.ptr).type == HOST
        host = np.frombuffer(memory, "u1", 1000)
        host[:] = 9
        x = cp.empty(1000, "u1")
        x.set(host)
        assert x.get().tolist() == [9] * 1000

    def test_managed_memory(self, hip: Any) -> None:
        memory = cp.cuda.malloc_managed(1000)
        assert hip.attributes(memory.ptr).type == MANAGED
        x = cp.ndarray(1000, "u1", memory)
        x.data.memset(3, 1000)
        cp.cuda.Device().synchronize()
        assert ctypes.string_at(memory.ptr, 1000) == b"\3" * 1000

    def test_arrays_of_two_devices(self) -> None:
        x = np.arange(1000)
        here = cp.asarray(x)
        with cp.cuda.Device(1):
            there = cp.asarray(here)
        assert there.device.id == 1
        assert np.array_equal(there.get(), x)
        assert cp.cuda.runtime.getDevice() == 0

    def test_out_of_memory_is_cupys_own_exception(self) -> None:
        with pytest.raises(cp.cuda.memory.OutOfMemoryError):
            cp.empty(1 << 40, "u1")
        cp.zeros(10)
