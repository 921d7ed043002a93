"""A transfer takes its place in a stream, and the caller goes on. Streams are late or held."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import device_bytes, random_bytes

import hipfile_arrays as hfa
from hipfile_arrays import _native

emulated = pytest.mark.emulated

SIZE = 5 * 65536 + 123  # five chunks and a rest


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    with hfa.config.override(chunk_bytes=65536, threads=2):
        yield


@pytest.fixture(params=["default", "blocking", "non_blocking"])
def stream(request: pytest.FixtureRequest) -> Any:
    if request.param == "default":
        return cp.cuda.Stream.null
    return cp.cuda.Stream(non_blocking=request.param == "non_blocking")


def late() -> Any:
    """Make every operation late; on a GPU they are as late as they are."""
    return (
        hfa.emulator.late_streams(3_000) if hfa.emulator.is_active() else contextlib.nullcontext()
    )


def is_open(path: Path) -> bool:
    """Whether this process holds a file open."""
    open_now = Path("/proc/self/fd").iterdir()
    return any(os.path.samestat(os.stat(fd), path.stat()) for fd in open_now if fd.exists())


@contextlib.contextmanager
def held(stream: Any) -> Iterator[threading.Event]:
    """Hold a stream back until the event is set, at the latest at the end of the block."""
    go_on = threading.Event()
    stream.launch_host_func(lambda _: go_on.wait(20), None)
    try:
        yield go_on
    finally:
        go_on.set()
        stream.synchronize()


def device(data: bytes) -> Any:
    array = cp.asarray(np.frombuffer(data, "u1"))
    cp.cuda.Device().synchronize()
    return array


@pytest.mark.parametrize("size", [1, 4096, 65536, SIZE])
class TestOrder:
    """Earlier work comes first, later work finds what was promised, without any wait."""

    def test_later_work_finds_what_was_read(self, folder: Path, stream: Any, size: int) -> None:
        data = random_bytes(size)
        (folder / "f").write_bytes(data)
        x, y = device(bytes(size)), device(bytes(size))
        with late(), stream, hfa.open(folder / "f") as file:
            transfer = file.read_async(x)
            cp.cuda.runtime.memcpyAsync(y.data.ptr, x.data.ptr, size, 3, stream.ptr)
            x.fill(0)
            stream.synchronize()
            assert device_bytes(y) == data
            assert transfer.result() == size

    def test_earlier_work_is_not_overwritten(self, folder: Path, stream: Any, size: int) -> None:
        data = random_bytes(size)
        (folder / "f").write_bytes(data)
        x = device(bytes(size))
        with late(), stream, hfa.open(folder / "f") as file:
            x.fill(7)  # late: would land on top of what is read
            assert file.read_async(x).result() == size
        assert device_bytes(x) == data

    def test_a_write_takes_values_of_its_place(self, folder: Path, stream: Any, size: int) -> None:
        x = device(bytes(size))
        with late(), stream, hfa.open(folder / "f", "w") as file:
            x.fill(7)
            transfer = file.write_async(x)
            x.fill(9)
            assert transfer.result() == size
        assert (folder / "f").read_bytes() == bytes([7]) * size

    def test_a_read_finds_what_was_written_before(
        self, folder: Path, stream: Any, size: int
    ) -> None:
        x, y = device(bytes(size)), device(bytes(size))
        (folder / "f").write_bytes(bytes(size))
        with late(), stream, hfa.open(folder / "f", "r+") as file:
            x.fill(7)
            written = file.write_async(x)
            written.result()
            read = file.read_async(y)
            wait([written, read])
        assert device_bytes(y) == bytes([7]) * size


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    steps=st.lists(st.sampled_from([1, 2, -1, -2]), min_size=4, max_size=4),
    offset=st.integers(0, 5000),
)
@settings(max_examples=25, deadline=None)
def test_arrays_of_any_strides(
    tmp_path_factory: Any, shape: tuple[int, ...], steps: list[int], offset: int
) -> None:
    file = tmp_path_factory.mktemp("strided") / "f"
    whole = cp.zeros(tuple(2 * n for n in shape), "i4")
    view = whole[tuple(slice(None, None, step) for step, _ in zip(steps, shape, strict=False))]
    values = np.random.default_rng(0).integers(-99, 99, view.shape, "i4")
    file.write_bytes(bytes(offset) + values.tobytes())
    with hfa.open(file, "r+") as opened:
        read = opened.read_async(view, offset)
        doubled = view * 2  # behind the kernel that scatters
        written = opened.write_async(doubled[..., ::-1], offset)
        doubled[...] = 0
        assert (read.result(), written.result()) == (values.nbytes, values.nbytes)
    assert (cp.asnumpy(view) == values).all()
    expected = np.ascontiguousarray((values * 2)[..., ::-1]).tobytes()
    assert file.read_bytes()[offset:] == expected


class TestMeanwhile:
    """The call returns at once; what it uses is kept; nothing of the runtime is asked."""

    def test_the_caller_goes_on(self, make_file: Any) -> None:
        data = random_bytes(SIZE)
        x = device(bytes(SIZE))
        with hfa.open(make_file(data)) as file, held(cp.cuda.Stream.null) as go_on:
            transfer = file.read_async(x)
            assert transfer.running()
            assert not transfer.done()
            assert "under way" in repr(transfer)
            assert transfer.progress == 0
            with pytest.raises(TimeoutError, match=r"reading bytes 0 to .* within 0\.1 s"):
                transfer.result(timeout=0.1)
            go_on.set()
            assert transfer.result() == transfer.progress == transfer.nbytes == SIZE
            assert "done" in repr(transfer)
        assert device_bytes(x) == data

    @emulated
    @pytest.mark.parametrize("reads", [True, False])
    def test_no_call_of_the_runtime_is_made(
        self, make_file: Any, counters: Any, reads: bool
    ) -> None:
        # One could stand still for ever while another thread frees memory.
        x = device(bytes(SIZE))
        with hfa.open(make_file(bytes(SIZE)), "r+") as file, held(cp.cuda.Stream.null) as go_on:
            transfer = file.read_async(x) if reads else file.write_async(x)
            before = counters()
            go_on.set()
            while not transfer.done():
                time.sleep(0.001)
            assert counters() == before

    def test_array_and_file_are_kept_and_memory_may_be_freed(self, tmp_path: Path) -> None:
        data = random_bytes(SIZE)
        with late():
            x = device(data)
            file = hfa.open(tmp_path / "out", "w")
            file.write_async(x)
            del x, file
            gc.collect()
            # Waits for the whole device, with the GIL held.
            cp.get_default_memory_pool().free_all_blocks()
        # The transfer closes the file at its end, some time after the last byte.
        deadline = time.monotonic() + 30
        while is_open(tmp_path / "out") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (tmp_path / "out").read_bytes() == data

    def test_memory_is_freed_all_the_while(self, make_file: Any) -> None:
        # CUDA frees under a lock and waits for every stream: a thread that needed the runtime to
        # go on with a transfer would never get it.
        data = random_bytes(4 << 20)
        x = device(bytes(len(data)))
        with hfa.open(make_file(data)) as file:
            for _ in range(10):
                transfer = file.read_async(x)
                cp.cuda.runtime.free(cp.cuda.runtime.malloc(1 << 20))
                cp.cuda.runtime.freeHost(cp.cuda.runtime.hostAlloc(1 << 20, 0))
                assert transfer.result(timeout=60) == len(data)
        assert device_bytes(x) == data

    def test_closing_the_file_waits(self, tmp_path: Path) -> None:
        data = random_bytes(SIZE)
        x = device(data)
        with late(), hfa.open(tmp_path / "out", "w") as file:
            file.write_async(x)
        assert (tmp_path / "out").read_bytes() == data

    def test_many_at_once(self, make_file: Any) -> None:
        data = random_bytes(100 * 5000)
        streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
        arrays = [device(bytes(5000)) for _ in range(100)]
        with hfa.open(make_file(data)) as file:
            transfers = [
                file.read_async(x, 5000 * i, stream=streams[i % 4].ptr)
                for i, x in enumerate(arrays)
            ]
            assert [transfer.result() for transfer in transfers] == [5000] * 100
        assert b"".join(device_bytes(x) for x in arrays) == data

    @emulated
    def test_registered_buffers_and_the_second_device(self, make_file: Any) -> None:
        data = random_bytes(SIZE)
        with cp.cuda.Device(1):
            x = device(bytes(SIZE))
        with hfa.register(x) as buffer, hfa.open(make_file(data)) as file:
            assert cp.cuda.Device().id == 0
            assert file.read_async(buffer).result() == SIZE
            assert cp.cuda.Device().id == 0
            assert [info.hits for info in hfa.buffers()] == [1]
        assert device_bytes(x) == data

    def test_nothing_is_nothing(self, make_file: Any) -> None:
        with hfa.open(make_file(b"")) as file:
            assert file.read_async(cp.empty((0, 3), "u1")).result() == 0

    @pytest.mark.usefixtures("release")
    def test_pinned_memory_and_threads_are_given_back(self, make_file: Any) -> None:
        with hfa.open(make_file(bytes(SIZE))) as file:
            file.read_async(cp.empty(SIZE, "u1")).result()
        assert _native.pinned_bytes() > 0
        _native.release_resources()
        assert (_native.pinned_bytes(), _native.thread_count()) == (0, 0)


class TestCoroutines:
    """``await`` and asyncio's own waits."""

    def test_await(self, make_file: Any) -> None:
        data = random_bytes(SIZE)
        arrays = [device(bytes(SIZE)) for _ in range(3)]

        async def main(file: hfa.File) -> list[int]:
            return await asyncio.gather(*(file.read_async(x) for x in arrays))

        with hfa.open(make_file(data)) as file:
            assert asyncio.run(main(file)) == [SIZE] * 3
        assert all(device_bytes(x) == data for x in arrays)

    def test_a_cancelled_task_waits_for_the_end(self, make_file: Any) -> None:
        x = device(bytes(SIZE))

        async def main(file: hfa.File, go_on: threading.Event) -> hfa.Transfer:
            transfer = file.read_async(x)

            async def user() -> None:
                await transfer

            task = asyncio.create_task(user())
            await asyncio.sleep(0.05)
            task.cancel()
            asyncio.get_running_loop().call_later(0.05, go_on.set)
            with pytest.raises(asyncio.CancelledError):
                await task
            return transfer

        with hfa.open(make_file(bytes(SIZE))) as file, held(cp.cuda.Stream.null) as go_on:
            transfer = asyncio.run(main(file, go_on))
            assert transfer.done()
            assert transfer.cancelled()


