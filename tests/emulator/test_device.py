"""The emulated device as CuPy's wheel meets it."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest

from hipfile_arrays import emulator

pytestmark = pytest.mark.emulated

runtime = cp.cuda.runtime


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *(arguments or ("-c", code))],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


class TestArrays:
    """What needs no kernel."""

    def test_copies_there_and_back(self) -> None:
        host = np.random.default_rng(0).random((7, 11))
        assert np.array_equal(cp.asarray(host).get(), host)
        assert np.array_equal(cp.asnumpy(cp.asarray(host)[2:5]), host[2:5])

    def test_exports_and_imports_dlpack_as_rocm(self) -> None:
        x = cp.empty((3, 4), "f4")
        assert x.__dlpack_device__() == (10, 0)
        assert cp.from_dlpack(x).data.ptr == x.data.ptr

    def test_two_devices(self) -> None:
        assert runtime.getDeviceCount() == 2
        with cp.cuda.Device(1):
            x = cp.asarray(np.arange(5))
        assert x.device.id == 1
        assert runtime.pointerGetAttributes(x.data.ptr).device == 1
        assert cp.asarray(x).get().tolist() == [0, 1, 2, 3, 4]

    def test_pool_gives_memory_back(self) -> None:
        pool = cp.get_default_memory_pool()
        pool.free_all_blocks()
        free, total = runtime.memGetInfo()
        x = cp.empty(50 << 20, "u1")
        assert runtime.memGetInfo()[0] <= free - (50 << 20)
        del x
        pool.free_all_blocks()
        assert runtime.memGetInfo() == (free, total)

    def test_out_of_memory_is_told(self) -> None:
        with pytest.raises(cp.cuda.memory.OutOfMemoryError):
            cp.empty(1 << 40, "u1")

    def test_sparse_arrays_of_many_gib_cost_nothing(self) -> None:
        x = cp.empty(5 << 30, "u1")
        x[-3:].set(np.array([1, 2, 3], "u1"))
        assert x[-3:].get().tolist() == [1, 2, 3]
        del x
        cp.get_default_memory_pool().free_all_blocks()


class TestHostAccess:
    """Device memory is not the host's to touch."""

    def test_faults(self) -> None:
        for touch in ("ctypes.string_at(p, 1)", "ctypes.memset(p, 1, 1)"):
            run = python(f"""
import ctypes
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp
x = cp.empty(100, "u1")
p = x.data.ptr
{touch}
print("unnoticed")
""")
            assert run.returncode == -11
            assert "unnoticed" not in run.stdout

    def test_system_calls_get_efault(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"1234")
        x = cp.empty(4, "u1")
        buffer = (ctypes.c_char * 4).from_address(x.data.ptr)
        with open(tmp_path / "f", "r+b") as file:
            with pytest.raises(OSError, match="Bad address"):
                os.preadv(file.fileno(), [buffer], 0)
            with pytest.raises(OSError, match="Bad address"):
                os.pwritev(file.fileno(), [buffer], 0)

    def test_copy_beyond_an_allocation_is_an_error(self) -> None:
        pointer = runtime.malloc(4096)
        try:
            with pytest.raises(runtime.CUDARuntimeError, match="InvalidValue"):
                runtime.memset(pointer, 0, 4097)
        finally:
            runtime.free(pointer)


class TestStreams:
    """Really late, ordered as HIP orders them."""

    LATE = 50_000

    @staticmethod
    def pinned(size: int, value: int) -> Any:
        array = np.frombuffer(cp.cuda.alloc_pinned_memory(size), "u1", size)
        array[:] = value
        return array

    def test_missing_dependency_shows_and_a_wait_mends_it(self) -> None:
        x = cp.asarray(np.zeros(100, "u1"))
        ones = self.pinned(100, 1)
        first = cp.cuda.Stream(non_blocking=True)
        second = cp.cuda.Stream(non_blocking=True)
        out = self.pinned(100, 7)
        cp.cuda.Device().synchronize()
        for mended in (False, True):
            runtime.memset(x.data.ptr, 0, 100)
            cp.cuda.Device().synchronize()
            with emulator.late_streams(self.LATE):
                x.set(ones, stream=first)
                time.sleep(self.LATE / 5e6)  # it has begun to be late
                with emulator.late_streams(0):
                    if mended:
                        second.wait_event(first.record())
                    x.get(stream=second, out=out, blocking=False)
                    second.synchronize()
            first.synchronize()
            assert out.tolist() == [int(mended)] * 100

    def test_null_stream_waits_for_blocking_streams_only(self) -> None:
        x = cp.asarray(np.zeros(10, "u1"))
        ones = self.pinned(10, 1)
        for non_blocking in (False, True):
            runtime.memset(x.data.ptr, 0, 10)
            cp.cuda.Device().synchronize()
            stream = cp.cuda.Stream(non_blocking=non_blocking)
            with emulator.late_streams(self.LATE):
                x.set(ones, stream=stream)
                time.sleep(self.LATE / 5e6)  # it has begun to be late
                with emulator.late_streams(0):
                    seen = x.get(stream=cp.cuda.Stream.null)
            stream.synchronize()
            assert seen.tolist() == ([0] * 10 if non_blocking else [1] * 10)

    def test_events_and_queries(self) -> None:
        stream = cp.cuda.Stream(non_blocking=True)
        start, end = cp.cuda.Event(), cp.cuda.Event()
        with emulator.late_streams(self.LATE):
            start.record(stream)
            end.record(stream)
            assert not end.done
            assert not stream.done
            end.synchronize()
        assert end.done
        assert cp.cuda.get_elapsed_time(start, end) >= self.LATE / 1000

    def test_host_functions_run_in_order_and_without_device_access(self) -> None:
        seen: list[int] = []
        stream = cp.cuda.Stream()
        for i in range(10):
            stream.launch_host_func(seen.append, i)
        stream.synchronize()
        assert seen == list(range(10))

    def test_other_devices_stream_is_refused(self) -> None:
        with cp.cuda.Device(1):
            foreign = cp.cuda.Stream(non_blocking=True)
        x = cp.empty(10, "u1")
        with pytest.raises(runtime.CUDARuntimeError, match="InvalidHandle"):
            runtime.memcpyAsync(x.data.ptr, self.pinned(10, 1).ctypes.data, 10, 1, foreign.ptr)

    def test_threads_end_with_their_streams(self) -> None:
        cp.cuda.Device().synchronize()

        def threads() -> int:
            return len(os.listdir("/proc/self/task"))

        gc.collect()
        time.sleep(0.2)  # threads of earlier tests' streams end
        before = threads()
        streams = [cp.cuda.Stream() for _ in range(50)]
        assert threads() == before + 50
        del streams
        deadline = time.monotonic() + 20
        while threads() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threads() == before

    def test_exit_with_work_pending(self) -> None:
        run = python("""
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp, numpy as np
emulator.late_streams(300_000).__enter__()
x = cp.empty(100, "u1")
x.set(np.zeros(100, "u1"), stream=cp.cuda.Stream(non_blocking=True))
""")
        assert run.returncode == 0, run.stderr


