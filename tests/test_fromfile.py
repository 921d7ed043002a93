"""`fromfile`: NumPy's meaning for every NumPy argument, on the same bytes."""

from __future__ import annotations

import io
import os
import warnings
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
DTYPES = ["u1", "i2", "u4", "f2", "f4", "f8", "c8", "c16", "?"]
fixtures_may_be_shared = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def expected_of(path: Path, dtype: Any, count: int, offset: int) -> np.ndarray[Any, Any]:
    return np.fromfile(path, dtype, count, offset=offset)


@pytest.mark.parametrize("path_taken", PATHS)
@fixtures_may_be_shared
@given(
    size=st.one_of(st.integers(0, 300), st.sampled_from([4095, 4096, 4097, 70_001, 1_048_579])),
    dtype=st.sampled_from(DTYPES),
    count=st.one_of(st.just(-1), st.integers(0, 40)),
    offset=st.integers(0, 60),
)
def test_equals_numpy_on_the_same_bytes(
    folder: Path, path_taken: Any, size: int, dtype: str, count: int, offset: int
) -> None:
    offset = min(offset, size)
    file = folder / "data.bin"
    file.write_bytes(random_bytes(size, seed=size))
    want = expected_of(file, dtype, count, offset)
    short = count > want.size or (count == -1 and (size - offset) % np.dtype(dtype).itemsize)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = hfa.fromfile(file, dtype, count, offset=offset, like=cp, path=path_taken)
    assert [w.category for w in caught] == [hfa.ShortReadWarning] * bool(short)
    assert isinstance(got, cp.ndarray)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert device_bytes(got) == want.tobytes()


@pytest.mark.parametrize(
    "make", [str, Path, os.fsencode, lambda p: Path(p)], ids=["str", "Path", "bytes", "PathLike"]
)
def test_takes_every_kind_of_path(make_file: Any, make: Any) -> None:
    file = make_file(random_bytes(400))
    got = hfa.fromfile(make(file), "f4", like=cp)
    assert device_bytes(got) == file.read_bytes()


def test_default_dtype_is_float64(make_file: Any) -> None:
    file = make_file(np.arange(5.0).tobytes())
    got = hfa.fromfile(file, like=cp)
    assert got.dtype == np.float64
    assert cp.asnumpy(got).tolist() == [0, 1, 2, 3, 4]


def test_subarray_dtype_adds_axes_as_numpy_does(make_file: Any) -> None:
    file = make_file(random_bytes(4 * 6 * 3))
    dtype = np.dtype(("f4", (2, 3)))
    assert hfa.fromfile(file, dtype, like=cp).shape == np.fromfile(file, dtype).shape == (3, 2, 3)


def test_shape_is_exact(make_file: Any) -> None:
    file = make_file(np.arange(12, dtype="i4").tobytes())
    got = hfa.fromfile(file, "i4", shape=(3, 4), like=cp)
    assert np.array_equal(cp.asnumpy(got), np.arange(12).reshape(3, 4))
    assert hfa.fromfile(file, "i4", shape=5, like=cp).shape == (5,)
    with pytest.raises(hfa.ShortReadError, match=r"13 items of 4 bytes.*holds 12"):
        hfa.fromfile(file, "i4", shape=(13,), like=cp)


class TestOpenFiles:
    """They are read from, and left at, their current position."""

    @pytest.mark.parametrize("count", [-1, 0, 3, 100])
    @pytest.mark.parametrize("offset", [0, 5])
    @pytest.mark.parametrize("buffering", [0, -1])
    @pytest.mark.filterwarnings("ignore::hipfile_arrays.ShortReadWarning")
    def test_position_is_numpys(
        self, make_file: Any, count: int, offset: int, buffering: int
    ) -> None:
        file = make_file(random_bytes(103))
        with open(file, "rb", buffering=buffering) as ours, open(file, "rb") as theirs:
            for handle in (ours, theirs):
                handle.seek(7)
            got = hfa.fromfile(ours, "i4", count, offset=offset, like=cp)
            want = np.fromfile(theirs, "i4", count, offset=offset)
            assert device_bytes(got) == want.tobytes()
            if count != 100:
                assert ours.tell() == theirs.tell()

    def test_reads_on_from_where_it_stopped(self, make_file: Any) -> None:
        file = make_file(np.arange(10, dtype="i4").tobytes())
        with open(file, "rb") as handle:
            first = hfa.fromfile(handle, "i4", 4, like=cp)
            second = hfa.fromfile(handle, "i4", like=cp)
        assert cp.asnumpy(first).tolist() == [0, 1, 2, 3]
        assert cp.asnumpy(second).tolist() == [4, 5, 6, 7, 8, 9]

    def test_bytes_the_file_has_buffered_are_seen(self, tmp_path: Path) -> None:
        with open(tmp_path / "new", "w+b") as handle:
            handle.write(b"\1\2\3\4")
            handle.seek(0)
            assert device_bytes(hfa.fromfile(handle, "u1", like=cp)) == b"\1\2\3\4"

    def test_unlinked_file_is_read(self, make_file: Any) -> None:
        file = make_file(b"abcd")
        with open(file, "rb") as handle:
            file.unlink()
            assert device_bytes(hfa.fromfile(handle, "u1", like=cp)) == b"abcd"

    def test_stays_open(self, make_file: Any) -> None:
        with open(make_file(b"abcd"), "rb") as handle:
            hfa.fromfile(handle, "u1", like=cp)
            assert not handle.closed

    def test_without_a_descriptor_fails_as_numpy_does(self) -> None:
        with pytest.raises(io.UnsupportedOperation):
            np.fromfile(io.BytesIO(b"abcd"), "u1")
        with pytest.raises(io.UnsupportedOperation):
            hfa.fromfile(io.BytesIO(b"abcd"), "u1", like=cp)