class TestStopping:
    """Cancelled, interrupted, the process ends: the stream goes on and nothing hangs."""

    def test_cancel(self, make_file: Any) -> None:
        data = random_bytes(SIZE)
        x = device(bytes(SIZE))
        with hfa.open(make_file(data)) as file:
            with held(cp.cuda.Stream.null) as go_on:
                transfer = file.read_async(x)
                assert transfer.cancel()
                go_on.set()
                with pytest.raises(CancelledError):
                    transfer.result()
                assert transfer.cancelled()
                assert "cancelled" in repr(transfer)
            assert file.read_async(x).result() == SIZE
            assert device_bytes(x) == data

    def test_cancel_is_too_late(self, make_file: Any) -> None:
        with hfa.open(make_file(bytes(SIZE))) as file:
            transfer = file.read_async(device(bytes(SIZE)))
            assert transfer.result() == SIZE
            assert not transfer.cancel()
            assert not transfer.cancelled()

    def test_ctrl_c_stops_it_and_is_raised(self, make_file: Any) -> None:
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
        x = device(bytes(SIZE))
        with hfa.open(make_file(bytes(SIZE))) as file, held(cp.cuda.Stream.null) as go_on:
            transfer = file.read_async(x)
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            threading.Timer(0.3, go_on.set).start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    transfer.result()
            finally:
                signal.signal(signal.SIGINT, former)
            assert transfer.cancelled()

    @emulated
    @pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "1 / 0"])
    def test_the_process_ends_with_transfers_under_way(self, tmp_path: Path, ending: str) -> None:
        (tmp_path / "in").write_bytes(bytes(SIZE))
        code = f"""
import hipfile_arrays.emulator as emulator
emulator.activate()
import cupy as cp, numpy as np, hipfile_arrays as hfa
hfa.config.set(chunk_bytes=65536)
x = cp.asarray(np.full({SIZE}, 7, "u1"))
file, source = hfa.open({str(tmp_path / "out")!r}, "w"), hfa.open({str(tmp_path / "in")!r})
buffer = hfa.register(cp.empty({SIZE}, "u1"))
with emulator.late_streams(20_000):
    writes = [file.write_async(x, {SIZE} * i) for i in range(3)]
    reads = [source.read_async(buffer) for i in range(3)]
    {ending}
"""
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
        expected = {"": 0, "raise SystemExit(3)": 3, "1 / 0": 1}[ending]
        assert run.returncode == expected, run.stderr
        assert run.stderr == "" if ending != "1 / 0" else "ZeroDivisionError" in run.stderr
        assert (tmp_path / "out").read_bytes() == bytes([7]) * 3 * SIZE

    @emulated
    def test_a_forked_child_cannot_wait_for_it(self, tmp_path: Path) -> None:
        (tmp_path / "in").write_bytes(bytes(SIZE))
        code = f"""
import os, threading
import hipfile_arrays.emulator as emulator
emulator.activate()
import cupy as cp, hipfile_arrays as hfa
go_on = threading.Event()
with hfa.open({str(tmp_path / "in")!r}) as file:
    cp.cuda.Stream.null.launch_host_func(lambda _: go_on.wait(20), None)
    transfer = file.read_async(cp.empty({SIZE}, "u1"))
    pid = os.fork()
    if pid == 0:
        try:
            transfer.result()
        except hfa.StateError as error:
            assert transfer.cancel()
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    go_on.set()
    assert transfer.result() == {SIZE}
"""
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60
        )
        assert run.returncode == 0, run.stderr


