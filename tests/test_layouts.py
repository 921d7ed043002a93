"""What lies differently in the file and on the device: strides, byte order, dtype, records.

The promise: values as NumPy reads them from the same bytes, bit for bit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import random_bytes

import hipfile_arrays as hfa
from hipfile_arrays._transfer import convert

some_examples = settings(
    max_examples=int(os.environ.get("HIPFILE_ARRAYS_TEST_EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
DTYPES = ["i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16", "?"]
dtypes = st.sampled_from(DTYPES).map(np.dtype)
orders = st.sampled_from(["<", ">"])
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=6).map(tuple)


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Equal shapes and bytes: NaN payloads and signs of zero included."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def items_of(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Items of any bits; booleans of the two that are."""
    count = int(np.prod(shape))
    data = np.frombuffer(random_bytes(count * dtype.itemsize, seed), np.uint8)
    data = data & 1 if dtype.kind == "b" else data
    return data.copy().view(dtype).reshape(shape)


@st.composite
def views(draw: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...], list[int]]:
    """A base shape, an index and a permutation of axes that give a view of `shape`."""
    axes = draw(st.permutations(range(len(shape))))
    base, index = [], []
    for axis in axes:
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        room = shape[axis] * abs(step) + draw(st.integers(0, 2))
        base.append(room)
        first = shape[axis] * abs(step) - abs(step)
        index.append(slice(0, first + 1, step) if step > 0 else slice(first, None, step))
    return tuple(base), tuple(index), [list(axes).index(n) for n in range(len(shape))]


class TestByteOrder:
    @pytest.mark.parametrize("dtype", [">f8", ">i2", ">u4", ">c16", ">f2", ">c8", ">u8", ">f4"])
    @pytest.mark.parametrize("count", [1, 7, 5000])
    def test_values_are_right(self, make_file: Any, dtype: str, count: int) -> None:
        want = items_of(np.dtype(dtype), (count,))
        got = hfa.fromfile(make_file(want.tobytes()), dtype, like=cp)
        assert got.dtype == np.dtype(dtype).newbyteorder("=")
        assert same_bits(cp.asnumpy(got), want.astype(got.dtype.newbyteorder("=")))

    def test_one_is_one(self, make_file: Any) -> None:
        file = make_file(np.array([1.0], ">f8").tobytes())
        assert hfa.fromfile(file, ">f8", like=cp).item() == 1.0

    def test_times_are_their_integers(self, make_file: Any) -> None:
        want = np.array(["2026-12-01", "1970-01-02"], ">M8[D]")
        got = hfa.fromfile(make_file(want.tobytes()), ">M8[D]", like=cp)
        assert got.dtype == np.int64
        assert cp.asnumpy(got).tolist() == want.astype("i8").tolist()

    def test_at_an_odd_offset_into_a_slice(self, make_file: Any) -> None:
        want = items_of(np.dtype(">f4"), (3001,))
        out = cp.zeros(3005, "f4")
        hfa.fromfile(make_file(b"header!" + want.tobytes()), ">f4", offset=7, out=out[2:-2])
        assert same_bits(cp.asnumpy(out[2:-2]), want.astype("f4"))
        assert not cp.asnumpy(out)[[0, 1, -2, -1]].any()


