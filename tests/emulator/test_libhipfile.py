"""The emulated libhipfile: its codes, its registration map, when it goes which way."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipfile_arrays import emulator

DRIVER_NOT_INITIALIZED, HIP_ERROR = 5001, 5011
IO_NOT_SUPPORTED = 5008
MEMORY_TYPE, RANGE, FILE_TYPE, INVALID = 5013, 5014, 5018, 5022
BUFFER_TWICE, NO_BUFFER, NO_HANDLE, HANDLE_TWICE, INTERNAL = 5023, 5024, 5027, 5028, 5030
NO_ASYNC = 5038

BLOCK = 4096
SIZE = 4 * BLOCK


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("hip_code", ctypes.c_int)]


class Descriptor(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("fd", ctypes.c_int64), ("operations", ctypes.c_void_p)]


class Slots(ctypes.Structure):
    """What an asynchronous transfer reads when its turn comes, and where it leaves the result."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("file_offset", ctypes.c_int64),
        ("buffer_offset", ctypes.c_int64),
        ("done", ctypes.c_ssize_t),
    ]


class HipFile:
    def __init__(self) -> None:
        self._library = ctypes.CDLL(
            str(emulator.library_folder() / "libhipfile.so.0"), use_errno=True
        )

    def error(self, name: str, *arguments: Any) -> tuple[int, int]:
        function = getattr(self._library, name)
        function.restype = Error
        wide = [ctypes.c_void_p(a) if type(a) is int else a for a in arguments]
        result = function(*wide)
        return result.code, result.hip_code

    def code(self, name: str, *arguments: Any) -> int:
        code, hip_code = self.error(name, *arguments)
        assert hip_code == 0
        return code

    def __call__(self, name: str, *arguments: Any) -> None:
        assert self.error(name, *arguments) == (0, 0)

    def _move(self, name: str, *arguments: int) -> int:
        function = getattr(self._library, name)
        function.restype = ctypes.c_ssize_t
        ctypes.set_errno(0)
        return int(function(*(ctypes.c_void_p(a) for a in arguments)))

    def read(
        self, handle: int, base: int, size: int, file_offset: int = 0, buffer_offset: int = 0
    ) -> int:
        return self._move("hipFileRead", handle, base, size, file_offset, buffer_offset)

    def write(
        self, handle: int, base: int, size: int, file_offset: int = 0, buffer_offset: int = 0
    ) -> int:
        return self._move("hipFileWrite", handle, base, size, file_offset, buffer_offset)

    def queue(self, name: str, handle: int, base: int, slots: Slots, stream: int) -> int:
        start = ctypes.addressof(slots)
        places = [start + getattr(Slots, field).offset for field, _ in Slots._fields_]
        return self.code(name, handle, base, *places, stream)

    def register_fd(self, fd: int, kind: int = 1) -> tuple[int, int]:
        handle = ctypes.c_void_p()
        descriptor = Descriptor(kind, fd, None)
        code = self.code("hipFileHandleRegister", ctypes.byref(handle), ctypes.byref(descriptor))
        return code, handle.value or 0

    def use_count(self) -> int:
        self._library.hipFileUseCount.restype = ctypes.c_long
        return int(self._library.hipFileUseCount())

    @contextlib.contextmanager
    def opened(self, path: Path, flags: int = os.O_RDWR) -> Iterator[int]:
        fd = os.open(path, flags)
        code, handle = self.register_fd(fd)
        assert code == 0
        try:
            yield handle
        finally:
            self._library.hipFileHandleDeregister(ctypes.c_void_p(handle))
            os.close(fd)

    @contextlib.contextmanager
    def registered(self, base: int, length: int) -> Iterator[None]:
        self("hipFileBufRegister", base, length, 0)
        try:
            yield
        finally:
            self("hipFileBufDeregister", base)


@pytest.fixture
def hipfile() -> HipFile:
    return HipFile()


@pytest.fixture
def data() -> bytes:
    return os.urandom(SIZE)


@pytest.fixture
def handle(hipfile: HipFile, make_file: Any, data: bytes) -> Iterator[int]:
    with hipfile.opened(make_file(data)) as opened:
        yield opened


@pytest.fixture
def buffer(malloc: Any) -> int:
    address: int = malloc(SIZE)
    return address


@pytest.fixture
def counts() -> Iterator[Any]:
    """Counts since the last look, of the names that were asked for."""
    emulator.reset_counters()

    def look(*names: str) -> list[int]:
        found = emulator.counters()
        emulator.reset_counters()
        return [found.get(name, 0) for name in names]

    return look


