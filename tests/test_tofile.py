"""`tofile`: the file holds exactly the array's items, whatever it held before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import device_bytes, random_bytes

import hipfile_arrays as hfa

PATHS = ["library", "auto", "staged"]


def on_device(data: bytes) -> Any:
    return cp.asarray(np.frombuffer(data, "u1"))


@pytest.mark.parametrize("path_taken", PATHS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    size=st.one_of(st.integers(0, 300), st.sampled_from([4095, 4096, 4097, 70_001, 1_048_579])),
    former=st.sampled_from([None, 0, 5, 4096, 100_000]),
)
def test_file_equals_numpys(folder: Path, path_taken: Any, size: int, former: int | None) -> None:
    file = folder / "out.bin"
    file.unlink(missing_ok=True)
    if former is not None:
        file.write_bytes(b"x" * former)
    data = random_bytes(size, seed=size)
    hfa.tofile(on_device(data), file, path=path_taken)
    assert file.read_bytes() == data


@pytest.mark.parametrize("path_taken", PATHS)
@pytest.mark.parametrize("offset", [0, 1, 4095, 4096, 9000])
@pytest.mark.parametrize("size", [1, 4095, 4097, 70_000])
def test_offset_writes_inside_and_touches_nothing_else(
    folder: Path, path_taken: Any, offset: int, size: int
) -> None:
    file = folder / "out.bin"
    before = random_bytes(100_000, seed=1)
    file.write_bytes(before)
    data = random_bytes(size, seed=2)
    hfa.tofile(on_device(data), file, offset=offset, path=path_taken)
    assert file.read_bytes() == before[:offset] + data + before[offset + size :]


def test_offset_past_the_end_leaves_a_hole(folder: Path) -> None:
    file = folder / "out.bin"
    file.write_bytes(b"ab")
    hfa.tofile(on_device(b"cd"), file, offset=5)
    assert file.read_bytes() == b"ab\0\0\0cd"


@pytest.mark.parametrize("path_taken", PATHS)
def test_buffered_read_sees_the_bytes_at_once(folder: Path, path_taken: Any) -> None:
    file = folder / "out.bin"
    file.write_bytes(bytes(1 << 20))
    with open(file, "rb") as reader:
        reader.read(10)
        data = random_bytes(1 << 20)
        hfa.tofile(on_device(data), file, path=path_taken)
        assert os.pread(reader.fileno(), 1 << 20, 0) == data


def test_through_a_symlink_the_target_is_written(folder: Path) -> None:
    target, link = folder / "target", folder / "link"
    target.write_bytes(b"long old content")
    link.symlink_to(target)
    hfa.tofile(on_device(b"new"), link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


class TestOpenFiles:
    """They are written at, and left after, their current position."""

    def test_as_numpy(self, tmp_path: Path) -> None:
        data = random_bytes(1000)
        with open(tmp_path / "ours", "w+b") as ours, open(tmp_path / "theirs", "w+b") as theirs:
            for file in (ours, theirs):
                file.write(b"header")
            hfa.tofile(on_device(data), ours)
            np.frombuffer(data, "u1").tofile(theirs)
            assert ours.tell() == theirs.tell() == 1006
            for file in (ours, theirs):
                file.write(b"tail")
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()

    def test_not_open_for_writing(self, make_file: Any) -> None:
        with open(make_file(b"abc"), "rb") as file, pytest.raises(OSError, match="not open for"):
            hfa.tofile(on_device(b"x"), file)


class TestText:
    """`sep=` writes text, as NumPy does."""

    def test_equals_numpy(self, tmp_path: Path) -> None:
        numbers = np.array([1.5, -2, 3])
        hfa.tofile(cp.asarray(numbers), tmp_path / "ours", sep=", ", format="%.2f")
        numbers.tofile(tmp_path / "theirs", sep=", ", format="%.2f")
        assert (tmp_path / "ours").read_text() == (tmp_path / "theirs").read_text()


class TestAtomic:
    """Readers see the old file or the new one, whole."""

    def test_replaces_and_keeps_permissions(self, folder: Path) -> None:
        file = folder / "out.bin"
        file.write_bytes(b"a long old content")
        file.chmod(0o640)
        hfa.tofile(on_device(b"new"), file, atomic=True)
        assert file.read_bytes() == b"new"
        assert file.stat().st_mode & 0o777 == 0o640
        assert os.listdir(folder) == ["out.bin"]

    def test_through_a_symlink(self, folder: Path) -> None:
        (folder / "link").symlink_to("target")
        hfa.tofile(on_device(b"new"), folder / "link", atomic=True)
        assert (folder / "target").read_bytes() == b"new"
        assert (folder / "link").is_symlink()

    @pytest.mark.emulated
    def test_failure_leaves_the_old_file_and_nothing_else(self, folder: Path) -> None:
        file = folder / "out.bin"
        file.write_bytes(b"old")
        data = on_device(random_bytes(100_000))
        with (
            hfa.emulator.faults(errno=(28, 1)),
            pytest.raises(OSError, match="No space left") as caught,
        ):
            hfa.tofile(data, file, atomic=True, path="library")
        assert caught.value.errno == 28
        assert file.read_bytes() == b"old"
        assert os.listdir(folder) == ["out.bin"]

    def test_open_files_and_offsets_are_refused(self, make_file: Any) -> None:
        file = make_file(b"abc")
        with open(file, "r+b") as handle, pytest.raises(ValueError, match="whole file"):
            hfa.tofile(on_device(b"x"), handle, atomic=True)
        with pytest.raises(ValueError, match="whole file"):
            hfa.tofile(on_device(b"x"), file, atomic=True, offset=0)

    @pytest.mark.slow
    @pytest.mark.emulated
    def test_killed_in_mid_write_leaves_the_old_file(self, tmp_path: Path) -> None:
        file = tmp_path / "out.bin"
        old = random_bytes(300_000)
        file.write_bytes(old)
        script = f"""
import sys
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp, hipfile_arrays as hfa
x = cp.empty(64 << 20, "u1")
print("ready", flush=True)
while True:
    hfa.tofile(x, {str(file)!r}, atomic=True)
    print("done", flush=True)
"""
        for delay in (0.01, 0.05):
            process = subprocess.Popen(
                [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
            rest = process.stdout.read()
            process.stdout.close()
            assert file.stat().st_size in ({64 << 20} if "done" in rest else {300_000, 64 << 20})
            assert os.listdir(tmp_path) == ["out.bin"]


def test_sync_returns_after_the_data_is_stored(folder: Path) -> None:
    hfa.tofile(on_device(b"data"), folder / "out", sync=True)
    assert (folder / "out").read_bytes() == b"data"


@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (2, 0, 3)])
def test_any_shape_is_written_in_c_order(folder: Path, shape: tuple[int, ...]) -> None:
    numbers = np.arange(int(np.prod(shape)), dtype="f4").reshape(shape)
    hfa.tofile(cp.asarray(numbers), folder / "out")
    assert (folder / "out").read_bytes() == numbers.tobytes()


def test_negative_offset_is_refused(make_file: Any) -> None:
    with pytest.raises(ValueError, match="offset must not be negative"):
        hfa.tofile(on_device(b"x"), make_file(b"abc"), offset=-1)


def test_round_trip(folder: Path) -> None:
    data = on_device(random_bytes(3_000_001))
    hfa.tofile(data, folder / "x")
    assert device_bytes(hfa.fromfile(folder / "x", "u1", like=cp)) == device_bytes(data)
