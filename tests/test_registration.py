"""`register`: lifetime, sharing, and what happens when the library will not."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import cupy as cp
import numpy as np
import pytest
from support import device_bytes, random_bytes

import hipfile_arrays as hfa


def test_context_manager_registers_and_deregisters() -> None:
    x = cp.empty(1000, "f4")
    with hfa.register(x) as buffer:
        assert buffer.registered
        (info,) = hfa.buffers()
        assert (info.pointer, info.nbytes, info.device) == (x.data.ptr, 4000, 0)
    assert not buffer.registered
    assert buffer.closed
    assert hfa.buffers() == []


def test_close_is_idempotent() -> None:
    buffer = hfa.register(cp.empty(10))
    buffer.close()
    buffer.close()


@pytest.mark.emulated
def test_same_memory_twice_is_one_registration(counters: Any) -> None:
    x = cp.empty(1000, "f4")
    first = hfa.register(x)
    second = hfa.register(x.view("i4"))
    assert counters()["hipFileBufRegister"] == 1
    first.close()
    assert len(hfa.buffers()) == 1
    second.close()
    assert hfa.buffers() == []
    assert counters()["hipFileBufDeregister"] == 1


def test_overlapping_memory_is_refused_in_words() -> None:
    x = cp.empty(1000, "f4")
    with hfa.register(x):
        for part in (x[:500], x[10:], x[5:10]):
            with pytest.raises(hfa.StateError, match="overlaps"):
                hfa.register(part)
    with hfa.register(x[:500]), hfa.register(x[500:]):
        assert len(hfa.buffers()) == 2


def test_use_after_close(make_file: Any) -> None:
    x = cp.empty(4, "u1")
    buffer = hfa.register(x)
    buffer.close()
    with hfa.open(make_file(b"abcd")) as file:
        for use in (
            lambda: file.read(buffer),
            lambda: hfa.fromfile(file, out=buffer),
            lambda: hfa.tofile(buffer, file),
        ):
            with pytest.raises(hfa.StateError, match="closed"):
                use()
        file.read(x)  # the array itself is as good as before
    assert device_bytes(x) == b"abcd"


def test_array_freed_while_registered_keeps_its_memory(make_file: Any) -> None:
    x = cp.asarray(np.zeros(1 << 20, "u1"))
    pointer = x.data.ptr
    buffer = hfa.register(x)
    buffer.array = None
    del x
    gc.collect()
    # The pool cannot hand the memory out again: the registration owns a reference to it.
    y = cp.empty(1 << 20, "u1")
    assert y.data.ptr != pointer
    buffer.close()


def test_address_used_again_has_no_stale_entry(make_file: Any) -> None:
    data = random_bytes(1 << 20)
    file = make_file(data)
    x = cp.empty(1 << 20, "u1")
    pointer = x.data.ptr
    buffer = hfa.register(x)
    buffer.close()
    del x, buffer
    y = cp.empty(1 << 20, "u1")
    assert y.data.ptr == pointer  # the pool gives the block out again
    hfa.fromfile(file, out=y, path="library")
    assert device_bytes(y) == data
    with hfa.register(y) as again:
        assert again.registered


def test_forgotten_buffer_is_deregistered_when_collected() -> None:
    hfa.register(cp.empty(10))
    gc.collect()
    assert hfa.buffers() == []


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: cp.empty((10, 10))[:, ::2], ValueError, "contiguous"),
        (lambda: cp.empty(0), ValueError, "empty"),
        (lambda: np.empty(10), hfa.MemoryTypeError, "host memory"),
    ],
)
def test_what_cannot_be_registered(make: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        hfa.register(make())


@pytest.mark.emulated
def test_closing_waits_for_transfers_under_way(make_file: Any) -> None:
    data = random_bytes(8 << 20)
    x = cp.empty(len(data), "u1")
    done: list[int] = []
    with hfa.open(make_file(data)) as file, hfa.emulator.late_streams(20_000):
        buffer = hfa.register(x)
        started = threading.Event()

        def read() -> None:
            started.set()
            done.append(file.read(buffer, path="staged"))

        thread = threading.Thread(target=read)
        thread.start()
        started.wait()
        while not hfa.buffers()[0].hits:
            pass
        buffer.close()
        # The read had all of the memory until it was through.
        thread.join()
    assert done == [len(data)]
    assert device_bytes(x) == data


@pytest.mark.emulated
@pytest.mark.parametrize("code", [5036, 2])
def test_library_that_refuses_the_memory_is_told_and_transfers_work(
    make_file: Any, code: int
) -> None:
    data = random_bytes(100_000)
    x = cp.empty(len(data), "u1")
    with (
        hfa.emulator.faults(entries={"hipFileBufRegister": (1, code)}),
        pytest.warns(hfa.RegistrationWarning, match=str(code)),
    ):
        buffer = hfa.register(x)
    assert not buffer.registered
    assert str(code) in buffer.because
    with buffer, hfa.open(make_file(data)) as file:
        for path_taken in ("auto", "staged", "library"):
            file.read(buffer, path=path_taken)
            assert device_bytes(x) == data


@pytest.mark.emulated
def test_registration_made_by_others_is_used_and_left_alone(make_file: Any, counters: Any) -> None:
    import ctypes

    library = ctypes.CDLL(str(hfa.emulator.library_folder() / "libhipfile.so.0"))

    class FileError(ctypes.Structure):
        _fields_ = [("code", ctypes.c_int), ("hip", ctypes.c_int)]

    library.hipFileBufRegister.restype = library.hipFileBufDeregister.restype = FileError
    x = cp.empty(4096, "u1")
    pointer = ctypes.c_void_p(x.data.ptr)
    assert library.hipFileBufRegister(pointer, ctypes.c_size_t(4096), 0).code == 0
    try:
        with hfa.register(x) as buffer:
            assert buffer.registered
            with hfa.open(make_file(random_bytes(4096))) as file:
                file.read(buffer, path="library")
            assert counters()["hipfile.registered"] >= 1
            assert "hipfile.on_the_fly" not in counters()
    finally:
        # Still there: it was not ours to end.
        assert library.hipFileBufDeregister(pointer).code == 0


@pytest.mark.emulated
@pytest.mark.parametrize(
    "ending",
    ["", "buffer.close()", "del buffer", "import gc; gc.collect(); sys.exit(0)", "file.close()"],
)
def test_interpreter_exit_with_live_registrations(tmp_path: Any, ending: str) -> None:
    script = f"""