def on_a_direct_file_system(path: Path) -> bool:
    """Whether this file's system is one that the fast path takes."""
    best, system = "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind = line.split()[:3]
        if str(path.resolve()).startswith(where) and len(where) >= len(best):
            best, system = where, kind
    return system in ("ext4", "xfs")


@pytest.fixture
def needs_fast_path(tmp_path: Path) -> None:
    if not on_a_direct_file_system(tmp_path):
        pytest.skip("the temporary folder is neither on ext4 nor on XFS")


class TestHandles:
    def test_a_file_twice(self, hipfile: HipFile, make_file: Any) -> None:
        path = make_file(b"x")
        with hipfile.opened(path):
            fd = os.open(path, os.O_RDONLY)
            code, other = hipfile.register_fd(fd)
            assert code == 0  # the same file through another descriptor
            assert hipfile.register_fd(fd)[0] == HANDLE_TWICE
            hipfile._library.hipFileHandleDeregister(ctypes.c_void_p(other))
            code, other = hipfile.register_fd(fd)
            assert code == 0
            hipfile._library.hipFileHandleDeregister(ctypes.c_void_p(other))
            os.close(fd)

    def test_what_is_no_file(self, hipfile: HipFile, tmp_path: Path) -> None:
        read_end, write_end = os.pipe()
        folder = os.open(tmp_path, os.O_RDONLY)
        for fd in (read_end, folder):
            assert hipfile.register_fd(fd)[0] == FILE_TYPE
            os.close(fd)
        os.close(write_end)

    def test_other_descriptor_types(self, hipfile: HipFile) -> None:
        assert hipfile.register_fd(0, kind=2)[0] == INVALID
        assert hipfile.code("hipFileHandleRegister", None, None) == INVALID

    def test_unknown_handle(self, hipfile: HipFile, buffer: int, make_file: Any) -> None:
        assert hipfile.read(0x1234, buffer, 1) == -NO_HANDLE
        with hipfile.opened(make_file(b"x")) as handle:
            pass
        assert hipfile.write(handle, buffer, 1) == -NO_HANDLE

    def test_access_mode_is_the_files(self, hipfile: HipFile, make_file: Any, buffer: int) -> None:
        path = make_file(b"x" * SIZE)
        for size in (SIZE, 7):
            with hipfile.opened(path, os.O_RDONLY) as handle:
                assert hipfile.write(handle, buffer, size) == -1
                assert ctypes.get_errno() == errno.EBADF
            with hipfile.opened(path, os.O_WRONLY) as handle:
                assert hipfile.read(handle, buffer, size) == -1
                assert ctypes.get_errno() == errno.EBADF
        assert path.read_bytes() == b"x" * SIZE


