"""Streams really run late and in HIP's order; nothing is left when they go."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

import cupy as cp
import numpy as np
import pytest

from hipfile_arrays import emulator

NOT_READY, INVALID_HANDLE, ILLEGAL_ADDRESS = 600, 400, 700
D2H, NON_BLOCKING = 2, 1
SIZE = 4096
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@pytest.fixture
def old_and_new(hip: Any, malloc: Any, pinned: Any) -> tuple[int, int]:
    """Device memory that holds new bytes, pinned memory that holds old ones."""
    device, host = malloc(SIZE), pinned(SIZE)
    hip.upload(device, b"n" * SIZE)
    ctypes.memset(host, ord("o"), SIZE)
    return device, host


def content(host: int) -> str:
    data = ctypes.string_at(host, SIZE)
    assert len(set(data)) == 1
    return chr(data[0])


class TestAsynchrony:
    def test_a_copy_waits_for_what_was_queued_before(
        self, hip: Any, old_and_new: Any, new_stream: Any, gated: Any
    ) -> None:
        device, host = old_and_new
        stream = new_stream(NON_BLOCKING)
        with gated(stream):
            hip("hipMemcpyAsync", host, device, SIZE, D2H, stream)
            assert hip.code("hipStreamQuery", stream) == NOT_READY
            assert content(host) == "o"
        assert hip.code("hipStreamQuery", stream) == 0
        assert content(host) == "n"
        assert hip.code("hipPeekAtLastError") == 0  # "not ready" is no error

    def test_a_missing_dependency_reads_old_data(
        self, hip: Any, old_and_new: Any, new_stream: Any, gated: Any
    ) -> None:
        device, host = old_and_new
        writer, reader = new_stream(NON_BLOCKING), new_stream(NON_BLOCKING)
        with gated(writer):
            hip("hipMemsetAsync", device, ord("N"), SIZE, writer)
            hip("hipMemcpyAsync", host, device, SIZE, D2H, reader)
            hip("hipStreamSynchronize", reader)
            assert content(host) == "n"

    def test_an_event_is_a_dependency(
        self, hip: Any, old_and_new: Any, new_stream: Any, gated: Any
    ) -> None:
        device, host = old_and_new
        writer, reader = new_stream(NON_BLOCKING), new_stream(NON_BLOCKING)
        event = hip.made("hipEventCreateWithFlags", 2)
        with gated(writer):
            hip("hipMemsetAsync", device, ord("N"), SIZE, writer)
            hip("hipEventRecord", event, writer)
            hip("hipStreamWaitEvent", reader, event, 0)
            hip("hipMemcpyAsync", host, device, SIZE, D2H, reader)
            assert hip.code("hipEventQuery", event) == NOT_READY
            assert hip.code("hipStreamQuery", reader) == NOT_READY
        hip("hipStreamSynchronize", reader)
        assert hip.code("hipEventQuery", event) == 0
        assert content(host) == "N"
        hip("hipEventDestroy", event)

    def test_late_streams_show_a_missing_synchronisation(
        self, hip: Any, old_and_new: Any, new_stream: Any
    ) -> None:
        device, host = old_and_new
        stream = new_stream(NON_BLOCKING)
        with emulator.late_streams(500_000):
            hip("hipMemcpyAsync", host, device, SIZE, D2H, stream)
            assert content(host) == "o"
            hip("hipStreamSynchronize", stream)
        assert content(host) == "n"

    def test_synchronous_mode_hides_them(self, python: Any) -> None:
        run = python(
            """
import cupy as cp
stream = cp.cuda.Stream(non_blocking=True)
with stream:
    cp.zeros(1000)