class TestShortData:
    """Fewer items than asked for, or a tail that fills none."""

    def test_count_beyond_the_end_warns_with_both_numbers(self, make_file: Any) -> None:
        with pytest.warns(hfa.ShortReadWarning, match=r"5 items of 4 bytes.*holds 2"):
            got = hfa.fromfile(make_file(b"12345678"), "i4", 5, like=cp)
        assert got.shape == (2,)

    def test_tail_warns_with_both_numbers(self, make_file: Any) -> None:
        with pytest.warns(hfa.ShortReadWarning, match=r"last 2 of the 10 bytes.*2 items"):
            got = hfa.fromfile(make_file(b"1234567890"), "i4", like=cp)
        assert device_bytes(got) == b"12345678"

    @pytest.mark.parametrize("count", [-1, 5])
    def test_strict_raises(self, make_file: Any, count: int) -> None:
        with pytest.raises(hfa.ShortReadError) as caught:
            hfa.fromfile(make_file(b"1234567890"), "i4", count, strict=True, like=cp)
        assert isinstance(caught.value, EOFError)
        assert caught.value.found == 10

    def test_out_raises_before_anything_is_written(self, make_file: Any) -> None:
        out = cp.asarray(np.full(3, 7, "i4"))
        with pytest.raises(hfa.ShortReadError, match="needs 12 bytes"):
            hfa.fromfile(make_file(b"12345678"), "i4", out=out)
        assert cp.asnumpy(out).tolist() == [7, 7, 7]


class TestNothing:
    """Zero bytes are a result, not an error, and no library is asked."""

    @pytest.mark.emulated
    @pytest.mark.parametrize("path_taken", PATHS)
    def test_no_library_call(self, make_file: Any, counters: Any, path_taken: Any) -> None:
        empty, some = make_file(b""), make_file(b"12345678")
        assert hfa.fromfile(empty, "f4", like=cp, path=path_taken).shape == (0,)
        assert hfa.fromfile(some, "f4", 0, like=cp, path=path_taken).shape == (0,)
        assert hfa.fromfile(some, "f4", offset=8, like=cp, path=path_taken).shape == (0,)
        assert hfa.fromfile(some, "f4", shape=(0, 3), like=cp, path=path_taken).shape == (0, 3)
        hfa.tofile(cp.empty((0, 3)), empty, path=path_taken)
        assert not [name for name in counters() if name.startswith("hipFile")]


class TestArguments:
    """What cannot be meant is refused, before any I/O, in words."""

    @pytest.mark.parametrize(
        ("arguments", "error", "words"),
        [
            ({"offset": 9}, ValueError, "offset 9 is past the end of .*8 bytes"),
            ({"offset": -1}, ValueError, "offset must not be negative: -1"),
            ({"count": -2}, ValueError, "count must be -1"),
            ({"dtype": object}, ValueError, "Python objects"),
            ({"dtype": [("a", "f4"), ("b", [("c", object)])]}, ValueError, "Python objects"),
            ({"dtype": "S0"}, ValueError, "no bytes"),
            ({"dtype": "U0"}, ValueError, "no bytes"),
            ({"dtype": "V0"}, ValueError, "no bytes"),
            ({"dtype": "S4"}, TypeError, "strings"),
            ({"dtype": "g"}, TypeError, "extended precision"),
            ({"shape": (2, -1)}, ValueError, "negative"),
            ({"shape": (2,), "count": 2}, ValueError, "leave count="),
        ],
    )
    def test_are_refused(self, make_file: Any, arguments: Any, error: Any, words: str) -> None:
        file = make_file(b"12345678")
        with pytest.raises(error, match=words):
            hfa.fromfile(file, **{"dtype": "u1", **arguments}, like=cp)

    def test_like_or_out_but_not_both(self, make_file: Any) -> None:
        file = make_file(b"1234")
        for arguments in ({}, {"like": cp, "out": cp.empty(4, "u1")}):
            with pytest.raises(ValueError, match="not both"):
                hfa.fromfile(file, "u1", **arguments)

    def test_path_offset_and_size_are_named(self, make_file: Any) -> None:
        file = make_file(b"1234")
        with pytest.raises(ValueError, match="offset 5 is past the end of .*" + file.name):
            hfa.fromfile(file, "u1", offset=5, like=cp)

    def test_unknown_path_wish(self, make_file: Any) -> None:
        with pytest.raises(ValueError, match="path must be one of"):
            hfa.fromfile(make_file(b"1234"), "u1", like=cp, path="fast")