class TestRegistrationMap:
    def test_twice_and_not_at_all(self, hipfile: HipFile, buffer: int) -> None:
        assert hipfile.code("hipFileBufDeregister", buffer) == NO_BUFFER
        with hipfile.registered(buffer, SIZE):
            assert hipfile.code("hipFileBufRegister", buffer, BLOCK, 0) == BUFFER_TWICE
            assert hipfile.code("hipFileBufDeregister", buffer + BLOCK) == NO_BUFFER
            with hipfile.registered(buffer + BLOCK, BLOCK):  # another key
                pass
        assert hipfile.code("hipFileBufDeregister", buffer) == NO_BUFFER

    def test_ranges(self, hipfile: HipFile, buffer: int) -> None:
        assert hipfile.code("hipFileBufRegister", buffer, SIZE + 1, 0) == RANGE
        assert hipfile.code("hipFileBufRegister", buffer + 1, SIZE, 0) == RANGE
        assert hipfile.code("hipFileBufRegister", buffer, 0, 0) == INVALID
        assert hipfile.code("hipFileBufRegister", None, SIZE, 0) == INVALID

    def test_memory_types(self, hip: Any, hipfile: HipFile, handle: int, pinned: Any) -> None:
        managed = hip.made("hipMallocManaged", SIZE, 1)
        freed = hip.made("hipMalloc", SIZE)
        hip("hipFree", freed)
        plain = ctypes.addressof(host := ctypes.create_string_buffer(SIZE))
        for address in (managed, pinned(SIZE), freed, plain):
            assert hipfile.code("hipFileBufRegister", address, SIZE, 0) == MEMORY_TYPE
            assert hipfile.read(handle, address, SIZE) == -MEMORY_TYPE
        assert host.raw == bytes(SIZE)
        hip("hipFree", managed)

    def test_a_segment_is_its_own_range(self, hip: Any, hipfile: HipFile) -> None:
        base = emulator.allocate_segments(BLOCK, 2)
        assert hipfile.code("hipFileBufRegister", base, 2 * BLOCK, 0) == RANGE
        hip("hipFree", base)
        hip("hipFree", base + BLOCK)

    def test_only_the_exact_base_is_found(
        self, hipfile: HipFile, handle: int, buffer: int, counts: Any
    ) -> None:
        names = ("hipfile.registered", "hipfile.on_the_fly", "hipPointerGetAttributes")
        with hipfile.registered(buffer, SIZE):
            counts()
            assert hipfile.read(handle, buffer, BLOCK, 0, BLOCK) == BLOCK
            assert counts(*names) == [1, 0, 0]
            assert hipfile.read(handle, buffer + BLOCK, BLOCK) == BLOCK
            assert counts(*names) == [0, 1, 1]

    def test_deregistering_under_a_transfer_fails_and_changes_nothing(
        self, hipfile: HipFile, handle: int, buffer: int, gated: Any
    ) -> None:
        moved: list[int] = []
        with hipfile.registered(buffer, SIZE):
            # The fallback copies on the null stream, which is held up: the transfer is under way.
            with gated(0) as gate:
                emulator.reset_counters()
                thread = threading.Thread(
                    target=lambda: moved.append(hipfile.read(handle, buffer, 1000))
                )
                thread.start()
                while not emulator.counters().get("hipMemcpy"):
                    pass
                assert hipfile.code("hipFileBufDeregister", buffer) == INTERNAL
                gate.open()
                thread.join()
            assert moved == [1000]
            assert hipfile.code("hipFileBufRegister", buffer, SIZE, 0) == BUFFER_TWICE


class TestRangeChecks:
    @pytest.mark.parametrize("registered", [True, False])
    @pytest.mark.parametrize("call", ["read", "write"])
    @pytest.mark.parametrize(
        ("size", "buffer_offset", "result"),
        [
            (SIZE, 0, SIZE),
            (SIZE + 1, 0, -INVALID),
            (1, SIZE - 1, 1),
            (2, SIZE - 1, -INVALID),
            (1, SIZE, -INVALID),
            (0, SIZE, -INVALID),  # nothing, at the very end
            (0, SIZE - 1, 0),
            (2**63 - 1, 1, -INVALID),
        ],
    )
    def test_the_buffers_end(
        self,
        hipfile: HipFile,
        handle: int,
        buffer: int,
        registered: bool,
        call: str,
        size: int,
        buffer_offset: int,
        result: int,
    ) -> None:
        context = hipfile.registered(buffer, SIZE) if registered else contextlib.nullcontext()
        with context:
            assert getattr(hipfile, call)(handle, buffer, size, 0, buffer_offset) == result

    @pytest.mark.parametrize(("file_offset", "buffer_offset"), [(-1, 0), (0, -1)])
    def test_negative_offsets_are_a_system_error(
        self, hipfile: HipFile, handle: int, buffer: int, file_offset: int, buffer_offset: int
    ) -> None:
        assert hipfile.read(handle, buffer, 1, file_offset, buffer_offset) == -1
        assert ctypes.get_errno() == errno.EINVAL

    def test_nothing_guards_the_neighbour_of_an_unregistered_pointer(
        self, hip: Any, hipfile: HipFile, handle: int, buffer: int, data: bytes
    ) -> None:
        # "The rest of the allocation" is the buffer: callers must check for themselves.
        assert hipfile.read(handle, buffer + 100, SIZE - 100) == SIZE - 100
        assert hipfile.read(handle, buffer + 100, SIZE - 99) == -INVALID
        assert hip.download(buffer + 100, SIZE - 100) == data[:-100]

    def test_a_registration_ends_where_it_says(
        self, hipfile: HipFile, handle: int, buffer: int
    ) -> None:
        with hipfile.registered(buffer, BLOCK):
            assert hipfile.read(handle, buffer, BLOCK + 1) == -INVALID
            assert hipfile.read(handle, buffer, BLOCK, 0, BLOCK) == -INVALID