assert stream.done
""",
            HIPFILE_ARRAYS_EMULATOR_SYNC="1",
            HIPFILE_ARRAYS_EMULATOR_LATE_US="100000",
        )
        assert run.returncode == 0, run.stderr


class TestNullStream:
    """The null stream and blocking streams wait for each other; non-blocking ones for nobody."""

    def test_null_waits_for_blocking(
        self, hip: Any, old_and_new: Any, new_stream: Any, gated: Any
    ) -> None:
        device, host = old_and_new
        with gated(new_stream()):
            hip("hipMemcpyAsync", host, device, SIZE, D2H, 0)
            assert hip.code("hipStreamQuery", 0) == NOT_READY
            assert content(host) == "o"
        hip("hipStreamSynchronize", 0)
        assert content(host) == "n"

    def test_blocking_waits_for_null(
        self, hip: Any, old_and_new: Any, new_stream: Any, gated: Any
    ) -> None:
        device, host = old_and_new
        stream = new_stream()
        with gated(0):
            hip("hipMemcpyAsync", host, device, SIZE, D2H, stream)
            assert hip.code("hipStreamQuery", stream) == NOT_READY
            assert content(host) == "o"
        hip("hipStreamSynchronize", stream)
        assert content(host) == "n"

    @pytest.mark.parametrize("busy", ["null", "blocking"])
    def test_non_blocking_waits_for_neither(
        self, hip: Any, old_and_new: Any, new_stream: Any, gated: Any, busy: str
    ) -> None:
        device, host = old_and_new
        stream = new_stream(NON_BLOCKING)
        with gated(0 if busy == "null" else new_stream()):
            hip("hipMemcpyAsync", host, device, SIZE, D2H, stream)
            hip("hipStreamSynchronize", stream)
            assert content(host) == "n"

    def test_blocking_streams_do_not_wait_for_each_other(
        self, hip: Any, old_and_new: Any, new_stream: Any, gated: Any
    ) -> None:
        device, host = old_and_new
        free = new_stream()
        with gated(new_stream()):
            hip("hipMemcpyAsync", host, device, SIZE, D2H, free)
            hip("hipStreamSynchronize", free)
            assert content(host) == "n"

    def test_devices_have_their_own(
        self, hip: Any, old_and_new: Any, gated: Any, pinned: Any
    ) -> None:
        host = pinned(SIZE)
        with gated(0):
            hip("hipSetDevice", 1)
            there = hip.made("hipMalloc", SIZE)
            hip("hipMemsetAsync", there, ord("t"), SIZE, 0)
            hip("hipMemcpyAsync", host, there, SIZE, D2H, 0)
            hip("hipStreamSynchronize", 0)
            assert content(host) == "t"
            hip("hipFree", there)
            hip("hipSetDevice", 0)
            assert hip.code("hipStreamQuery", 0) == NOT_READY


def runs_in_a_thread(hip: Any, name: str, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=hip, args=(name, *arguments))
    thread.start()
    return thread


class TestWhatWaits:
    """Calls that the host may rely on to wait, behind work that has not run."""

    def test_free(self, hip: Any, old_and_new: Any, new_stream: Any, gated: Any) -> None:
        device, host = hip.made("hipMalloc", SIZE), old_and_new[1]
        hip.upload(device, b"n" * SIZE)
        stream = new_stream(NON_BLOCKING)
        with gated(stream) as gate:
            hip("hipMemcpyAsync", host, device, SIZE, D2H, stream)
            thread = runs_in_a_thread(hip, "hipFree", device)
            thread.join(0.1)
            assert thread.is_alive()
            gate.open()
            thread.join(60)
        assert content(host) == "n"

    def test_host_free_waits_for_every_device(
        self, hip: Any, pinned: Any, new_stream: Any, gated: Any
    ) -> None:
        host = hip.made("hipHostMalloc", SIZE, 0)
        hip("hipSetDevice", 1)
        device, stream = hip.made("hipMalloc", SIZE), new_stream(NON_BLOCKING)
        with gated(stream) as gate:
            hip("hipMemcpyAsync", host, device, SIZE, D2H, stream)
            hip("hipSetDevice", 0)
            thread = runs_in_a_thread(hip, "hipHostFree", host)
            thread.join(0.1)
            assert thread.is_alive()
            gate.open()
            thread.join(60)
        hip("hipFree", device)

    def test_copy_to_pageable_memory(
        self, hip: Any, old_and_new: Any, new_stream: Any, gated: Any
    ) -> None:
        device, _ = old_and_new
        host = ctypes.create_string_buffer(SIZE)
        stream = new_stream(NON_BLOCKING)
        with gated(stream) as gate:
            thread = runs_in_a_thread(hip, "hipMemcpyAsync", host, device, SIZE, D2H, stream)
            thread.join(0.1)
            assert thread.is_alive()
            gate.open()
            thread.join(60)
            assert host.raw == b"n" * SIZE

    def test_copy_from_pageable_memory_takes_the_bytes_at_once(
        self, hip: Any, malloc: Any, new_stream: Any, gated: Any
    ) -> None:
        device = malloc(SIZE)
        host = ctypes.create_string_buffer(b"1" * SIZE, SIZE)
        stream = new_stream(NON_BLOCKING)
        with gated(stream):
            hip("hipMemcpyAsync", device, host, SIZE, 1, stream)
            host.raw = b"2" * SIZE
        assert hip.download(device, SIZE) == b"1" * SIZE

    def test_copy_from_pinned_memory_does_not(
        self, hip: Any, malloc: Any, pinned: Any, new_stream: Any, gated: Any
    ) -> None:
        device, host = malloc(SIZE), pinned(SIZE)
        stream = new_stream(NON_BLOCKING)
        with gated(stream):
            hip("hipMemcpyAsync", device, host, SIZE, 1, stream)
            ctypes.memset(host, ord("2"), SIZE)
        assert hip.download(device, SIZE) == b"2" * SIZE


class TestErrors:
    def test_a_late_error_is_told_once_by_the_next_synchronisation(
        self, hip: Any, malloc: Any, new_stream: Any, gated: Any, make_file: Any
    ) -> None:
        path = make_file(b"x" * SIZE)
        with path.open("rb") as file:
            mapped = np.memmap(file, "u1", "r")
            address = mapped.ctypes.data
            hip("hipHostRegister", address, SIZE, 8)
            device, stream = malloc(SIZE), new_stream(NON_BLOCKING)
            with gated(stream) as gate:
                hip("hipMemcpyAsync", device, address, SIZE, 1, stream)
                os.truncate(path, 0)
                gate.open()
                assert hip.code("hipStreamSynchronize", stream) == ILLEGAL_ADDRESS
                hip("hipStreamSynchronize", stream)
            hip("hipHostUnregister", address)
            mapped._mmap.close()

    def test_another_devices_stream(self, hip: Any, malloc: Any, new_stream: Any) -> None:
        device, stream = malloc(SIZE), new_stream()
        hip("hipSetDevice", 1)
        assert hip.code("hipMemsetAsync", device, 0, SIZE, stream) == INVALID_HANDLE
        data = b"x" * SIZE
        assert hip.code("hipMemcpyAsync", device, data, SIZE, 1, stream) == INVALID_HANDLE
        which = ctypes.c_int()
        hip("hipStreamGetDevice", stream, ctypes.byref(which))
        assert which.value == 0

    def test_what_is_no_stream(self, hip: Any) -> None:
        stream = hip.made("hipStreamCreateWithFlags", 0)
        hip("hipStreamDestroy", stream)
        for call in ("hipStreamSynchronize", "hipStreamQuery", "hipStreamDestroy"):
            assert hip.code(call, 12345 << 12) == INVALID_HANDLE
            assert hip.code(call, stream) == INVALID_HANDLE
        assert hip.code("hipStreamDestroy", 0) == INVALID_HANDLE

    def test_capturing_streams_say_so_and_refuse(
        self, hip: Any, malloc: Any, new_stream: Any
    ) -> None:
        stream, device, status = new_stream(), malloc(16), ctypes.c_int()
        with emulator.capturing(stream):
            hip("hipStreamIsCapturing", stream, ctypes.byref(status))
            assert status.value == 1
            assert hip.code("hipMemcpyAsync", device, b"x" * 16, 16, 1, stream) == 900
        hip("hipStreamIsCapturing", stream, ctypes.byref(status))
        assert status.value == 0


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


class TestLifetime:
    def test_a_destroyed_stream_finishes_its_work(
        self, hip: Any, old_and_new: Any, gated: Any
    ) -> None:
        device, host = old_and_new
        stream = hip.made("hipStreamCreateWithFlags", NON_BLOCKING)
        done = threading.Event()
        gate = threading.Event()
        hold = HOST_FUNCTION(lambda _: gate.wait(60) and None)
        tell = HOST_FUNCTION(lambda _: done.set())
        hip("hipLaunchHostFunc", stream, hold, None)
        hip("hipMemcpyAsync", host, device, SIZE, D2H, stream)
        hip("hipLaunchHostFunc", stream, tell, None)
        hip("hipStreamDestroy", stream)
        assert content(host) == "o"
        gate.set()
        assert done.wait(60)
        assert content(host) == "n"

    def test_no_thread_is_left(self, hip: Any) -> None:
        hip("hipDeviceSynchronize")
        hip("hipStreamSynchronize", 0)  # the null stream has its thread
        before = thread_count()
        streams = [hip.made("hipStreamCreateWithFlags", NON_BLOCKING) for _ in range(50)]
        assert thread_count() == before + 50
        for stream in streams:
            hip("hipMemsetAsync", 0, 0, 0, stream)
            hip("hipStreamDestroy", stream)
        deadline = time.monotonic() + 60
        while thread_count() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert thread_count() == before

    @pytest.mark.parametrize("end", ["", "import os; os._exit(0)", "raise SystemExit(0)"])
    def test_a_process_may_end_with_work_pending(self, python: Any, end: str) -> None:
        run = python(
            f"""