class TestOut:
    """`out=` is filled where it is."""

    def test_is_returned(self, make_file: Any) -> None:
        out = cp.empty((2, 2), "f4")
        assert hfa.fromfile(make_file(random_bytes(16)), out=out) is out

    def test_gives_the_dtype(self, make_file: Any) -> None:
        file = make_file(random_bytes(16))
        out = cp.empty(4, "i4")
        hfa.fromfile(file, out=out)
        assert device_bytes(out) == file.read_bytes()

    def test_other_dtype_is_converted_not_reinterpreted(self, make_file: Any) -> None:
        out = cp.empty(4, "f4")
        hfa.fromfile(make_file(np.arange(4.0).tobytes()), float, out=out)
        assert cp.asnumpy(out).tolist() == [0, 1, 2, 3]

    def test_reads_no_more_than_fits(self, make_file: Any) -> None:
        file = make_file(random_bytes(4000))
        a, b, c = (cp.asarray(np.zeros(100, "u1")) for _ in range(3))
        hfa.fromfile(file, out=b)
        assert device_bytes(b) == file.read_bytes()[:100]
        assert device_bytes(a) == device_bytes(c) == bytes(100)

    @pytest.mark.parametrize("offset", [0, 1, 511, 512, 4096])
    @pytest.mark.parametrize("length", [1, 4095, 4096, 4097, 70_000])
    def test_neighbours_in_one_block_stay_untouched(
        self, make_file: Any, offset: int, length: int
    ) -> None:
        file = make_file(random_bytes(offset + 200_000))
        block = cp.asarray(np.full(100_000, 9, "u1"))
        for path_taken in PATHS:
            hfa.fromfile(file, offset=offset, out=block[5000 : 5000 + length], path=path_taken)
            got = cp.asnumpy(block)
            assert (got[:5000] == 9).all()
            assert (got[5000 + length :] == 9).all()
            assert got[5000 : 5000 + length].tobytes() == file.read_bytes()[offset:][:length]


class TestText:
    """`sep=` makes it text, which NumPy parses."""

    def test_equals_numpy(self, make_file: Any) -> None:
        file = make_file(b"1, 2.5, 3")
        got = hfa.fromfile(file, sep=",", like=cp)
        assert np.array_equal(cp.asnumpy(got), np.fromfile(file, sep=","))

    def test_offset_is_for_binary_files(self, make_file: Any) -> None:
        with pytest.raises(TypeError, match="binary"):
            hfa.fromfile(make_file(b"1 2"), sep=" ", offset=1, like=cp)


class TestLike:
    """`like=` says whose the new array is."""

    @pytest.mark.parametrize("like", [cp, cp.ndarray], ids=["module", "type"])
    def test_module_and_type(self, make_file: Any, like: Any) -> None:
        assert isinstance(hfa.fromfile(make_file(b"1234"), "u1", like=like), cp.ndarray)

    def test_array(self, make_file: Any) -> None:
        assert isinstance(hfa.fromfile(make_file(b"1234"), "u1", like=cp.empty(3)), cp.ndarray)

    def test_host_array_is_refused_and_numpy_named(self, make_file: Any) -> None:
        with pytest.raises(hfa.MemoryTypeError, match="numpy.fromfile"):
            hfa.fromfile(make_file(b"1234"), "u1", like=np.empty(0))

    def test_host_library_is_refused(self, make_file: Any) -> None:
        with pytest.raises(hfa.MemoryTypeError, match="is host memory"):
            hfa.fromfile(make_file(b"1234"), "u1", like=np)

    def test_numpys_own_fromfile_returns_device_arrays(self, make_file: Any) -> None:
        file = make_file(np.arange(6, dtype="i4").tobytes())
        got = np.fromfile(file, "i4", 3, offset=4, like=hfa.like(cp))
        assert isinstance(got, cp.ndarray)
        assert cp.asnumpy(got).tolist() == [1, 2, 3]


def test_dates_are_read_as_their_integers(make_file: Any) -> None:
    days = np.array(["2026-01-01", "1970-01-02"], "M8[D]")
    got = hfa.fromfile(make_file(days.tobytes()), days.dtype, like=cp)
    assert got.dtype == np.int64
    assert np.array_equal(cp.asnumpy(got).view(days.dtype), days)


def test_progress_ends_at_the_whole(make_file: Any) -> None:
    file = make_file(random_bytes(3 << 20))
    seen: list[tuple[int, int]] = []
    hfa.fromfile(file, "u1", like=cp, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3 << 20, 3 << 20)


def test_exception_in_progress_ends_the_transfer_and_is_raised(make_file: Any) -> None:
    class StopHere(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise StopHere

    with pytest.raises(StopHere):
        hfa.fromfile(make_file(random_bytes(1 << 20)), "u1", like=cp, progress=stop)
