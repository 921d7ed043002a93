"""The device kernels give NumPy's values, bit for bit: inputs made by NumPy, uploaded, compared."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hipfile_arrays import emulator
from hipfile_arrays._transfer import kernels
from hipfile_arrays._transfer.kernels import Strided
from hipfile_arrays._transfer.values import Platform

import cupy as cp  # isort: skip  (after hipfile_arrays: it may have to emulate the device)

ml_dtypes = pytest.importorskip("ml_dtypes")

PLATFORM = Platform.HIP if cp.cuda.runtime.is_hip else Platform.CUDA
GUARD = 64  # bytes around every target that must stay as they are


def _no_compiler() -> bool:
    if not emulator.is_active():
        return False
    library = ctypes.CDLL(str(emulator.library_folder() / "libhiprtc.so.7"))
    return hasattr(library, "hipemu_standin_libhiprtc_so_7")


needs_compiler = pytest.mark.skipif(
    _no_compiler(), reason="this build of the emulated device compiles no kernels"
)
kernel_settings = settings(
    max_examples=int(os.environ.get("HIPFILE_ARRAYS_TEST_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
REAL = [
    np.dtype(name)
    for name in ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
] + [BFLOAT16]
NUMERIC = [*REAL, np.dtype("c8"), np.dtype("c16")]
OPAQUE = [np.dtype(name) for name in ["V3", "V12", "S5", "U2", "M8[ns]"]] + [
    np.dtype(ml_dtypes.float8_e4m3fn)
]


class OnDevice:
    """A host buffer's copy on the device, at an address that is `shift` bytes off alignment."""

    def __init__(self, data: np.ndarray[Any, Any], shift: int = 0) -> None:
        self.shift = shift
        self.memory = cp.empty(data.size + shift + 1, np.uint8)
        self.memory.set(np.concatenate([np.zeros(shift, "u1"), data, np.zeros(1, "u1")]))
        self.ptr = self.memory.data.ptr + shift

    def bytes(self) -> np.ndarray[Any, Any]:
        return self.memory.get()[self.shift : -1]


def offset_of(view: np.ndarray[Any, Any], base: np.ndarray[Any, Any]) -> int:
    return view.__array_interface__["data"][0] - base.__array_interface__["data"][0]


def run_copy(
    target: np.ndarray[Any, Any],
    target_base: np.ndarray[Any, Any],
    source: np.ndarray[Any, Any],
    source_base: np.ndarray[Any, Any],
    shifts: tuple[int, int] = (0, 0),
    **items: int,
) -> np.ndarray[Any, Any]:
    """Copy between the device's images of two host buffers; the target's bytes afterwards."""
    to, frm = OnDevice(target_base, shifts[0]), OnDevice(source_base, shifts[1])
    to_ptr = to.ptr + offset_of(target, target_base)
    from_ptr = frm.ptr + offset_of(source, source_base)
    kernels.copy(
        Strided(to_ptr, target.dtype, target.shape, target.strides),
        Strided(from_ptr, source.dtype, source.shape, source.strides),
        device=0,
        stream=0,
        platform=PLATFORM,
        **items,
    )
    return to.bytes()


def values_of(dtype: np.dtype[Any], count: int, seed: int, to: np.dtype[Any]) -> Any:
    """Items that NumPy can cast to `to`: any bits if that is no cast, else values within range."""
    rng = np.random.default_rng(seed)
    if dtype.newbyteorder("=") == to.newbyteorder("="):
        if dtype.kind == "U":
            return rng.integers(1, 0x10000, 2 * count).astype("u4").view("U2").astype(dtype)
        bits = rng.integers(0, 256, count * dtype.itemsize, dtype="u1")
        return (bits & 1 if dtype.kind == "b" else bits).view(dtype)
    native = dtype.newbyteorder("=")
    if native.kind == "b":
        return rng.integers(0, 2, count).astype("?")
    if native.kind in "iu":
        return rng.integers(0, 256, count * native.itemsize, dtype="u1").view(native).astype(dtype)
    if to.kind in "iu":
        top = 100 if to.itemsize == 1 else 30000
        real = rng.uniform(0 if to.kind == "u" else -top, top, count)
        return real.astype(native).astype(dtype)
    part = np.dtype(f"f{native.itemsize // 2}") if native.kind == "c" else native
    number = count * native.itemsize // part.itemsize
    exponents = rng.integers(-45, 20, number)
    parts = np.ldexp(rng.uniform(-2, 2, number), exponents)
    special = rng.random(number)
    parts = np.where(special < 0.1, [0.0, -0.0, np.inf, -np.inf][seed % 4], parts)
    with np.errstate(all="ignore"):
        parts = parts.astype(part)
    return parts.view(native).astype(dtype)


