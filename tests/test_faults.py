"""All bytes, or one error that names file, range, path and cause; and nothing left behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest
from support import device_bytes, random_bytes

import hipfile_arrays as hfa
from hipfile_arrays import _native

pytestmark = pytest.mark.emulated

SIZE = 300_001


@pytest.fixture
def data() -> bytes:
    return random_bytes(SIZE)


@pytest.fixture
def file(make_file: Any, data: bytes) -> Path:
    made: Path = make_file(data)
    return made


@pytest.mark.parametrize(
    "faults",
    [
        {"short_io": 1000},
        {"short_io": 7},
        {"eintr": 2},
        {"eintr": 2, "short_io": 5000},
        {"limit": 4096},
        {"limit": 4096, "eligible": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("path_taken", ["library", "auto", "direct"])
def test_short_and_interrupted_transfers_are_completed(
    file: Path, data: bytes, faults: Any, path_taken: Any
) -> None:
    if faults.get("short_io", 4096) < 512 and path_taken == "direct":
        faults = {**faults, "short_io": 512}  # the fast path moves whole blocks
    with hfa.emulator.faults(**faults):
        x = hfa.fromfile(file, "u1", like=cp, path=path_taken)
        assert device_bytes(x) == data
        hfa.tofile(x, file.with_suffix(".out"), path=path_taken)
    assert file.with_suffix(".out").read_bytes() == data


class TestOneErrorNamesEverything:
    """File, range, path and cause."""

    def test_of_the_operating_system(self, file: Path) -> None:
        with (
            hfa.emulator.faults(errno=(errno.EIO, 1)),
            pytest.raises(OSError, match=f"{file.name}.*path library.*hipFileRead") as caught,
        ):
            hfa.fromfile(file, "u1", like=cp, path="library")
        assert caught.value.errno == errno.EIO
        assert f"bytes 0 to {SIZE}" in str(caught.value)
        assert not isinstance(caught.value, hfa.HipFileError)

    @pytest.mark.parametrize(
        ("injected", "code", "name", "hip", "text"),
        [
            (5027, 5027, "HandleNotRegistered", 0, "file handle is not registered"),
            (5030, 5030, "InternalError", 0, "internal error"),
            (2, 2, "hipErrorOutOfMemory", 2, "out of memory"),
            (719, 719, "hipErrorLaunchFailure", 719, "launch failure"),
        ],
    )
    def test_of_hipfile_and_of_hip_in_the_librarys_own_words(
        self, file: Path, injected: int, code: int, name: str, hip: int, text: str
    ) -> None:
        with (
            hfa.emulator.faults(entries={"hipFileRead": (1, injected)}),
            pytest.raises(hfa.HipFileError, match=f"{name}.*{text}") as caught,
        ):
            hfa.fromfile(file, "u1", like=cp, path="library")
        assert (caught.value.code, caught.value.name, caught.value.hip_error) == (code, name, hip)
        assert caught.value.call == "hipFileRead"
        assert isinstance(caught.value, OSError)

    def test_hip_error_inside_5011(self, file: Path) -> None:
        with (
            hfa.emulator.faults(entries={"hipFileHandleRegister": (1, 801)}),
            pytest.raises(hfa.HipFileError, match="HIP error 801.*hipErrorNotSupported") as caught,
        ):
            hfa.fromfile(file, "u1", like=cp, path="library")
        assert (caught.value.code, caught.value.hip_error) == (5011, 801)

    def test_stale_errno_is_not_taken_for_a_cause(self, file: Path) -> None:
        # -1 without errno is minus hipErrorInvalidValue.
        with (
            hfa.emulator.faults(entries={"hipFileRead": (1, 1)}),
            pytest.raises(hfa.HipFileError, match="hipErrorInvalidValue") as caught,
        ):
            hfa.fromfile(file, "u1", like=cp, path="library")
        assert caught.value.code == 1

    def test_cupys_next_call_is_fine(self, file: Path) -> None:
        with (
            hfa.emulator.faults(entries={"hipPointerGetAttributes": (1, 1)}),
            pytest.raises(hfa.MemoryTypeError),
        ):
            hfa.fromfile(file, "u1", like=cp)
        cp.cuda.runtime.deviceSynchronize()
        assert cp.asnumpy(cp.asarray(np.ones(2))).tolist() == [1, 1]


@pytest.mark.parametrize("entry", ["hipFileHandleRegister", "hipFileBufRegister"])
class TestItLoadsButDoesNotWork:
    """The library opens, then refuses every file or buffer."""

    @pytest.mark.filterwarnings("ignore::hipfile_arrays.RegistrationWarning")
    def test_auto_works_staged(self, file: Path, data: bytes, entry: str) -> None:
        with hfa.emulator.faults(entries={entry: (1, 5030)}, times=1000):
            x = cp.empty(SIZE, "u1")
            with hfa.register(x) as buffer, hfa.open(file, "r+") as opened:
                opened.read(buffer)
                assert device_bytes(x) == data
                opened.write(buffer)
        assert file.read_bytes() == data

    def test_direct_says_why(self, file: Path, entry: str) -> None:
        if entry == "hipFileBufRegister":
            pytest.skip("a one-off direct transfer registers no buffer")
        with (
            hfa.emulator.faults(entries={entry: (1, 5030)}, times=1000),
            pytest.raises(hfa.DirectPathUnavailable, match="refuses the file.*5030"),
        ):
            hfa.fromfile(file, "u1", like=cp, path="direct")


def test_direct_piece_that_fails_is_finished_staged_by_auto(make_file: Any) -> None:
    data = random_bytes(1 << 20)
    file = make_file(data)
    hfa.stats.reset()
    with hfa.emulator.faults(entries={"hipFileRead": (1, 5030)}, times=1000):
        _drop_cache(file)
        x = hfa.fromfile(file, "u1", like=cp)
    assert device_bytes(x) == data
    with (
        hfa.emulator.faults(entries={"hipFileRead": (1, 5030)}),
        pytest.raises(hfa.HipFileError, match="5030"),
    ):
        hfa.fromfile(file, "u1", like=cp, path="direct")


def test_all_works_with_the_librarys_fallback_forbidden(
    folder: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPFILE_ALLOW_COMPAT_MODE", "false")
    file = folder / "f"
    file.write_bytes(data)
    for offset in (0, 1, 4095, 4096):
        for _ in range(2):
            x = hfa.fromfile(file, "u1", offset=offset, like=cp)
            assert device_bytes(x) == data[offset:]
            _drop_cache(file)
    hfa.tofile(x, file)
    assert file.read_bytes() == device_bytes(x)


def _drop_cache(file: Path) -> None:
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


ENTRIES = [
    "hipEventCreateWithFlags",
    "hipEventRecord",
    "hipEventSynchronize",
    "hipFileRead",
    "hipFileWrite",
    "hipGetDevice",
    "hipHostMalloc",
    "hipMemcpyAsync",
    "hipMemGetAddressRange",
    "hipPointerGetAttributes",
    "hipSetDevice",
    "hipStreamCreateWithFlags",
    "hipStreamIsCapturing",
    "hipStreamSynchronize",
    "hipStreamWaitEvent",
]


# RuntimeError: CuPy's own, when it was CuPy's call that was hit.
FAILURES = (OSError, hfa.HipFileArraysError, MemoryError, RuntimeError)


@pytest.mark.parametrize("path_taken", ["library", "auto", "staged", "direct"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_each_call_failing_in_turn_loses_and_leaks_nothing(
    make_file: Any, entry: str, path_taken: Any
) -> None:
    """The n-th call of every entry point fails, for every n: all bytes, or an error."""
    data = random_bytes(SIZE)
    file = make_file(data)
    x = cp.asarray(np.zeros(SIZE, "u1"))
    source = cp.asarray(np.frombuffer(data, "u1"))
    out = file.with_suffix(".out")
    _native.release_resources()
    pinned = _native.pinned_bytes()
    descriptors = len(os.listdir("/proc/self/fd"))
    for position in range(1, 25):
        before = hfa.emulator.counters().get(entry, 0)
        with (
            hfa.config.override(threads=2, chunk_bytes=64 * 1024),
            hfa.emulator.faults(entries={entry: (position, 719)}),
        ):
            try:
                hfa.fromfile(file, out=x, path=path_taken)
                assert_read = True
            except FAILURES:
                assert_read = False
            try:
                hfa.tofile(source, out, path=path_taken)
                assert_written = True
            except FAILURES:
                assert_written = False
            calls = hfa.emulator.counters().get(entry, 0) - before
        if assert_read:
            assert device_bytes(x) == data
        if assert_written:
            assert out.read_bytes() == data
        cp.cuda.runtime.memset(x.data.ptr, 0, SIZE)
        _native.release_resources()
        assert _native.pinned_bytes() == pinned
        assert len(os.listdir("/proc/self/fd")) == descriptors
        if calls < position:
            assert assert_read
            assert assert_written
            break  # no call had that number: every position was tried