class TestBytes:
    @pytest.mark.parametrize(
        ("file_offset", "buffer_offset", "size"),
        [(0, 0, SIZE), (BLOCK, BLOCK, BLOCK), (1, 0, BLOCK), (0, 1, BLOCK), (0, 0, 1), (3, 5, 7)],
    )
    def test_there_and_back(
        self,
        hip: Any,
        hipfile: HipFile,
        handle: int,
        buffer: int,
        data: bytes,
        make_file: Any,
        file_offset: int,
        buffer_offset: int,
        size: int,
    ) -> None:
        wanted = data[file_offset : file_offset + size]
        hip("hipMemset", buffer, 0, SIZE)
        assert hipfile.read(handle, buffer, size, file_offset, buffer_offset) == size
        whole = hip.download(buffer, SIZE)
        assert whole[buffer_offset : buffer_offset + size] == wanted
        assert not any(whole[:buffer_offset] + whole[buffer_offset + size :])
        other = make_file(b"." * SIZE)
        with hipfile.opened(other) as out:
            assert hipfile.write(out, buffer, size, file_offset, buffer_offset) == size
        after = other.read_bytes()
        assert after[file_offset : file_offset + size] == wanted
        assert after[:file_offset] == b"." * file_offset
        assert after[file_offset + size :] == b"." * (SIZE - file_offset - size)

    @pytest.mark.parametrize("size", [BLOCK, 1000])
    def test_the_end_of_the_file(
        self, hip: Any, hipfile: HipFile, make_file: Any, buffer: int, size: int
    ) -> None:
        with hipfile.opened(make_file(b"x" * (SIZE + 10))) as handle:
            assert hipfile.read(handle, buffer, size, SIZE) == 10
            assert hipfile.read(handle, buffer, size, SIZE + BLOCK) == 0
        # What follows the file's last byte within a block is whatever the disk has there.
        assert hip.download(buffer, 10) == b"x" * 10


