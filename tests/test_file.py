"""`open` and `File`: transfers at explicit offsets."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest
from support import device_bytes, random_bytes

import hipfile_arrays as hfa

PATHS = ["library", "auto", "staged"]


@pytest.mark.parametrize("path_taken", PATHS)
def test_reads_and_writes_at_offsets(folder: Path, path_taken: Any) -> None:
    x = cp.asarray(np.frombuffer(random_bytes(50_000), "u1"))
    with hfa.open(folder / "f", "w") as file:
        assert file.write(x, 1234, path=path_taken) == 50_000
        assert file.size == 51_234
        y = cp.empty(50_000, "u1")
        assert file.read(y, 1234, path=path_taken) == 50_000
    assert device_bytes(y) == device_bytes(x)
    assert (folder / "f").read_bytes() == bytes(1234) + device_bytes(x)


def test_short_file_raises_and_leaves_the_array(make_file: Any) -> None:
    out = cp.asarray(np.full(8, 3, "u1"))
    with hfa.open(make_file(b"12345")) as file:
        with pytest.raises(hfa.ShortReadError, match="8 bytes.*offset 0.*only 5") as caught:
            file.read(out)
        with pytest.raises(hfa.ShortReadError, match="only 0"):
            file.read(out, 100)
    assert caught.value.expected == 8
    assert caught.value.found == 5
    assert cp.asnumpy(out).tolist() == [3] * 8


@pytest.mark.parametrize(
    ("mode", "error"), [("r", FileNotFoundError), ("r+", FileNotFoundError), ("q", ValueError)]
)
def test_opening_what_is_not_there(tmp_path: Path, mode: Any, error: Any) -> None:
    with pytest.raises(error):
        hfa.open(tmp_path / "absent", mode)


def test_modes(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"old")
    with pytest.raises(FileExistsError):
        hfa.open(file, "x")
    with hfa.open(file, "r+b") as opened:
        assert opened.size == 3
    with hfa.open(file, "wb") as opened:
        assert opened.size == 0


def test_writing_to_a_file_opened_for_reading_fails_as_the_system_says(make_file: Any) -> None:
    with hfa.open(make_file(b"abc")) as file, pytest.raises(OSError):
        file.write(cp.empty(3, "u1"))


def test_close_is_idempotent_and_final(make_file: Any) -> None:
    file = hfa.open(make_file(b"abcd"))
    file.close()
    file.close()
    assert file.closed
    for use in (lambda: file.read(cp.empty(4, "u1")), lambda: file.size, file.fileno):
        with pytest.raises(hfa.StateError, match="closed"):
            use()


def test_fromfile_and_tofile_take_a_file(tmp_path: Path) -> None:
    with hfa.open(tmp_path / "f", "w") as file:
        hfa.tofile(cp.asarray(np.arange(5, dtype="i4")), file, offset=8)
        assert cp.asnumpy(hfa.fromfile(file, "i4", 3, offset=12, like=cp)).tolist() == [1, 2, 3]


def test_many_threads_one_file_one_array(make_file: Any) -> None:
    data = random_bytes(8 * 100_000)
    out = cp.empty(len(data), "u1")
    errors: list[BaseException] = []
    with hfa.open(make_file(data)) as file, hfa.register(out):

        def read(part: int) -> None:
            try:
                for path_taken in PATHS:
                    file.read(
                        out[part * 100_000 : (part + 1) * 100_000],
                        part * 100_000,
                        path=path_taken,
                    )
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=read, args=(part,)) for part in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    assert device_bytes(out) == data


@pytest.mark.emulated
class TestRegisteredBuffers:
    """Repeated transfers on registered memory look no pointer up."""

    LOOKUPS = ("hipPointerGetAttributes", "hipMemGetAddressRange")

    def test_no_lookup_at_all(self, make_file: Any, counters: Any) -> None:
        data = random_bytes(1 << 20)
        x = cp.empty(1 << 20, "u1")
        with hfa.open(make_file(data)) as file, hfa.register(x) as buffer:
            hfa.emulator.reset_counters()
            for path_taken in ("library", "auto", "staged"):
                file.read(buffer, path=path_taken)
                file.read(x, path=path_taken)
                file.read(x[4096 : 4096 + 8192], 4096, path=path_taken)
                file.read(x[5:77], 5, path=path_taken)
            hfa.fromfile(file, out=buffer)
            hfa.fromfile(file, out=x, path="library")
            calls = counters()
            assert not [name for name in self.LOOKUPS if name in calls]
            assert calls["hipfile.registered"] == calls["hipFileRead"]
            assert "hipfile.on_the_fly" not in calls
        assert device_bytes(x) == data

    def test_slice_goes_as_registered_base_and_offset(self, make_file: Any, counters: Any) -> None:
        x = cp.asarray(np.zeros(100_000, "u1"))
        data = random_bytes(100)
        with hfa.open(make_file(data)) as file, hfa.register(x):
            hfa.emulator.reset_counters()
            file.read(x[777:877], path="library")
            calls = counters()
            assert calls["hipfile.registered"] == calls["hipFileRead"]
        assert device_bytes(x) == bytes(777) + data + bytes(100_000 - 877)

    def test_unregistered_is_resolved_on_the_fly(self, make_file: Any, counters: Any) -> None:
        x = cp.empty(4096, "u1")
        with hfa.open(make_file(random_bytes(4096))) as file:
            hfa.emulator.reset_counters()
            file.read(x, path="library")
            calls = counters()
        assert 1 <= calls["hipfile.on_the_fly"] <= calls["hipFileRead"]
        # One by our own check, one by the library at each of its transfers.
        assert calls["hipPointerGetAttributes"] == 1 + calls["hipfile.on_the_fly"]

    def test_staged_unregistered_transfer_looks_up_once(
        self, make_file: Any, counters: Any
    ) -> None:
        x = cp.empty(4096, "u1")
        with hfa.open(make_file(random_bytes(4096))) as file:
            hfa.emulator.reset_counters()
            file.read(x)
            calls = counters()
        assert calls["hipPointerGetAttributes"] == 1
        assert calls["hipMemGetAddressRange"] == 1