def rounded_to_bfloat16(source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round doubles once: through float rounded to odd (versions of ml_dtypes round twice)."""
    with np.errstate(all="ignore"):
        near = source.astype("f4")
        toward_zero = np.where(abs(near) > abs(source), np.nextafter(near, np.float32(0)), near)
        inexact = (toward_zero != source).astype("u4")
        return (toward_zero.view("u4") | inexact).view("f4").astype(BFLOAT16)


def cast(source: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.kind != "c" and source.dtype.kind == "c" and dtype.kind != "b":
        source = source.real
    if dtype == BFLOAT16 and source.dtype == np.dtype("f8"):
        return rounded_to_bfloat16(source)
    with np.errstate(all="ignore"):
        return source.astype(dtype)


@st.composite
def dtypes(draw: st.DrawFn) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """(target, source), with byte orders."""
    if draw(st.booleans()):
        one = draw(st.sampled_from(NUMERIC + OPAQUE))
        pair = (one, one)
    else:
        pair = (draw(st.sampled_from(NUMERIC)), draw(st.sampled_from(NUMERIC)))
    orders = draw(st.sampled_from(["==", "=>", ">=", ">>"]))
    return pair[0].newbyteorder(orders[0]), pair[1].newbyteorder(orders[1])


@st.composite
def views(draw: st.DrawFn, base_shape: Sequence[int]) -> tuple[slice, ...]:
    index = []
    for size in base_shape:
        start = draw(st.integers(0, size - 1))
        step = draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2]))
        index.append(slice(start if step < 0 else start // 2, None, step))
    return tuple(index)


@needs_compiler
@kernel_settings
@given(data=st.data())
def test_any_view_of_any_array_becomes_any_view_of_any_dtype(data: st.DataObject) -> None:
    to, frm = data.draw(dtypes())
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=0, max_size=8)))
    source_order, target_order = data.draw(st.sampled_from(["CC", "CF", "FC", "FF"]))
    count = int(np.prod(shape))
    shifts = data.draw(st.tuples(st.sampled_from([0, 1, 4]), st.sampled_from([0, 2, 3])))
    source_base = np.frombuffer(values_of(frm, count, count + len(shape), to).tobytes(), "u1")
    whole_source = source_base.view(frm).reshape(shape, order=source_order)
    index = data.draw(views(shape))
    source = whole_source[(..., *index)]
    target_shape = tuple(2 * size for size in source.shape)
    base = np.full(int(np.prod(target_shape)) * to.itemsize + 2 * GUARD, 0xA5, "u1")
    whole = base[GUARD : len(base) - GUARD].view(to).reshape(target_shape, order=target_order)
    steps = data.draw(st.lists(st.sampled_from([1, 2, -1]), min_size=8, max_size=8))
    target = whole[(..., *(slice(None, None, step) for step in steps[: len(shape)]))]
    target = target[(..., *(slice(0, size) for size in source.shape))]
    got = run_copy(target, base, source, source_base, shifts)
    target[...] = cast(source, to)
    np.testing.assert_array_equal(got, base)


@needs_compiler
@kernel_settings
@given(data=st.data())
def test_a_range_of_items_and_no_other_is_copied(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    order = data.draw(st.sampled_from(["C", "F"]))
    items = int(np.prod(shape))
    first = data.draw(st.integers(0, items))
    count = data.draw(st.integers(0, items - first))
    base = np.zeros(items * 4, "u1")
    target = base.view("f4").reshape(shape, order=order)
    source = np.arange(1, items + 1, dtype=">f4").reshape(shape)
    got = run_copy(target, base, source, source.view("u1").reshape(-1), first=first, count=count)
    expected = np.zeros(items, "f4")
    expected[first : first + count] = source.reshape(-1)[first : first + count]
    target[...] = expected.reshape(shape)
    np.testing.assert_array_equal(got, base)


@needs_compiler
@pytest.mark.parametrize("to", REAL, ids=str)
def test_every_half_and_bfloat16_casts_as_in_numpy(to: np.dtype[Any]) -> None:
    for dtype in (np.dtype("f2"), BFLOAT16):
        every = np.arange(65536, dtype="u2").view(dtype)
        with np.errstate(all="ignore"):
            wide = every.astype("f8")
        if to.kind in "iu":
            low, high = np.iinfo(to).min, np.iinfo(to).max
            every = every[np.isfinite(wide) & (wide > max(low, -(2.0**62))) & (wide < high)]
        else:
            every = every[~np.isnan(wide)]
        base = np.zeros(every.size * to.itemsize, "u1")
        got = run_copy(base.view(to), base, every, every.view("u1"))
        np.testing.assert_array_equal(got, cast(every, to).view("u1"))


@needs_compiler
@pytest.mark.parametrize("to", ["f2", "f4", "bfloat16", "?"])
def test_doubles_are_rounded_once_and_subnormals_survive(to: str) -> None:
    dtype = BFLOAT16 if to == "bfloat16" else np.dtype(to)
    rng = np.random.default_rng(1)
    halves = np.arange(0x7C00, dtype="u2").view("f2").astype("f8")
    ties = (halves[:-1] + halves[1:]) / 2
    floats = rng.integers(0, 0x7F800000, 20000).astype("u4").view("f4").astype("f8")
    tiny = np.ldexp(rng.uniform(1, 2, 4000), rng.integers(-1074, -120, 4000))
    near = [np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)]
    source = np.concatenate([ties, *near, floats, tiny, [65519.99, 65520, np.inf, 5e-324, 0]])
    source = np.concatenate([source, -source])
    base = np.zeros(source.size * dtype.itemsize, "u1")
    got = run_copy(base.view(dtype), base, source, source.view("u1"))
    np.testing.assert_array_equal(
        got.view(dtype).view(f"u{dtype.itemsize}"), cast(source, dtype).view(f"u{dtype.itemsize}")
    )


@needs_compiler
@pytest.mark.parametrize("to", ["f2", "f4", "f8"])
@pytest.mark.parametrize("frm", ["f2", "f4", "f8"])
def test_nan_stays_nan_through_a_cast_and_keeps_its_bits_without(to: str, frm: str) -> None:
    unsigned = f"u{frm[1]}"
    top = np.array(np.inf, frm).view(unsigned)
    source = (top | np.array([1, 2, 5], unsigned)).view(frm)
    base = np.zeros(3 * int(to[1]), "u1")
    got = run_copy(base.view(to), base, source, source.view("u1"))
    assert np.isnan(got.view(to)).all()
    if to == frm:
        np.testing.assert_array_equal(got, source.view("u1"))


@needs_compiler
@pytest.mark.parametrize("dtype", ["u1", "u2", ">u2", ">f4", ">f8", ">c16", "V3", "V12"])
@pytest.mark.parametrize(
    "shape", [(150, 90), (3, 65, 64, 2), (64, 1, 200), (13, 13), (152, 300), (5, 260, 4)]
)
def test_transposed_copies(dtype: str, shape: tuple[int, ...]) -> None:
    frm = np.dtype(dtype)
    to = frm.newbyteorder("=")
    source = values_of(frm, int(np.prod(shape)), 3, to)
    base = np.zeros(source.size * to.itemsize, "u1")
    target = base.view(to).reshape(shape, order="F")
    got = run_copy(target, base, source.reshape(shape), source.view("u1"))
    target[...] = source.reshape(shape)
    np.testing.assert_array_equal(got, base)


@pytest.mark.parametrize(
    ("dtype", "shape", "shift", "words"),
    [
        ("u1", (152, 300), 0, True),
        ("i2", (154, 66), 0, True),
        ("u1", (150, 300), 0, False),  # a stride that no word starts at
        ("u1", (152, 300), 1, False),  # nor this address
        (">u2", (152, 300), 0, False),  # swapped by the other kernel
        ("u4", (152, 300), 0, False),
    ],
)
def test_small_items_are_turned_by_words(
    dtype: str, shape: tuple[int, int], shift: int, words: bool
) -> None:
    source = np.empty(shape, dtype)
    target = np.empty(shape, source.dtype.newbyteorder("="), order="F")
    (launch,) = kernels.plan(
        kernels.Strided(4096 + shift, target.dtype, shape, target.strides),
        kernels.Strided(8192, source.dtype, shape, source.strides),
    )
    assert launch.kernel.words is words


@needs_compiler
@pytest.mark.parametrize("align", [False, True])
def test_fields_of_structured_items(align: bool) -> None:
    record = np.dtype(
        [("a", "u1"), ("b", ">f4"), ("c", "<f8", (3,)), ("d", ">i2"), ("e", ">c8")], align=align
    )
    count = 37
    base = np.random.default_rng(5).integers(0, 64, count * record.itemsize).astype("u1")
    records = base.view(record)
    for name in "abcde":
        field = records[name]
        native = field.dtype.newbyteorder("=")
        target_base = np.zeros(field.size * native.itemsize, "u1")
        target = target_base.view(native).reshape(field.shape)
        got = run_copy(target, target_base, field, base)
        np.testing.assert_array_equal(got, field.astype(native).reshape(-1).view("u1"))


@needs_compiler
def test_a_broadcast_source_fills_the_target() -> None:
    row = np.arange(40, dtype=">i2")
    source = np.broadcast_to(row, (30, 40))
    base = np.zeros(30 * 40 * 4, "u1")
    got = run_copy(base.view("i4").reshape(30, 40), base, source, row.view("u1"))
    np.testing.assert_array_equal(got.view("i4").reshape(30, 40), source)


@needs_compiler
@pytest.mark.parametrize("shift", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("dtype", ["i2", "f4", "f8", "c8", "c16", "u1", "bfloat16"])
def test_swap_in_place(dtype: str, shift: int) -> None:
    kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    count = 1003
    data = np.random.default_rng(2).integers(0, 256, count * kind.itemsize).astype("u1")
    memory = OnDevice(data, shift)
    kernels.swap_inplace(memory.ptr, kind, count, device=0, stream=0, platform=PLATFORM)
    np.testing.assert_array_equal(
        memory.bytes().view(f"V{kind.itemsize}"),
        data.view(kind).byteswap().view(f"V{kind.itemsize}"),
    )


@needs_compiler
@pytest.mark.parametrize("row_bytes", [1, 3, 4, 16, 48, 4096, 70_000])
def test_rows_at_any_offsets_are_packed(row_bytes: int) -> None:
    rng = np.random.default_rng(row_bytes)
    data = rng.integers(0, 256, 200_000).astype("u1")
    for unit in (1, 4, 16):
        offsets = rng.integers(0, (data.size - row_bytes) // unit, 21) * unit
        source, where = OnDevice(data), OnDevice(offsets.astype("i8").view("u1"))
        target = OnDevice(np.zeros(21 * row_bytes, "u1"))
        kernels.gather_rows(
            target.ptr,
            source.ptr,
            row_bytes,
            where.ptr,
            21,
            device=0,
            stream=0,
            platform=PLATFORM,
        )
        expected = np.concatenate([data[o : o + row_bytes] for o in offsets])
        np.testing.assert_array_equal(target.bytes(), expected)


@needs_compiler
def test_launches_are_queued_on_the_given_stream_and_device() -> None:
    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one device")
    with cp.cuda.Device(1):
        stream = cp.cuda.Stream(non_blocking=True)
        source, target = cp.empty(64, np.uint8), cp.empty(64, np.uint8)
        source.set(np.arange(64, dtype="u1"))
        # The upload went to another stream, which a non-blocking one does not wait for.
        cp.cuda.Device().synchronize()
    kernels.copy(
        Strided(target.data.ptr, np.dtype("f4"), (16,), (4,)),
        Strided(source.data.ptr, np.dtype(">f4"), (16,), (4,)),
        device=1,
        stream=stream.ptr,
        platform=PLATFORM,
    )
    assert cp.cuda.runtime.getDevice() == 0
    stream.synchronize()
    expected = np.arange(64, dtype="u1").view("u4").byteswap().view("u1")
    np.testing.assert_array_equal(target.get(), expected)


def strided(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "f4") -> Strided:
    return Strided(4096, np.dtype(dtype), shape, strides)


@pytest.mark.parametrize(
    ("shape", "strides"), [((3,), (0,)), ((3,), (2,)), ((3, 4), (4, 4)), ((2, 5), (-16, 4))]
)
def test_overlapping_targets_are_refused(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="overlap"):
        kernels.plan(strided(shape, strides), strided(shape, (4,) * len(shape)))


@pytest.mark.parametrize(
    ("shape", "strides"), [((3, 2), (8, 12)), ((1, 3), (0, 4)), ((0, 3), (0, 0)), ((4,), (-4,))]
)
def test_interleaved_and_trivial_targets_are_not_refused(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    kernels.plan(strided(shape, strides), strided(shape, strides))


def test_what_cannot_be_done_is_said() -> None:
    one = strided((3,), (4,))
    with pytest.raises(ValueError, match="shapes differ"):
        kernels.plan(one, strided((4,), (4,)))
    with pytest.raises(ValueError, match="not within"):
        kernels.plan(one, one, 2, 2)
    with pytest.raises(TypeError, match="no cast from"):
        kernels.plan(one, strided((3,), (4,), "S4"))


def test_copies_beyond_32_bit_indices_are_split() -> None:
    size = 3 * 2**31 + 5
    launches = kernels.plan(strided((size,), (8,), "u1"), strided((size,), (1,), "u1"))
    assert sum(launch.count for launch in launches) == size
    assert all(launch.count < 2**31 for launch in launches)
    covered = sorted((launch.dst, launch.count) for launch in launches)
    for (here, count), (after, _) in itertools.pairwise(covered):
        assert here + 8 * count == after


@given(st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_division_by_multiplication(number: int, n: int) -> None:
    value, magic, shift = kernels.divisor(number)
    assume(value == number)
    assert magic < 2**32
    assert ((n * magic >> 32) + n) >> shift == n // number


def test_the_module_imports_no_array_library() -> None:
    code = (
        "import sys, hipfile_arrays._transfer.kernels as k; k.available(); "
        "assert 'cupy' not in sys.modules"
    )
    clean = {k: v for k, v in os.environ.items() if k != "HIPFILE_ARRAYS_EMULATE"}
    subprocess.run([sys.executable, "-c", code], check=True, env=clean)


def test_without_cupy_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    one, other = strided((3,), (4,)), strided((3,), (4,), ">f4")
    with pytest.raises(ImportError, match=r'pip install "hipfile-arrays\[rocm\]"') as caught:
        kernels.copy(one, other, device=0, stream=0, platform=Platform.HIP)
    assert isinstance(caught.value, kernels.KernelsUnavailable)


@needs_compiler
def test_a_cache_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    activate = "emulator.activate()" if emulator.is_active() else "None"
    code = f"""
from hipfile_arrays import emulator
{activate}
import pathlib
import cupy as cp, numpy as np
from hipfile_arrays._transfer import kernels
folder = pathlib.Path({str(folder)!r})
if folder.exists():
    folder.rmdir()
folder.write_text("not a folder: also root cannot write into it")
from hipfile_arrays._transfer.values import Platform
x = cp.empty(4, np.float32)
x.set(np.arange(4, dtype="f4"))
kernels.swap_inplace(x.data.ptr, x.dtype, 4, device=0, stream=0, platform=Platform({PLATFORM:d}))
assert (x.get() == np.arange(4, dtype="f4").byteswap()).all()
"""
    environment = {**os.environ, "CUPY_CACHE_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