class TestPaths:
    NAMES = ("hipfile.fast", "hipfile.fallback")
    FAST, FALLBACK = [1, 0], [0, 1]

    @pytest.mark.usefixtures("needs_fast_path")
    @pytest.mark.parametrize(
        ("file_offset", "buffer_offset", "size", "way"),
        [
            (0, 0, SIZE, FAST),
            (BLOCK, 0, BLOCK, FAST),
            (1, 0, BLOCK, FALLBACK),
            (0, 1, BLOCK, FALLBACK),
            (0, 0, BLOCK + 1, FALLBACK),
        ],
    )
    @pytest.mark.parametrize("call", ["read", "write"])
    def test_one_unaligned_byte_costs_the_whole_request_its_fast_path(
        self,
        hipfile: HipFile,
        handle: int,
        buffer: int,
        counts: Any,
        call: str,
        file_offset: int,
        buffer_offset: int,
        size: int,
        way: list[int],
    ) -> None:
        move = getattr(hipfile, call)
        assert move(handle, buffer, size, file_offset, buffer_offset) == size
        assert counts(*self.NAMES) == way

    def test_other_file_systems_only_when_told(
        self, hipfile: HipFile, buffer: int, counts: Any
    ) -> None:
        path = Path("/dev/shm") / f"hipfile-{os.getpid()}"
        path.write_bytes(b"x" * SIZE)
        try:
            with hipfile.opened(path) as handle:
                assert hipfile.read(handle, buffer, SIZE) == SIZE
                assert counts(*self.NAMES) == self.FALLBACK
                with emulator.faults(eligible=True):
                    assert hipfile.read(handle, buffer, SIZE) == SIZE
                assert counts(*self.NAMES) == self.FAST
        finally:
            path.unlink()

    @pytest.mark.usefixtures("needs_fast_path")
    def test_fallback_forced(
        self,
        hipfile: HipFile,
        handle: int,
        buffer: int,
        counts: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("HIPFILE_FORCE_COMPAT_MODE", "true")
        assert hipfile.read(handle, buffer, SIZE) == SIZE
        assert counts(*self.NAMES) == self.FALLBACK

    def test_fallback_forbidden(
        self,
        hip: Any,
        hipfile: HipFile,
        handle: int,
        buffer: int,
        counts: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("HIPFILE_ALLOW_COMPAT_MODE", "false")
        assert hipfile.read(handle, buffer, 1000) == -IO_NOT_SUPPORTED
        assert counts("hipfile.fallback", "hipMemcpy") == [0, 0]
        assert hip.download(buffer, 1000) == b"\xa5" * 1000

    @pytest.mark.usefixtures("needs_fast_path")
    def test_no_order_with_streams(
        self, hip: Any, hipfile: HipFile, handle: int, buffer: int, data: bytes, gated: Any
    ) -> None:
        # A read does not wait for what is queued, not even on the null stream.
        with gated(0):
            hip("hipMemsetAsync", buffer, 0, SIZE, 0)
            assert hipfile.read(handle, buffer, SIZE) == SIZE
        assert hip.download(buffer, SIZE) == bytes(SIZE)

    def test_bytes_are_counted(
        self, hipfile: HipFile, handle: int, buffer: int, counts: Any
    ) -> None:
        hipfile.read(handle, buffer, SIZE)
        hipfile.write(handle, buffer, 10)
        names = ("hipfile.bytes", "hipFileRead", "hipFileWrite")
        assert counts(*names) == [SIZE + 10, 1, 1]


class TestDriver:
    def test_open_and_close_are_counted(self, python: Any) -> None:
        run = python(
            """
import ctypes
class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("hip_code", ctypes.c_int)]
lib = ctypes.CDLL(str(emulator.library_folder() / "libhipfile.so.0"))
for name in ("hipFileDriverOpen", "hipFileDriverClose", "hipFileBufRegister"):
    getattr(lib, name).restype = Error
hip = ctypes.CDLL(str(emulator.library_folder() / "libamdhip64.so.7"))
p = ctypes.c_void_p()
hip.hipMalloc(ctypes.byref(p), ctypes.c_size_t(4096))
print(lib.hipFileUseCount(), lib.hipFileDriverClose().code)
lib.hipFileBufRegister(p, ctypes.c_size_t(4096), 0)  # opens the driver
print(lib.hipFileUseCount())
lib.hipFileDriverOpen(), lib.hipFileDriverOpen()
print(lib.hipFileUseCount())
print([lib.hipFileDriverClose().code for _ in range(4)], lib.hipFileUseCount())
"""
        )
        assert run.stdout.splitlines() == ["0 5001", "1", "3", "[0, 0, 0, 5001] 0"], run.stderr

    def test_version(self, hipfile: HipFile) -> None:
        parts = [ctypes.c_uint(9) for _ in range(3)]
        hipfile("hipFileGetVersion", *(ctypes.byref(part) for part in parts))
        assert parts[0].value == 0
        assert parts[1].value >= 4


class TestAsynchronous:
    @pytest.mark.parametrize("kind", ["null", "blocking", "non-blocking"])
    @pytest.mark.parametrize("size", [SIZE, 1000])
    def test_slots_are_read_when_the_stream_gets_there(
        self,
        hip: Any,
        hipfile: HipFile,
        handle: int,
        buffer: int,
        data: bytes,
        new_stream: Any,
        gated: Any,
        kind: str,
        size: int,
    ) -> None:
        stream = 0 if kind == "null" else new_stream(1 if kind == "non-blocking" else 0)
        hipfile("hipFileStreamRegister", stream, 0)
        slots = Slots(1, 0, 0, -77)
        with gated(stream):
            hip("hipMemsetAsync", buffer, 0, SIZE, stream)
            assert hipfile.queue("hipFileReadAsync", handle, buffer, slots, stream) == 0
            slots.size, slots.file_offset = size, 0
            assert slots.done == -77
        assert slots.done == size
        assert hip.download(buffer, SIZE) == data[:size] + bytes(SIZE - size)
        hipfile("hipFileStreamDeregister", stream)

    def test_errors_come_in_the_slot(
        self, hip: Any, hipfile: HipFile, handle: int, buffer: int, new_stream: Any
    ) -> None:
        slots, stream = Slots(SIZE + 1, 0, 0, 0), new_stream()
        assert hipfile.queue("hipFileWriteAsync", handle, buffer, slots, stream) == 0
        hip("hipStreamSynchronize", stream)
        assert slots.done == -INVALID

    def test_no_such_stream(self, hipfile: HipFile) -> None:
        assert hipfile.error("hipFileStreamRegister", 0x123000, 0) == (HIP_ERROR, 400)

    def test_old_versions_refuse(self, python: Any) -> None:
        run = python(
            """
import ctypes
class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("hip_code", ctypes.c_int)]
lib = ctypes.CDLL(str(emulator.library_folder() / "libhipfile.so.0"))
for call in (lib.hipFileReadAsync, lib.hipFileWriteAsync):
    call.restype = Error
    print(call(*[None] * 7).code)
""",
            HIPFILE_ARRAYS_EMULATOR_HIPFILE_MINOR="2",
        )
        assert run.stdout.split() == [str(NO_ASYNC)] * 2, run.stderr


class TestFaults:
    def test_short_transfers(self, hip: Any, hipfile: HipFile, handle: int, buffer: int) -> None:
        with emulator.faults(short_io=10):
            assert hipfile.read(handle, buffer, 1000) == 10
            assert hipfile.write(handle, buffer, 1000) == 10
            assert hipfile.read(handle, buffer, 9) == 9
        assert hipfile.read(handle, buffer, 1000) == 1000

    @pytest.mark.usefixtures("needs_fast_path")
    def test_short_transfers_move_whole_blocks_on_the_fast_path(
        self, hipfile: HipFile, handle: int, buffer: int
    ) -> None:
        with emulator.faults(short_io=BLOCK + 1):
            moved = hipfile.read(handle, buffer, SIZE)
        assert 0 < moved <= BLOCK
        assert moved % 512 == 0

    def test_the_limit_of_a_call(self, hipfile: HipFile, handle: int, buffer: int) -> None:
        with emulator.faults(limit=2 * BLOCK):
            assert hipfile.read(handle, buffer, SIZE) == 2 * BLOCK

    def test_interrupted_calls(self, hipfile: HipFile, handle: int, buffer: int) -> None:
        with emulator.faults(eintr=2):
            results = [hipfile.read(handle, buffer, 10) for _ in range(4)]
        assert sorted(results) == [-1, -1, 10, 10]

    def test_an_errno_at_the_nth_transfer(self, hipfile: HipFile, handle: int, buffer: int) -> None:
        with emulator.faults(errno=(errno.ENOSPC, 2)):
            assert hipfile.write(handle, buffer, 10) == 10
            assert hipfile.write(handle, buffer, 10) == -1
            assert ctypes.get_errno() == errno.ENOSPC
            assert hipfile.write(handle, buffer, 10) == 10

    def test_an_entry_at_its_nth_call(
        self, hip: Any, hipfile: HipFile, handle: int, buffer: int
    ) -> None:
        with emulator.faults(entries={"hipFileRead": (2, 5011), "hipMemset": (1, 719)}, times=2):
            results = [hipfile.read(handle, buffer, 10) for _ in range(4)]
            assert results == [10, -5011, -5011, 10]
            assert hip.code("hipMemset", buffer, 0, 1) == 719
        hip("hipMemset", buffer, 0, 1)

    def test_hip_errors_inside_hipfile(self, hipfile: HipFile, handle: int, buffer: int) -> None:
        with emulator.faults(entries={"hipPointerGetAttributes": (1, 1)}):
            assert hipfile.error("hipFileBufRegister", buffer, SIZE, 0) == (HIP_ERROR, 1)
        with emulator.faults(entries={"hipMemGetAddressRange": (1, 500)}):
            assert hipfile.read(handle, buffer, 10) == -500
        with emulator.faults(entries={"hipMemcpy": (1, 719)}):
            assert hipfile.read(handle, buffer, 10) == -719
        with emulator.faults(entries={"hipFileBufRegister": (1, 2)}):
            assert hipfile.error("hipFileBufRegister", buffer, SIZE, 0) == (HIP_ERROR, 2)
        with emulator.faults(entries={"hipFileBufRegister": (1, INTERNAL)}):
            assert hipfile.code("hipFileBufRegister", buffer, SIZE, 0) == INTERNAL

    def test_by_the_environment(self, python: Any, make_file: Any) -> None:
        run = python(
            f"""
import ctypes, os
hip = ctypes.CDLL(str(emulator.library_folder() / "libamdhip64.so.7"))
p = ctypes.c_void_p()
print([hip.hipMalloc(ctypes.byref(p), ctypes.c_size_t(4096)) for _ in range(3)])
import hipfile_arrays as hfa, cupy as cp, warnings
x = hfa.fromfile({str(make_file(b"x" * 1000))!r}, "u1", like=cp, path="library")
assert cp.asnumpy(x).tobytes() == b"x" * 1000
print(emulator.counters()["hipFileRead"])
""",
            HIPFILE_ARRAYS_EMULATOR_FAULTS="short_io=100;hipMalloc@2=2",
        )
        assert run.stdout.splitlines() == ["[0, 2, 0]", "10"], run.stderr


def test_counters_count_calls_by_name(hip: Any) -> None:
    emulator.reset_counters()
    assert emulator.counters() == {}
    hip("hipDeviceSynchronize")
    hip("hipDeviceSynchronize")
    assert emulator.counters() == {"hipDeviceSynchronize": 2}