import sys
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp, hipfile_arrays as hfa
x = cp.empty(1 << 20, "u1")
buffer = hfa.register(x)
file = hfa.open({str(tmp_path / "f")!r}, "w")
file.write(buffer)
keep = [buffer, file, hfa.register(cp.empty(10))]
{ending}
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""


@pytest.mark.emulated
def test_a_device_that_cannot_be_made_current_any_more_keeps_no_registration() -> None:
    x = cp.empty(1000, "f4")
    buffer = hfa.register(x)
    with hfa.emulator.faults(entries={"hipGetDevice": (1, 719)}):
        buffer.close()
    assert hfa.buffers() == []
    assert hfa.emulator.live()["registered buffers"] == 0
    with hfa.register(x) as again:
        assert again.registered


@pytest.mark.emulated
def test_a_forked_child_closes_what_it_has_without_the_gpu_libraries(tmp_path: Any) -> None:
    script = """
import os, sys, warnings
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp, hipfile_arrays as hfa
warnings.simplefilter("ignore")
x = cp.zeros(4096, "u1")
x.tofile(sys.argv[1])
buffer, file = hfa.register(x), hfa.open(sys.argv[1])
file.read(buffer)
pid = os.fork()
if pid == 0:
    buffer.close()
    file.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert len(hfa.buffers()) == 1 and buffer.registered
assert file.read(buffer) == 4096
"""
    subprocess.run([sys.executable, "-c", script, tmp_path / "f"], check=True, timeout=60)
