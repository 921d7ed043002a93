"""Order: files hold finished values, arrays are complete when a read returns. Streams are late."""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np
import pytest
from support import device_bytes, random_bytes

import hipfile_arrays as hfa

pytestmark = pytest.mark.emulated

PATHS = ["library", "auto", "staged", "direct"]
LATE = 30_000  # microseconds
SIZES = [4096, 1 << 20]


@pytest.fixture(params=["default", "blocking", "non_blocking"])
def stream(request: pytest.FixtureRequest) -> Any:
    if request.param == "default":
        return cp.cuda.Stream.null
    return cp.cuda.Stream(non_blocking=request.param == "non_blocking")


def pinned(data: bytes) -> Any:
    memory = cp.cuda.alloc_pinned_memory(len(data))
    array = np.frombuffer(memory, "u1", len(data))
    array[:] = np.frombuffer(data, "u1")
    return array


def zeros(size: int) -> Any:
    array = cp.asarray(np.zeros(size, "u1"))
    cp.cuda.Device().synchronize()  # the upload itself must not be what is late
    return array


@pytest.mark.parametrize("path_taken", PATHS)
@pytest.mark.parametrize("size", SIZES)
def test_write_sees_work_queued_before(
    tmp_path: Any, stream: Any, path_taken: Any, size: int
) -> None:
    data = random_bytes(size)
    source = pinned(data)
    x = zeros(size)
    with hfa.emulator.late_streams(LATE), stream:
        x.set(source, stream=stream)  # late: still under way when tofile is called
        assert not stream.done
        hfa.tofile(x, tmp_path / "f", path=path_taken)
    assert (tmp_path / "f").read_bytes() == data


@pytest.mark.parametrize("path_taken", PATHS)
@pytest.mark.parametrize("size", SIZES)
def test_read_waits_for_work_that_still_uses_the_array(
    make_file: Any, stream: Any, path_taken: Any, size: int
) -> None:
    data, former = random_bytes(size), random_bytes(size, seed=1)
    file = make_file(data)
    source = pinned(former)
    x = cp.empty(size, "u1")
    with hfa.emulator.late_streams(LATE), stream:
        x.set(source, stream=stream)  # would land on top of what is read
        hfa.fromfile(file, out=x, path=path_taken)
    cp.cuda.Device().synchronize()
    assert device_bytes(x) == data


@pytest.mark.parametrize("path_taken", PATHS)
@pytest.mark.parametrize("size", SIZES)
def test_read_is_complete_for_every_stream(
    make_file: Any, stream: Any, path_taken: Any, size: int
) -> None:
    data = random_bytes(size)
    other = cp.cuda.Stream(non_blocking=True)
    with hfa.emulator.late_streams(LATE):
        with stream:
            x = hfa.fromfile(make_file(data), "u1", like=cp, path=path_taken)
        host = np.empty(size, "u1")
        with hfa.emulator.late_streams(0):
            x.get(stream=other, out=host)
        other.synchronize()
    assert host.tobytes() == data


@pytest.mark.parametrize("path_taken", ["auto", "library"])
def test_stream_can_be_named(tmp_path: Any, path_taken: Any) -> None:
    mine = cp.cuda.Stream(non_blocking=True)
    data = random_bytes(100_000)
    source = pinned(data)
    x = zeros(len(data))
    with hfa.emulator.late_streams(LATE):
        x.set(source, stream=mine)
        hfa.tofile(x, tmp_path / "f", stream=mine.ptr, path=path_taken)
    assert (tmp_path / "f").read_bytes() == data


@pytest.mark.parametrize("size", SIZES)
def test_capturing_stream_is_refused_in_words(make_file: Any, size: int) -> None:
    mine = cp.cuda.Stream(non_blocking=True)
    x = cp.empty(size, "u1")
    file = make_file(bytes(size))
    with hfa.emulator.capturing(mine.ptr):
        for path_taken in ("auto", "library"):
            with pytest.raises(hfa.StateError, match="captured into a graph"):
                hfa.fromfile(file, out=x, stream=mine.ptr, path=path_taken)
    hfa.fromfile(file, out=x, stream=mine.ptr)


def test_interrupt_stops_the_transfer_and_leaves_nothing_running(make_file: Any) -> None:
    import os
    import signal
    import threading

    file = make_file(bytes(64 << 20))
    x = cp.empty(64 << 20, "u1")
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    # A shell may have started us with SIGINT ignored (background jobs are).
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    # 5 ms late for each of many chunks: the transfer would take seconds.
    with (
        hfa.config.override(threads=2, chunk_bytes=64 * 1024, pinned_limit_bytes=1 << 20),
        hfa.emulator.late_streams(5_000),
    ):
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            hfa.fromfile(file, out=x, path="staged")
    timer.join()
    signal.signal(signal.SIGINT, former)
    hfa.fromfile(file, out=x, path="staged")
    assert not cp.asnumpy(x).any()
