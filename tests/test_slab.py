"""Slabs: NumPy's basic indexing of an array on disk, read into a device array."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import random_bytes

import hipfile_arrays as hfa
from hipfile_arrays._transfer import convert, slab

some_examples = settings(
    max_examples=int(os.environ.get("HIPFILE_ARRAYS_TEST_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def indices(draw: Any, shape: tuple[int, ...]) -> Any:
    """Any basic index of a shape: integers, slices, an ellipsis, new axes."""
    entries: list[Any] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        if size and draw(st.booleans()):
            entries.append(draw(st.integers(-size, size - 1)))
        else:
            ends = st.none() | st.integers(-size - 2, size + 2)
            step = draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
            entries.append(slice(draw(ends), draw(ends), step))
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), Ellipsis)
        # After the ellipsis the entries are of the last axes: only whole slices fit them all.
        at = entries.index(Ellipsis)
        entries[at + 1 :] = [slice(None, None, draw(st.sampled_from([1, 2, -1])))] * len(
            entries[at + 1 :]
        )
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    return tuple(entries)


def on_disk(path: Path, shape: tuple[int, ...], dtype: str, order: Any, offset: int = 0) -> Any:
    """Write an array of random bits; return it as NumPy maps it."""
    count = math.prod(shape) * np.dtype(dtype).itemsize
    path.write_bytes(bytes(offset) + random_bytes(count))
    data = np.frombuffer(path.read_bytes(), dtype, offset=offset)
    return data.reshape(shape, order=order)


@pytest.mark.parametrize("most", [1 << 20, 600])
@given(
    st.data(),
    st.lists(st.integers(0, 7), min_size=1, max_size=6).map(tuple),
    st.sampled_from(["u1", ">i2", "f4", ">f8", "c16"]),
    st.sampled_from("CF"),
    st.sampled_from([0, 3, 4096]),
)
@some_examples
def test_equals_numpys_basic_indexing(
    tmp_path_factory: Any,
    most: int,
    data: Any,
    shape: tuple[int, ...],
    dtype: str,
    order: Any,
    offset: int,
) -> None:
    path = tmp_path_factory.mktemp("slab") / "data"
    array = on_disk(path, shape, dtype, order, offset)
    index = data.draw(indices(shape))
    want = array[index]
    native = want.astype(want.dtype.newbyteorder("="))
    # Between the items of a target with gaps nothing may change.
    gap = data.draw(st.sampled_from([1, 2, 3])) if want.shape else 1
    whole = cp.zeros((*want.shape[:-1], want.shape[-1] * gap) if want.shape else (), native.dtype)
    out = whole[..., ::gap] if want.shape else whole
    former = convert.MOST_TEMPORARY
    convert.MOST_TEMPORARY = most
    try:
        with hfa.open(path) as file:
            file.read_slab(out, shape, dtype, index, offset=offset, order=order)
    finally:
        convert.MOST_TEMPORARY = former
    expected = np.zeros(whole.shape, native.dtype)
    if want.shape:
        expected[..., ::gap] = native
    else:
        expected[...] = native
    assert cp.asnumpy(whole).tobytes() == expected.tobytes()


@given(st.data(), st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple))
@some_examples
def test_the_ranges_hold_every_item_once_and_little_else(data: Any, shape: Any) -> None:
    """The plan alone, without any device, at sizes where gaps are skipped."""
    itemsize = data.draw(st.sampled_from([1, 8, 512, 5000]))
    most = data.draw(st.sampled_from([itemsize, 10_000, 1 << 30]))
    index = data.draw(indices(shape))
    selection = slab.select(shape, itemsize, index, "C")
    if 0 in selection.shape:
        return
    numbers = np.arange(math.prod(shape)).reshape(shape)[index]
    device = numbers.size and slab.packed_strides(numbers.shape, itemsize)
    box = slab.box_of(selection, 0, 0, device)
    got = {}
    for part in slab.parts(box, itemsize, most):
        block = slab.block_of(part, itemsize)
        assert block.total <= most or not part.axes
        starts = slab.offsets(part, block)
        assert len(starts) == block.count
        assert (np.diff(starts) >= block.nbytes).all()  # in file order, none twice
        steps = slab.read_strides(part, block)
        for place in np.ndindex(*(axis.size for axis in part.axes)):
            read = sum(n * step for n, step in zip(place, steps, strict=True))
            at = int(starts[read // block.nbytes]) + read % block.nbytes
            to = part.dst + sum(n * a.dst for n, a in zip(place, part.axes, strict=True))
            assert to not in got
            got[to] = at
    assert got == {
        n * itemsize: int(number) * itemsize for n, number in enumerate(numbers.ravel().tolist())
    }


def test_neighbours_are_read_together_and_wide_gaps_skipped() -> None:
    def block(shape: Any, index: Any, itemsize: int = 4) -> slab.Block:
        selection = slab.select(shape, itemsize, index, "C")
        steps = slab.packed_strides(selection.shape, itemsize)
        return slab.block_of(slab.box_of(selection, 0, 1 << 20, steps), itemsize)

    assert block((100, 100), np.s_[:, ::2]) == slab.Block(0, 4 * (99 * 100 + 99), 1)
    assert block((100, 10_000), np.s_[:, :1024]) == slab.Block(1, 4096, 100)
    assert block((100, 100, 100), np.s_[5]) == slab.Block(0, 40_000, 1)


@pytest.mark.parametrize("most", [600, convert.MOST_TEMPORARY])
def test_what_lies_between_the_items_of_the_target_stays(
    tmp_path: Path, monkeypatch: Any, most: int
) -> None:
    """Also where the target has the very gaps that the file has."""
    monkeypatch.setattr(convert, "MOST_TEMPORARY", most)
    line = on_disk(tmp_path / "line", (100,), "f4", "C")
    target = cp.asarray(np.full(100, -1, "f4"))
    with hfa.open(tmp_path / "line") as file:
        file.read_slab(target[::2], (100,), "f4", np.s_[::2])
    assert (cp.asnumpy(target[::2]) == line[::2]).all()
    assert (cp.asnumpy(target[1::2]) == -1).all()
    cube = on_disk(tmp_path / "cube", (3, 5, 3), "c16", "F")
    out = cp.empty((5, 3), "c16")
    with hfa.open(tmp_path / "cube") as file:
        file.read_slab(out, (3, 5, 3), "c16", 0, order="F")
    assert (cp.asnumpy(out) == cube[0]).all()


def test_rows_go_straight_to_their_place(tmp_path: Path, monkeypatch: Any) -> None:
    array = on_disk(tmp_path / "f", (50, 8192), "f4", "C")
    out = cp.empty((25, 1024), "f4")
    monkeypatch.setattr(convert.kernels, "copy", lambda *a, **k: pytest.fail("needs no kernel"))
    with hfa.open(tmp_path / "f") as file:
        file.read_slab(out, (50, 8192), "f4", np.s_[::2, 100:1124])
    assert cp.asnumpy(out).tobytes() == array[::2, 100:1124].tobytes()


@pytest.mark.parametrize("path", ["auto", "staged", "direct", "library"])
def test_by_every_path(tmp_path: Path, path: Any) -> None:
    if path == "direct" and not cp.cuda.runtime.is_hip:
        pytest.skip("no nvidia-fs: no direct path here")
    array = on_disk(tmp_path / "f", (40, 64, 1024), ">f4", "C")
    out = cp.empty((20, 32, 1024), "f4")
    with hfa.open(tmp_path / "f") as file:
        file.read_slab(out, array.shape, ">f4", np.s_[::2, 32:], path=path)
    assert cp.asnumpy(out).tobytes() == array[::2, 32:].astype("f4").tobytes()


def test_casts_and_strides_at_once(tmp_path: Path) -> None:
    array = on_disk(tmp_path / "f", (9, 11, 13), ">i2", "F", 10)
    out = cp.zeros((13, 6, 4), "f8").transpose(2, 1, 0)[::-1]
    with hfa.open(tmp_path / "f") as file:
        file.read_slab(out, (9, 11, 13), ">i2", np.s_[1::2, ::-2], offset=10, order="F")
    assert np.array_equal(cp.asnumpy(out), array[1::2, ::-2].astype("f8"))


@pytest.mark.parametrize(
    "index, error, words",
    [
        (5, IndexError, "index 5 is out of bounds for axis 0 with size 3"),
        ((0, 0, 0), IndexError, "too many indices"),
        ((..., 0, ...), IndexError, "single ellipsis"),
        (([0, 1],), TypeError, "basic indexing"),
        (True, TypeError, "basic indexing"),
        (np.array([0]), TypeError, "basic indexing"),
        ("x", TypeError, "integer"),
        (np.s_[:2], ValueError, r"gives shape \(2, 4\).*array has shape \(3, 4\)"),
    ],
)
def test_bad_indices_are_refused_as_numpy_does(
    make_file: Any, index: Any, error: Any, words: str
) -> None:
    with hfa.open(make_file(bytes(12))) as file, pytest.raises(error, match=words):
        file.read_slab(cp.empty((3, 4), "u1"), (3, 4), "u1", index)


def test_a_file_that_is_too_short_leaves_the_array_untouched(make_file: Any) -> None:
    out = cp.full(3, 7, "u1")
    with hfa.open(make_file(bytes(10))) as file:
        with pytest.raises(hfa.ShortReadError, match="byte 12"):
            file.read_slab(out, (3, 4), "u1", np.s_[:, 3])
        assert cp.asnumpy(out).tolist() == [7, 7, 7]
        file.read_slab(out, (3, 4), "u1", np.s_[:, 1])  # all there, though the array is not


@pytest.mark.parametrize("dtype", ["S3", [("a", "u1")], ("u1", (2,)), "g"])
def test_items_must_be_numbers(make_file: Any, dtype: Any) -> None:
    with hfa.open(make_file(bytes(64))) as file, pytest.raises(TypeError):
        file.read_slab(cp.empty(2, "u1"), (2,), dtype, ...)


def test_into_a_registered_buffer_with_progress(make_file: Any) -> None:
    file = make_file(random_bytes(100 * 20_000))
    told: list[tuple[int, int]] = []
    x = cp.empty((10, 8192), "u1")
    with hfa.register(x) as buffer, hfa.open(file) as opened:
        opened.read_slab(
            buffer,
            (100, 20_000),
            "u1",
            np.s_[::10, :8192],
            progress=lambda *now: told.append(now),
        )
    assert told[-1] == (81920, 81920)
    want = np.frombuffer(file.read_bytes(), "u1").reshape(100, 20_000)[::10, :8192]
    assert cp.asnumpy(x).tobytes() == want.tobytes()


def test_huge_offsets_of_a_sparse_file(tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as file:
        file.seek(5 << 30)
        file.write(b"\x01\x02")
    out = cp.zeros((2, 1), "u1")
    with hfa.open(tmp_path / "f") as opened:
        opened.read_slab(out, (2, (5 << 29) + 1), "u1", np.s_[:, -1:])
    assert cp.asnumpy(out).ravel().tolist() == [0, 2]
