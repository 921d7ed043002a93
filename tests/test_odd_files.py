"""Files that are no plain files, that change meanwhile, or that cannot be opened."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest
from support import device_bytes, random_bytes

import hipfile_arrays as hfa


@pytest.mark.parametrize("path_taken", ["library", "auto", "staged"])
class TestNotAFile:
    """The operating system's own errors, with the path, before any library is asked."""

    def test_directory(self, tmp_path: Path, path_taken: Any) -> None:
        with pytest.raises(IsADirectoryError) as caught:
            hfa.fromfile(tmp_path, "u1", like=cp, path=path_taken)
        assert caught.value.filename == str(tmp_path)
        with pytest.raises(IsADirectoryError):
            hfa.tofile(cp.empty(3), tmp_path, path=path_taken)

    def test_fifo_does_not_hang(self, tmp_path: Path, path_taken: Any) -> None:
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(OSError, match="pipes"):
            hfa.fromfile(tmp_path / "fifo", "u1", 4, like=cp, path=path_taken)

    def test_parent_is_missing(self, tmp_path: Path, path_taken: Any) -> None:
        with pytest.raises(FileNotFoundError):
            hfa.tofile(cp.empty(3), tmp_path / "no" / "file", path=path_taken)


def test_endless_device_needs_a_count() -> None:
    got = hfa.fromfile("/dev/zero", "i4", 70_000, like=cp)
    assert device_bytes(got) == bytes(280_000)
    with pytest.raises(ValueError, match="count="):
        hfa.fromfile("/dev/zero", "i4", like=cp)


@pytest.mark.emulated
def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"1234")
    (tmp_path / "secret").chmod(0)
    script = f"""
import os
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp, hipfile_arrays as hfa
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    hfa.fromfile({str(tmp_path / "secret")!r}, "u1", like=cp)
except PermissionError as error:
    assert {str(tmp_path / "secret")!r} in str(error)
    print("refused")
"""
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
        if folder.name.startswith("pytest-of"):
            break
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout == "refused\n", run.stderr


class TestChangingFiles:
    """A file that grows or shrinks while it is read."""

    def test_shrinking_gives_what_was_there_or_raises(self, tmp_path: Path) -> None:
        file = tmp_path / "f"
        data = random_bytes(4 << 20)
        stop = threading.Event()

        def churn() -> None:
            while not stop.is_set():
                os.truncate(file, 1 << 20)
                file.write_bytes(data)

        file.write_bytes(data)
        thread = threading.Thread(target=churn)
        thread.start()
        try:
            for round_ in range(30):
                path_taken: Any = ["library", "staged", "auto"][round_ % 3]
                try:
                    got = hfa.fromfile(file, "u1", 4 << 20, strict=True, like=cp, path=path_taken)
                except (hfa.ShortReadError, ValueError):
                    continue
                # Pages that were cut and written again may read as zero in between; what matters
                # is that no byte is anything but the file's.
                host = cp.asnumpy(got)
                want = np.frombuffer(data, "u1")
                assert ((host == want) | (host == 0)).all()
        finally:
            stop.set()
            thread.join()

    def test_growing_gives_a_whole_state(self, tmp_path: Path) -> None:
        file = tmp_path / "f"
        file.write_bytes(b"\1" * 1000)
        got = hfa.fromfile(file, "u1", like=cp)
        with open(file, "ab") as more:
            more.write(b"\1" * 1000)
        again = hfa.fromfile(file, "u1", like=cp)
        assert (got.shape, again.shape) == ((1000,), (2000,))


@pytest.mark.slow
@pytest.mark.parametrize("path_taken", ["library", "auto", "staged", "direct"])
def test_far_offsets_of_a_sparse_file(tmp_path: Path, path_taken: Any) -> None:
    """Offsets beyond 4 GiB, read in pieces into a smaller buffer at the end of it."""
    file = tmp_path / "sparse"
    size = 5 << 30
    tail = random_bytes(3 << 20)
    with open(file, "wb") as writer:
        writer.truncate(size)
        writer.seek(size - len(tail))
        writer.write(tail)
    out = cp.asarray(np.full(8 << 20, 1, "u1"))
    with hfa.open(file) as opened:
        target = out[(8 << 20) - len(tail) :]
        opened.read(target, size - len(tail), path=path_taken)
        with pytest.raises(hfa.ShortReadError):
            opened.read(out, size - len(tail) + 1, path=path_taken)
    assert device_bytes(out) == b"\1" * ((8 << 20) - len(tail)) + tail


@pytest.mark.slow
def test_more_than_one_call_can_move(tmp_path: Path) -> None:
    """Over 2 GiB in one transfer: more than any one system call or hipFile call moves."""
    file = tmp_path / "large"
    size = (2 << 30) + 12_345
    with open(file, "wb") as writer:
        writer.truncate(size)
        for at in (0, 0x7FFFF000 - 5, 0x7FFFF000, size - 10):
            writer.seek(at)
            writer.write(b"0123456789")
    for path_taken in ("library", "staged"):
        out = hfa.fromfile(file, "u1", like=cp, path=path_taken)
        for at in (0, 0x7FFFF000, size - 10):
            with open(file, "rb") as reader:
                reader.seek(at)
                want = reader.read(10)
            assert device_bytes(out[at : at + 10]) == want
        del out