class TestCasts:
    @pytest.mark.parametrize(
        "file_dtype, dtype, casting",
        [
            ("f8", "f4", "same_kind"),
            (">i2", "f4", "same_kind"),
            ("u1", "i8", "safe"),
            (">f4", "c8", "safe"),
            ("f4", "i2", "unsafe"),
            ("f4", "f2", "same_kind"),
            ("i4", "?", "unsafe"),
            (">i4", "f4", "same_kind"),
        ],
    )
    def test_are_numpys(self, make_file: Any, file_dtype: str, dtype: str, casting: Any) -> None:
        raw = np.arange(-50, 50) if "u" not in file_dtype else np.arange(100)
        want = raw.astype(file_dtype)
        out = cp.empty(100, dtype)
        hfa.fromfile(make_file(want.tobytes()), file_dtype, out=out, casting=casting)
        assert same_bits(cp.asnumpy(out), want.astype(dtype))

    def test_that_lose_values_are_refused_before_reading(self, make_file: Any) -> None:
        out = cp.full(4, 7, "i4")
        with pytest.raises(TypeError, match="cannot cast.*float64.*int32.*same_kind"):
            hfa.fromfile(make_file(random_bytes(64)), float, out=out)
        assert cp.asnumpy(out).tolist() == [7] * 4

    def test_bfloat16(self, make_file: Any) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        want = np.arange(-8, 8, 0.25).astype(ml_dtypes.bfloat16)
        out = cp.empty(64, "f4")
        hfa.fromfile(make_file(want.tobytes()), ml_dtypes.bfloat16, out=out)
        assert same_bits(cp.asnumpy(out), want.astype("f4"))

    @given(st.data(), dtypes, orders, shapes)
    @some_examples
    def test_of_any_pair_into_any_layout(
        self, tmp_path_factory: Any, data: Any, dtype: np.dtype[Any], order: str, shape: Any
    ) -> None:
        target = np.dtype(data.draw(st.sampled_from(["f4", "f8", "c16", "i8"])))
        if not np.can_cast(dtype, target, "same_kind"):
            return
        want = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype.newbyteorder(order))
        base, index, axes = data.draw(views(shape))
        out = cp.zeros(base, target)
        view = out[index].transpose(axes)
        path = tmp_path_factory.mktemp("cast") / "data"
        path.write_bytes(want.tobytes())
        hfa.fromfile(path, want.dtype, out=view)
        expected = np.zeros(base, target)
        expected[index].transpose(axes)[...] = want
        assert same_bits(cp.asnumpy(out), expected)