import cupy as cp
streams = [cp.cuda.Stream(non_blocking=i % 2 == 0) for i in range(8)]
emulator.late_streams(300_000).__enter__()
for stream in streams:
    with stream:
        for _ in range(20):
            cp.empty(1000).data.memset_async(0, 1000)
{end}
"""
        )
        assert (run.returncode, run.stderr) == (0, "")

    def test_a_forked_child_is_told_and_the_parent_goes_on(self, python: Any) -> None:
        run = python(
            """
import ctypes, os
hip = ctypes.CDLL(str(emulator.library_folder() / "libamdhip64.so.7"))
assert hip.hipDeviceSynchronize() == 0
child = os.fork()
if child == 0:
    codes = {hip.hipDeviceSynchronize(), hip.hipInit(0), hip.hipFree(None),
             hip.hipStreamSynchronize(None)}
    os._exit(7 if codes == {3} else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert hip.hipDeviceSynchronize() == 0
"""
        )
        assert run.returncode == 0, run.stderr
        assert run.stderr.count("\n") == 1
        assert "hipDeviceSynchronize called in a forked child" in run.stderr


class TestEvents:
    def test_elapsed_time(self, hip: Any, new_stream: Any) -> None:
        stream = new_stream()
        first, last = hip.made("hipEventCreateWithFlags", 0), hip.made("hipEventCreate")
        elapsed = ctypes.c_float(-1)
        assert hip.code("hipEventElapsedTime", ctypes.byref(elapsed), first, last) == INVALID_HANDLE
        hip("hipEventRecord", first, stream)
        hip("hipEventRecord", last, stream)
        hip("hipEventSynchronize", last)
        hip("hipEventElapsedTime", ctypes.byref(elapsed), first, last)
        assert elapsed.value >= 0
        untimed = hip.made("hipEventCreateWithFlags", 2)
        hip("hipEventRecord", untimed, stream)
        hip("hipEventSynchronize", untimed)
        code = hip.code("hipEventElapsedTime", ctypes.byref(elapsed), first, untimed)
        assert code == INVALID_HANDLE
        for event in (first, last, untimed):
            hip("hipEventDestroy", event)
        assert hip.code("hipEventDestroy", 0) == INVALID_HANDLE

    def test_recording_again_moves_the_event(self, hip: Any, new_stream: Any, gated: Any) -> None:
        event, stream = hip.made("hipEventCreate"), new_stream()
        hip("hipEventRecord", event, stream)
        hip("hipEventSynchronize", event)
        with gated(stream):
            hip("hipEventRecord", event, stream)
            assert hip.code("hipEventQuery", event) == NOT_READY
        hip("hipEventDestroy", event)

    def test_never_recorded_is_reached(self, hip: Any, new_stream: Any) -> None:
        event = hip.made("hipEventCreate")
        assert hip.code("hipEventQuery", event) == 0
        hip("hipStreamWaitEvent", new_stream(), event, 0)
        hip("hipEventDestroy", event)


class TestCuPy:
    def test_stream_event_and_host_function(self, gated: Any) -> None:
        stream, seen = cp.cuda.Stream(non_blocking=True), []
        with gated(stream.ptr), stream:
            x = cp.zeros(1000, "u1")
            stream.launch_host_func(seen.append, "after the memset")
            event = stream.record()
            assert not stream.done
            assert not event.done
            assert seen == []
        event.synchronize()
        assert stream.done
        assert seen == ["after the memset"]
        assert x.get(stream=stream).sum() == 0

    def test_300_streams(self) -> None:
        x = np.arange(300 * 100).reshape(300, 100)
        streams = [cp.cuda.Stream(non_blocking=True) for _ in range(300)]
        arrays = []
        for stream, row in zip(streams, x, strict=True):
            with stream:
                arrays.append(cp.asarray(row))
        for stream, array, row in zip(streams, arrays, x, strict=True):
            assert np.array_equal(array.get(stream=stream), row)

    def test_threads_have_their_own_current_device(self) -> None:
        found: list[int] = []
        with cp.cuda.Device(1):
            thread = threading.Thread(target=lambda: found.append(cp.cuda.runtime.getDevice()))
            thread.start()
            thread.join()
            assert cp.cuda.runtime.getDevice() == 1
        assert found == [0]
