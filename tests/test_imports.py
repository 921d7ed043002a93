"""Importing opens nothing, and the first use says what is missing. In processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )


def test_import_opens_no_gpu_library_and_imports_no_array_library() -> None:
    run = python("""
import sys, hipfile_arrays
maps = open("/proc/self/maps").read()
names = ("amdhip", "hipfile.so", "cudart", "libcuda", "cufile")
assert not [name for name in names if name in maps]
assert not {"cupy", "torch", "jax", "numba", "zarr", "dask"} & set(sys.modules)
""")
    assert run.returncode == 0, run.stderr


@pytest.mark.emulated
def test_first_use_says_what_is_missing_where_it_was_looked_for_and_what_to_install() -> None:
    run = python(
        """
import hipfile_arrays as hfa
class Array:
    def __dlpack_device__(self): return (10, 0)
from hipfile_arrays import _native
from hipfile_arrays._transfer import vendor
from hipfile_arrays._transfer.values import Platform
vendor.prepare(Platform.HIP)
try:
    _native.locate(0, 4096)
except hfa.LibraryNotFound as error:
    assert isinstance(error, ImportError)
    print(error)
""",
        ROCM_PATH="/somewhere/rocm",
    )
    assert run.returncode == 0, run.stderr
    for words in (
        "no HIP runtime could be loaded",
        "libamdhip64.so.7",
        "libamdhip64.so.6",
        "/somewhere/rocm/lib/libamdhip64.so.7",
        "Install ROCm",
        "HIPFILE_ARRAYS_EMULATE=1",
    ):
        assert words in run.stdout


@pytest.mark.emulated
def test_missing_hipfile_leaves_the_staged_path(tmp_path: Path) -> None:
    run = python(
        f"""
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp, numpy as np, warnings
import hipfile_arrays as hfa
np.arange(200_000).tofile({str(tmp_path / "f")!r})
x = hfa.fromfile({str(tmp_path / "f")!r}, int, like=cp)
assert cp.asnumpy(x).tolist() == list(range(200_000))
for call in (lambda: hfa.fromfile({str(tmp_path / "f")!r}, int, like=cp, path="library"),
             lambda: hfa.fromfile({str(tmp_path / "f")!r}, int, like=cp, path="direct")):
    try:
        call()
    except (hfa.LibraryNotFound, hfa.DirectPathUnavailable) as error:
        print(type(error).__name__, error)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    hfa.register(x).close()
print(caught[0].message)
""",
        HIPFILE_ARRAYS_LIBHIPFILE="/no/libhipfile.so.0",
    )
    assert run.returncode == 0, run.stderr
    assert "LibraryNotFound" in run.stdout
    assert "DirectPathUnavailable" in run.stdout
    assert "/no/libhipfile.so.0" in run.stdout
    assert run.stdout.count("no hipFile could be loaded") >= 2


@pytest.mark.emulated
def test_two_hip_runtimes_are_refused_by_name(tmp_path: Path) -> None:
    import shutil

    from hipfile_arrays import emulator

    other = tmp_path / "libamdhip64.so"
    shutil.copy(emulator.library_folder() / "libamdhip64.so.7", other)
    run = python(f"""
from hipfile_arrays import emulator
emulator.activate()
import ctypes
ctypes.CDLL({str(other)!r})
import cupy as cp, hipfile_arrays as hfa
try:
    hfa.tofile(cp.empty(3), {str(tmp_path / "f")!r})
except hfa.StateError as error:
    print(error)
""")
    assert run.returncode == 0, run.stderr
    assert "two HIP runtimes" in run.stdout
    assert str(other) in run.stdout
    assert "libamdhip64.so.7" in run.stdout


@pytest.mark.emulated
def test_forked_child_gets_a_clear_error_and_does_not_hang(tmp_path: Path) -> None:
    run = python(f"""
import os, sys
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp, hipfile_arrays as hfa
x = cp.empty(1 << 20, "u1")
hfa.tofile(x, {str(tmp_path / "f")!r})
pid = os.fork()
if pid == 0:
    try:
        hfa.open({str(tmp_path / "f")!r}).read(x)
    except hfa.StateError as error:
        print(error, flush=True)
        os._exit(7)
    except BaseException as error:
        print("other", repr(error), flush=True)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
hfa.open({str(tmp_path / "f")!r}).read(x)
""")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "spawn" in run.stdout