class TestStrides:
    @given(st.data(), dtypes, orders, shapes, st.sampled_from("CF"))
    @some_examples
    def test_any_layout_in_and_out(
        self,
        tmp_path_factory: Any,
        data: Any,
        dtype: np.dtype[Any],
        byte_order: str,
        shape: Any,
        order: Any,
    ) -> None:
        folder = tmp_path_factory.mktemp("strides")
        want = items_of(dtype.newbyteorder(byte_order), shape)
        (folder / "in").write_bytes(want.tobytes(order))
        base, index, axes = data.draw(views(shape))
        expected = items_of(dtype, base, seed=1)
        out = cp.asarray(expected)
        view = out[index].transpose(axes)
        hfa.fromfile(folder / "in", want.dtype, out=view, order=order)
        expected[index].transpose(axes)[...] = want
        assert same_bits(cp.asnumpy(out), expected)  # what is not of the view is untouched

        hfa.tofile(view, folder / "out", order=order)
        assert (folder / "out").read_bytes() == want.astype(dtype).tobytes(order)

    @pytest.mark.parametrize(
        "view",
        [
            lambda x: x[::2, ::-1, 1:],
            lambda x: x.T,
            lambda x: x[1, 2, 3],
            lambda x: x[:, None, 1:2],
            lambda x: x[::-1],
            lambda x: x[:0],
            lambda x: cp.broadcast_to(x[0], (3, *x.shape[1:])) if isinstance(x, cp.ndarray) else x,
        ],
    )
    def test_files_hold_what_numpy_writes(self, tmp_path: Path, view: Any) -> None:
        x = cp.asarray(items_of(np.dtype("i4"), (4, 6, 5)))
        hfa.tofile(view(x), tmp_path / "f")
        assert (tmp_path / "f").read_bytes() == cp.asnumpy(view(x)).tobytes()

    def test_broadcast_arrays_are_refused_as_targets(self, make_file: Any) -> None:
        out = cp.broadcast_to(cp.zeros(4, "u1"), (3, 4))
        with pytest.raises(ValueError, match="share memory"):
            hfa.fromfile(make_file(bytes(12)), out=out)

    def test_overlapping_windows_are_refused_as_targets(self, make_file: Any) -> None:
        x = cp.zeros(8, "u1")
        windows = cp.lib.stride_tricks.as_strided(x, (5, 4), (1, 1))
        with pytest.raises(ValueError, match="share memory"):
            hfa.fromfile(make_file(bytes(20)), out=windows)

    def test_too_short_a_file_leaves_it_untouched(self, make_file: Any) -> None:
        out = cp.full((4, 4), 7, "u1")
        with pytest.raises(hfa.ShortReadError):
            hfa.fromfile(make_file(bytes(7)), out=out[:, ::2])
        assert cp.asnumpy(out).tolist() == [[7] * 4] * 4

    def test_by_file_read_and_write(self, tmp_path: Path) -> None:
        x = cp.asarray(items_of(np.dtype("f4"), (6, 7)))
        with hfa.open(tmp_path / "f", "w") as file:
            assert file.write(x[::2, ::-1], offset=3) == 4 * 21
            back = cp.zeros((7, 3), "f4")
            assert file.read(back.T, offset=3) == 4 * 21
        assert same_bits(cp.asnumpy(back.T), cp.asnumpy(x[::2, ::-1]))

    def test_in_many_bounded_parts(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr(convert, "MOST_TEMPORARY", 1000)
        monkeypatch.setattr(convert, "_LEAST_TEMPORARY", 1000)
        x = cp.asarray(items_of(np.dtype("f4"), (37, 41)))
        told: list[tuple[int, int]] = []
        hfa.tofile(x[:, ::2], tmp_path / "f", progress=lambda *now: told.append(now))
        assert told[-1] == (37 * 21 * 4, 37 * 21 * 4)
        back = cp.zeros((21, 37), "f8")
        hfa.fromfile(tmp_path / "f", "f4", out=back.T)
        assert same_bits(cp.asnumpy(back.T), cp.asnumpy(x[:, ::2]).astype("f8"))

    def test_temporary_memory_is_bounded(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr(convert, "MOST_TEMPORARY", 1 << 20)
        x = cp.zeros((1 << 20, 8), "u1")
        (tmp_path / "f").write_bytes(bytes(4 << 20))
        asked: list[int] = []
        alloc = cp.cuda.alloc
        monkeypatch.setattr(cp.cuda, "alloc", lambda n: (asked.append(n), alloc(n))[1])
        hfa.fromfile(tmp_path / "f", "u1", out=x[:, ::2])
        assert asked == [(1 << 20) + 4096]

    def test_less_memory_takes_more_parts(self, tmp_path: Path, monkeypatch: Any) -> None:
        (tmp_path / "f").write_bytes(random_bytes(4 << 20))
        out = cp.zeros((1 << 20, 8), "u1")
        alloc = cp.cuda.alloc

        def crowded(nbytes: int) -> Any:
            if nbytes > 1_500_000:
                raise cp.cuda.memory.OutOfMemoryError(nbytes, 0, 0)
            return alloc(nbytes)

        monkeypatch.setattr(cp.cuda, "alloc", crowded)
        hfa.fromfile(tmp_path / "f", "u1", out=out[:, ::2])
        assert cp.asnumpy(out[:, ::2]).tobytes() == (tmp_path / "f").read_bytes()


class TestFortranOrder:
    @pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (0, 3)])
    @pytest.mark.parametrize("dtype", ["f4", ">i2"])
    def test_equals_numpys_reshape(self, make_file: Any, shape: Any, dtype: str) -> None:
        want = items_of(np.dtype(dtype), (int(np.prod(shape)),)).reshape(shape, order="F")
        got = hfa.fromfile(make_file(want.tobytes("F")), dtype, shape=shape, order="F", like=cp)
        assert same_bits(cp.asnumpy(got), want.astype(got.dtype))
        assert got.flags.f_contiguous

    def test_needs_no_kernel(self, make_file: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr(convert.kernels, "require", lambda platform: pytest.fail("asked"))
        hfa.fromfile(make_file(bytes(12)), "u1", shape=(3, 4), order="F", like=cp)

    def test_other_orders_are_refused(self, make_file: Any) -> None:
        with pytest.raises(ValueError, match="'C' or 'F'"):
            hfa.fromfile(make_file(bytes(4)), "u1", like=cp, order="A")  # type: ignore[arg-type]


class TestRecords:
    @pytest.mark.parametrize("align", [False, True])
    def test_give_a_dict_of_arrays(self, make_file: Any, align: bool) -> None:
        inner = np.dtype([("x", ">f4"), ("y", "<i2")], align=align)
        dtype = np.dtype(
            [("id", "u1"), ("at", inner), ("path", inner, (2,)), ("m", ">f8", (2, 3)), ("n", "u2")],
            align=align,
        )
        want = np.frombuffer(random_bytes(dtype.itemsize * 33), np.uint8).view(dtype)
        got = hfa.fromfile(make_file(want.tobytes()), dtype, like=cp)
        assert list(got) == ["id", "at", "path", "m", "n"]
        assert list(got["at"]) == ["x", "y"]
        for array, field in [
            (got["id"], want["id"]),
            (got["at"]["x"], want["at"]["x"]),
            (got["at"]["y"], want["at"]["y"]),
            (got["path"]["x"], want["path"]["x"]),
            (got["path"]["y"], want["path"]["y"]),
            (got["m"], want["m"]),
            (got["n"], want["n"]),
        ]:
            assert isinstance(array, cp.ndarray)
            assert same_bits(cp.asnumpy(array), field.astype(array.dtype))

    def test_of_chosen_fields_and_a_shape(self, make_file: Any) -> None:
        dtype = np.dtype([("name", "S5"), ("x", ">f4"), ("y", "f4")])
        want = np.zeros((3, 4), dtype)
        want["x"] = np.arange(12).reshape(3, 4)
        got = hfa.fromfile(make_file(want.tobytes()), dtype[["x"]], shape=(3, 4), like=cp)
        assert cp.asnumpy(got["x"]).tolist() == want["x"].tolist()

    def test_warn_of_a_tail_that_is_no_record(self, make_file: Any) -> None:
        with pytest.warns(hfa.ShortReadWarning):
            got = hfa.fromfile(make_file(bytes(14)), [("a", "u1"), ("b", "i4")], like=cp)
        assert got["a"].shape == got["b"].shape == (2,)

    @pytest.mark.parametrize("field", ["S3", "U2", "V4", "g"])
    def test_with_fields_that_no_gpu_holds_are_refused_before_reading(self, field: str) -> None:
        with pytest.raises(TypeError, match=r"field 'b'|extended precision"):
            hfa.fromfile("/no/such/file", [("a", "u1"), ("b", field)], like=cp)

    def test_without_fields_are_refused(self, make_file: Any) -> None:
        empty = np.dtype([("a", "u1")])[[]]
        with pytest.raises(TypeError, match="no fields"):
            hfa.fromfile(make_file(bytes(10)), empty, like=cp)

    def test_have_no_place_in_out(self, make_file: Any) -> None:
        with pytest.raises(TypeError, match="dict of arrays"):
            hfa.fromfile(make_file(bytes(10)), [("a", "u1")], out=cp.zeros(10, "u1"))

    def test_in_many_bounded_parts(self, make_file: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr(convert, "MOST_TEMPORARY", 100)
        monkeypatch.setattr(convert, "_LEAST_TEMPORARY", 100)
        dtype = np.dtype([("a", ">i2"), ("b", "f8")])
        want = np.frombuffer(random_bytes(10 * 77), np.uint8).view(dtype)
        got = hfa.fromfile(make_file(want.tobytes()), dtype, like=cp)
        assert same_bits(cp.asnumpy(got["a"]), want["a"].astype("i2"))
        assert same_bits(cp.asnumpy(got["b"]), want["b"].astype("f8"))


@pytest.mark.emulated
def test_a_late_stream_is_waited_for(tmp_path: Path) -> None:
    from hipfile_arrays import emulator

    (tmp_path / "f").write_bytes(np.arange(1000, dtype=">f4").tobytes())
    stream = cp.cuda.Stream(non_blocking=True)
    with emulator.late_streams(20_000), stream:
        x = cp.zeros((1000, 2), "f4")
        x.fill(7)
        hfa.fromfile(tmp_path / "f", ">f4", out=x[:, 0])
        y = x * 2
        hfa.tofile(y[:, 0], tmp_path / "g")
    assert np.fromfile(tmp_path / "g", "f4").tolist() == list(range(0, 2000, 2))


@pytest.mark.emulated
def test_on_a_device_that_is_not_current(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(np.arange(100, dtype=">f4").tobytes())
    with cp.cuda.Device(1):
        x = cp.zeros((100, 2), "f4")
    hfa.fromfile(tmp_path / "f", ">f4", out=x[:, 0])
    assert cp.cuda.runtime.getDevice() == 0
    with cp.cuda.Device(1):
        assert cp.asnumpy(x[:, 0]).tolist() == list(range(100))


def test_without_cupy_plain_data_works_and_the_rest_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(64))
    code = f"""
import sys
import hipfile_arrays as hfa  # first: it may have to emulate the device
import cupy as cp
x, strided = cp.zeros(16, "f4"), cp.zeros((16, 2), "f4")[:, 0]
hfa.tofile(x, {str(tmp_path / "f")!r})
sys.modules["cupy"] = None
hfa.fromfile({str(tmp_path / "f")!r}, "f4", out=x)
for bad in (lambda: hfa.fromfile({str(tmp_path / "f")!r}, ">f4", out=x),
            lambda: hfa.tofile(strided, {str(tmp_path / "g")!r})):
    try:
        bad()
    except hfa.KernelsUnavailable as error:
        assert "pip install" in str(error) and "[" in str(error), error
    else:
        raise SystemExit("not refused")
"""
    environment = dict(os.environ)
    if "HIPFILE_ARRAYS_TEST_PLATFORM" not in environment:
        environment["HIPFILE_ARRAYS_EMULATE"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.emulated
@pytest.mark.parametrize("setting", ["wave 32", "wave 64", "no cache folder", "read-only cache"])
def test_kernels_run_on_every_kind_of_machine(tmp_path: Path, setting: str) -> None:
    cache = tmp_path / "cache"
    if setting == "read-only cache":
        cache.mkdir()
        cache.chmod(0o500)
    environment = dict(
        os.environ,
        HIPFILE_ARRAYS_EMULATE="1",
        CUPY_CACHE_DIR=str(cache / "a" / "b" if setting == "no cache folder" else cache),
    )
    if setting.startswith("wave"):
        environment["HIPFILE_ARRAYS_EMULATOR_WAVE"] = setting.split()[1]
    code = f"""
import hipfile_arrays as hfa
import cupy as cp, numpy as np
want = np.arange(6000, dtype=">f4").reshape(60, 100)
want.tofile({str(tmp_path / "f")!r})
out = cp.zeros((100, 60), "f8")
hfa.fromfile({str(tmp_path / "f")!r}, ">f4", out=out.T)
assert (cp.asnumpy(out.T) == want).all()
hfa.tofile(out, {str(tmp_path / "g")!r}, order="F")
assert (np.fromfile({str(tmp_path / "g")!r}).reshape(60, 100) == want).all()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
