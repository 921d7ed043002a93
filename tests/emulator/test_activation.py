"""Switching the emulated device on, and what the process then sees."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import cupy as cp
import pytest

from hipfile_arrays import emulator


class TestSwitchingOn:
    def test_twice_is_harmless(self) -> None:
        assert emulator.is_active()
        emulator.activate()
        assert cp.zeros(3).get().tolist() == [0, 0, 0]

    def test_missing_libraries_are_named(self, python: Any, tmp_path: Path) -> None:
        run = python("", HIPFILE_ARRAYS_EMULATOR_LIB=str(tmp_path))
        assert run.returncode == 1
        assert "ImportError" in run.stderr
        assert str(tmp_path) in run.stderr

    def test_nothing_works_before(self, python: Any) -> None:
        run = python(
            """
from hipfile_arrays import emulator
assert not emulator.is_active()
for call in (emulator.counters, emulator.reset_counters, lambda: emulator.allocate_segments(1, 1),
             emulator.late_streams(1).__enter__, emulator.faults(eintr=1).__enter__,
             emulator.capturing(0).__enter__):
    try:
        call()
    except RuntimeError as error:
        assert "activate()" in str(error)
    else:
        raise SystemExit(f"{call} went through")
assert not any("libamdhip64" in line for line in open("/proc/self/maps"))
""",
            emulate=False,
        )
        assert run.returncode == 0, run.stderr

    @pytest.mark.parametrize("kind", ["script", "-c", "-m"])
    def test_a_program_cannot_tell_how_it_was_started(self, tmp_path: Path, kind: str) -> None:
        code = (
            "import sys; assert __name__ == '__main__'; import cupy\n"
            "print(sys.argv[1:], sys.path[0], file=sys.stderr)\n"
            "sys.exit(len(sys.argv))"
        )
        (tmp_path / "folder").mkdir()
        script = tmp_path / "folder" / "program.py"
        script.write_text(code)
        how = {
            "script": [str(script)],
            "-c": ["-c", code],
            "-m": ["-m", "folder.program"],
        }[kind]
        arguments = [*how, "one", "-h"]
        start = [sys.executable, "-m", "hipfile_arrays.emulator"]
        run = subprocess.run([*start, *arguments], capture_output=True, text=True, cwd=tmp_path)
        assert run.returncode == 3, run.stderr
        first = {"script": str(script.parent), "-c": "", "-m": str(tmp_path)}[kind]
        assert run.stderr == f"['one', '-h'] {first}\n"

    @pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0), (["-c"], 1)])
    def test_usage(self, arguments: list[str], code: int) -> None:
        start = [sys.executable, "-m", "hipfile_arrays.emulator"]
        run = subprocess.run([*start, *arguments], capture_output=True, text=True)
        assert run.returncode == code
        assert "-c" in run.stdout + run.stderr

    @pytest.mark.parametrize("count", [1, 3])
    def test_number_of_devices(self, python: Any, count: int) -> None:
        run = python(
            "import cupy as cp\nprint(cp.cuda.runtime.getDeviceCount())\n"
            "cp.cuda.Device(cp.cuda.runtime.getDeviceCount() - 1).use()\nprint(cp.zeros(3).device)",
            HIPFILE_ARRAYS_EMULATOR_DEVICES=str(count),
        )
        assert run.stdout.split("\n")[:2] == [str(count), f"<CUDA Device {count - 1}>"], run.stderr


class TestWhatItIs:
    def test_versions(self) -> None:
        assert cp.cuda.runtime.is_hip
        assert cp.cuda.runtime.runtimeGetVersion() == 70051831
        assert cp.cuda.runtime.driverGetVersion() == 70051831

    def test_properties(self) -> None:
        assert cp.cuda.runtime.getDeviceCount() == 2
        properties = cp.cuda.runtime.getDeviceProperties(1)
        assert properties["name"] == b"Emulated HIP device"
        assert properties["warpSize"] == 64
        assert properties["gcnArchName"].startswith(b"gfx90a")
        assert properties["totalGlobalMem"] == cp.cuda.runtime.memGetInfo()[1]

    def test_bus_identifiers_lead_back(self) -> None:
        for device in (0, 1):
            name = cp.cuda.runtime.deviceGetPCIBusId(device)
            assert cp.cuda.runtime.deviceGetByPCIBusId(name) == device

    def test_no_such_device(self, hip: Any) -> None:
        for wrong in (2, -1):
            assert hip.code("hipSetDevice", ctypes.c_int(wrong)) == 101
        with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="hipErrorInvalidDevice"):
            cp.cuda.Device(7).use()

    def test_peers(self) -> None:
        assert cp.cuda.runtime.deviceCanAccessPeer(0, 1) == 1
        assert cp.cuda.runtime.deviceCanAccessPeer(0, 0) == 0

    @pytest.mark.parametrize(
        ("code", "name"),
        [
            (0, "hipSuccess"),
            (1, "hipErrorInvalidValue"),
            (2, "hipErrorOutOfMemory"),
            (400, "hipErrorInvalidHandle"),
            (600, "hipErrorNotReady"),
            (719, "hipErrorLaunchFailure"),
            (801, "hipErrorNotSupported"),
            (123456, "hipErrorUnknown"),
        ],
    )
    def test_names_of_errors(self, hip: Any, code: int, name: str) -> None:
        assert hip.error_name(code) == name

    def test_an_error_sticks_to_its_thread_until_asked_for(self, hip: Any) -> None:
        assert hip.code("hipSetDevice", ctypes.c_int(9)) == 101
        hip("hipSetDevice", 0)  # a later success does not clear it
        assert hip.code("hipPeekAtLastError") == 101
        assert hip.code("hipGetLastError") == 101
        assert hip.code("hipGetLastError") == 0


class TestWhatItIsNot:
    """What is left out fails at once and says its name: no wrong data in silence."""

    def test_graphs(self, capfd: pytest.CaptureFixture[str]) -> None:
        stream = cp.cuda.Stream(non_blocking=True)
        with pytest.raises((RuntimeError, KeyError)), stream:
            stream.begin_capture()
        assert "hipStreamBeginCapture is not part of the emulated device" in capfd.readouterr().err

    def test_math_libraries(self, capfd: pytest.CaptureFixture[str]) -> None:
        from cupy_backends.cuda.libs import cublas

        with pytest.raises(cublas.CUBLASError):
            cublas.create()
        assert "is not part of the emulated device" in capfd.readouterr().err
