"""What kernels do to their process: faults, wave sizes, caches, things that must fail loudly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("cupy")

FAULTS = r"""
import cupy as cp, numpy as np
x = cp.empty(1024, "i4")
cp.cuda.Device().synchronize()
def run(body, block):
    kernel = cp.RawKernel('extern "C" __global__ void wild(int* x) {' + body + '}', "wild")
    try:
        kernel((1,), (block,), (x,))
        cp.cuda.Device().synchronize()
    except cp.cuda.runtime.CUDARuntimeError as error:
        print(error)
"""

CACHED = r"""
import cupy as cp
code = "template <class T> __global__ void one(T* x) { *x = 1; }"
m = cp.RawModule(code=code, name_expressions=["one<int>"])
x = cp.empty(1, "i4")
m.get_function("one<int>")((1,), (1,), (x,))
assert x.get()[0] == 1
print(emulator.counters().get("hiprtc.compiled", 0))
"""


def test_a_write_past_device_memory_is_an_error_that_names_the_thread(python, tmp_path) -> None:
    code = FAULTS + "run('if (threadIdx.x == 5) x[1 << 28] = 1;', 8)\n"
    code += "run('x[threadIdx.x] = 7;', 8)\nprint(x[:8].get().tolist())"
    done = python(code, CUPY_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "in kernel wild, block (0,0,0), thread (5,0,0)" in done.stderr
    assert "hipErrorIllegalAddress" in done.stdout
    assert "[7, 7, 7, 7, 7, 7, 7, 7]" in done.stdout


def test_a_kernel_that_overruns_its_stack_is_an_error(python, tmp_path) -> None:
    body = (
        "volatile char big[1 << 20]; for (int i = (1 << 20) - 4096; i >= 0; i -= 4096) big[i] = 1;"
    )
    done = python(FAULTS + f"run({body!r}, 1)", CUPY_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "in kernel wild" in done.stderr


def test_a_host_fault_still_reaches_the_handler_that_was_there(python, tmp_path) -> None:
    code = (
        "import faulthandler, ctypes; faulthandler.enable()\nimport cupy as cp\n"
        "x = cp.arange(3); x.get()\nctypes.string_at(8)"
    )
    done = python(code, CUPY_CACHE_DIR=str(tmp_path))
    assert done.returncode < 0
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "in kernel" not in done.stderr


@pytest.mark.parametrize(
    "call", ["cp.sort(x)", "cp.unique(x)", "cp.random.default_rng().random(3)"]
)
def test_kernels_made_for_amd_processors_fail_loudly(python, tmp_path, call: str) -> None:
    code = f"import cupy as cp\nx = cp.asarray([3, 1, 2])\n{call}\ncp.cuda.Device().synchronize()"
    done = python(code, CUPY_CACHE_DIR=str(tmp_path))
    assert done.returncode != 0
    assert "precompiled for AMD processors" in done.stderr


@pytest.mark.parametrize("wave", ["32", "64"])
def test_the_wave_size_is_the_one_asked_for(python, tmp_path, wave: str) -> None:
    code = (
        "import cupy as cp\n"
        'k = cp.RawKernel(\'extern "C" __global__ void w(unsigned long long* x) '
        "{ unsigned long long v = __ballot(1); if (!threadIdx.x) { x[0] = warpSize; x[1] = v; } }',"
        "'w')\n"
        "x = cp.empty(2, 'u8'); k((1,), (64,), (x,)); print(*x.get())"
    )
    done = python(code, CUPY_CACHE_DIR=str(tmp_path), HIPFILE_ARRAYS_EMULATOR_WAVE=wave)
    assert done.stdout.split() == [wave, str(2 ** int(wave) - 1)], done.stderr


def compiled(python, folder: Path) -> int:
    done = python(
        CACHED,
        CUPY_CACHE_DIR=str(folder / "cupy"),
        HIPFILE_ARRAYS_EMULATOR_CACHE=str(folder / "kernels"),
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_second_process_compiles_nothing(python, tmp_path) -> None:
    assert compiled(python, tmp_path) > 0
    assert compiled(python, tmp_path) == 0


def test_a_damaged_entry_is_compiled_again(python, tmp_path) -> None:
    first = compiled(python, tmp_path)
    for entry in (tmp_path / "kernels").iterdir():
        entry.write_bytes(entry.read_bytes()[:-9] + b"\0" * 9)
    assert compiled(python, tmp_path) == first
    assert compiled(python, tmp_path) == 0


def test_a_cache_folder_that_cannot_be_made_costs_time_only(python, tmp_path) -> None:
    (tmp_path / "kernels").write_text("a file, not a folder")
    assert compiled(python, tmp_path) > 0
    assert compiled(python, tmp_path) > 0


def test_no_compiler_is_said_plainly(python, tmp_path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)  # hipcc is a script
    done = python(CACHED, CUPY_CACHE_DIR=str(tmp_path), PATH=str(tmp_path / "bin"))
    assert done.returncode != 0
    assert "install g++, or name one in HIPFILE_ARRAYS_EMULATOR_CXX" in done.stderr


def test_a_compiler_that_cannot_run_is_named(python, tmp_path) -> None:
    missing = str(tmp_path / "absent-c++")
    done = python(CACHED, CUPY_CACHE_DIR=str(tmp_path), HIPFILE_ARRAYS_EMULATOR_CXX=missing)
    assert done.returncode != 0
    assert f"the C++ compiler cannot be run: {missing}" in done.stderr