class TestErrors:
    """Injected and real ones, with HIP's own names."""

    def test_any_entry_fails_at_its_nth_call(self) -> None:
        with emulator.faults(entries={"hipMalloc": (2, 2)}):
            first = runtime.malloc(10)
            with pytest.raises(runtime.CUDARuntimeError, match="hipErrorOutOfMemory"):
                runtime.malloc(10)
            runtime.free(runtime.malloc(10))
            runtime.free(first)

    def test_forked_child_fails_at_once(self) -> None:
        run = python("""
import os
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp
cp.empty(3)
pid = os.fork()
if pid == 0:
    try:
        cp.cuda.runtime.malloc(100)
    except cp.cuda.runtime.CUDARuntimeError as error:
        os._exit(5 if "NotInitialized" in str(error) else 6)
    os._exit(7)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""")
        assert run.returncode == 5
        assert "does not survive fork" in run.stderr

    @pytest.mark.parametrize("call", ["cp.random.default_rng(0).random(3)", "cp.sort(a)"])
    def test_what_is_left_out_fails_and_says_so(self, call: str) -> None:
        run = python(f"""
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp, numpy as np
a = cp.asarray(np.ones((4, 4)))
try:
    print("result", ({call}).get())
except Exception as error:
    print(type(error).__name__, error)
""")
        assert "result" not in run.stdout
        assert "emulated device" in run.stdout + run.stderr


class TestActivation:
    """Environment, module, pytest option; and the error when it is too late."""

    SCRIPT = "import sys, hipfile_arrays, cupy; print(cupy.empty(3).device, sys.argv[1:])"
    EXPECTED = "<CUDA Device 0> ['a', '--b']\n"

    def test_environment_variable(self) -> None:
        run = python("", "-c", self.SCRIPT, "a", "--b", HIPFILE_ARRAYS_EMULATE="1")
        assert run.stdout == self.EXPECTED, run.stderr

    def test_module_with_script_code_and_module(self, tmp_path: Path) -> None:
        (tmp_path / "script_of_mine.py").write_text(self.SCRIPT)
        start = ("-m", "hipfile_arrays.emulator")
        assert python("", *start, str(tmp_path / "script_of_mine.py"), "a", "--b").stdout == (
            self.EXPECTED
        )
        assert python("", *start, "-c", self.SCRIPT, "a", "--b").stdout == self.EXPECTED
        run = python("", *start, "-m", "script_of_mine", "a", "--b", PYTHONPATH=str(tmp_path))
        assert run.stdout == self.EXPECTED, run.stderr

    def test_pytest_option(self, tmp_path: Path) -> None:
        (tmp_path / "test_it.py").write_text("def test():\n    import cupy\n    cupy.empty(3)\n")
        run = python("", "-m", "pytest", "-q", "--emulate-hip", str(tmp_path), "-c", "/dev/null")
        assert "1 passed" in run.stdout, run.stdout

    def test_too_late(self) -> None:
        run = python("""
import sys, types
sys.modules["cupy_backends.cuda.api.runtime"] = types.ModuleType("x")
from hipfile_arrays import emulator
try:
    emulator.activate()
except RuntimeError as error:
    print(error)
""")
        assert "CuPy is imported already" in run.stdout, run.stderr


def test_threads_may_use_it_at_once() -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            host = np.random.default_rng(seed).random(10_000)
            for _ in range(50):
                with cp.cuda.Stream(non_blocking=True):
                    assert np.array_equal(cp.asarray(host).get(), host)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