class TestFailing:
    """Errors that can be known are raised by the call; the others by whoever waits."""

    def test_a_file_that_is_too_short(self, make_file: Any) -> None:
        x = device(bytes(100))
        with hfa.open(make_file(bytes(99))) as file, pytest.raises(hfa.ShortReadError):
            file.read_async(x)

    def test_a_file_that_shrinks_meanwhile(self, make_file: Any) -> None:
        data = random_bytes(SIZE)
        path = make_file(data)
        x = device(bytes([7]) * SIZE)
        with hfa.open(path) as file:
            with held(cp.cuda.Stream.null):
                transfer = file.read_async(x)
                with open(path, "r+b") as other:
                    other.truncate(100_000)
            with pytest.raises(hfa.ShortReadError, match="shrank while it was read") as caught:
                transfer.result()
            assert caught.value.expected == SIZE
            assert isinstance(transfer.exception(), hfa.ShortReadError)
        assert "failed" in repr(transfer)
        # What was not read is not somebody else's.
        assert not set(device_bytes(x)) - set(data) - {0}

    def test_a_disk_that_is_full(self, tmp_path: Path) -> None:
        x = device(random_bytes(SIZE))
        former = resource.getrlimit(resource.RLIMIT_FSIZE)
        with hfa.open(tmp_path / "f", "w") as file:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, former[1]))
            try:
                transfer = file.write_async(x)
                with pytest.raises(OSError, match=r"writing bytes 0 to .*path staged.*pwritev"):
                    transfer.result()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, former)
            assert file.write_async(x).result() == SIZE

    @emulated
    # Six chunks, of which a write's first four wait for no slot.
    @pytest.mark.parametrize("at", [1, 2, 4])
    @pytest.mark.parametrize(
        ("entry", "reads"),
        [
            ("hipStreamWaitValue32", True),
            ("hipStreamWriteValue32", True),
            ("hipMemcpyAsync", True),
            ("hipStreamWriteValue32", False),
            ("hipMemcpyAsync", False),
        ],
    )
    def test_the_stream_goes_on_when_it_cannot_be_queued(
        self, make_file: Any, at: int, entry: str, reads: bool
    ) -> None:
        x = device(bytes(SIZE))
        with hfa.open(make_file(bytes(SIZE)), "r+") as file:
            file.read_async(x).result()
            with (
                hfa.emulator.faults(entries={entry: (at, 719)}),
                pytest.raises(hfa.HipFileError, match="719"),
            ):
                file.read_async(x) if reads else file.write_async(x)
            cp.cuda.Stream.null.synchronize()
            assert file.read_async(x).result() == SIZE

    def test_nobody_asked(self, make_file: Any) -> None:
        path = make_file(bytes(SIZE))
        with hfa.open(path) as file:
            with held(cp.cuda.Stream.null):
                transfer = file.read_async(cp.empty(SIZE, "u1"))
                with open(path, "r+b") as other:
                    other.truncate(10)
            wait([transfer])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del transfer
            gc.collect()
        assert ["nobody asked" in str(warning.message) for warning in caught] == [True]

    @pytest.mark.parametrize("wish", ["direct", "library"])
    def test_file_libraries_know_no_streams(self, make_file: Any, wish: Any) -> None:
        with (
            hfa.open(make_file(bytes(SIZE))) as file,
            pytest.raises(hfa.DirectPathUnavailable, match="staged"),
        ):
            file.read_async(cp.empty(SIZE, "u1"), path=wish)

    @emulated
    def test_a_capturing_stream(self, make_file: Any) -> None:
        stream = cp.cuda.Stream(non_blocking=True)
        with (
            hfa.open(make_file(bytes(SIZE))) as file,
            hfa.emulator.capturing(stream.ptr),
            pytest.raises(hfa.StateError, match="captured"),
        ):
            file.read_async(cp.empty(SIZE, "u1"), stream=stream.ptr)

    def test_host_memory(self, make_file: Any) -> None:
        with hfa.open(make_file(bytes(10))) as file, pytest.raises(hfa.MemoryTypeError):
            file.read_async(np.empty(10, "u1"))

    @emulated
    def test_a_device_whose_streams_cannot_wait(self, tmp_path: Path) -> None:
        code = f"""
import hipfile_arrays.emulator as emulator
emulator.activate()
import cupy as cp, numpy as np, hipfile_arrays as hfa
x = cp.asarray(np.full({SIZE}, 7, "u1"))
with hfa.open({str(tmp_path / "f")!r}, "w") as file:
    with emulator.faults(entries={{"hipStreamWaitValue32": (1, 801)}}):
        assert file.write_async(x).done()
    y = cp.empty_like(x)
    assert file.read_async(y).done()
    assert (cp.asnumpy(y) == 7).all()
"""
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )
        assert run.returncode == 0, run.stderr
