"""`read_many` and `write_many`: many arrays and offsets, one transfer, all or an error."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import device_bytes, random_bytes

import hipfile_arrays as hfa
from hipfile_arrays._transfer.many import joined

PATHS = ["auto", "staged", "library"]
SIZE = 1 << 20


@pytest.fixture(scope="module")
def data() -> bytes:
    return random_bytes(SIZE)


@pytest.fixture
def file(folder: Path, data: bytes) -> Path:
    (folder / "f").write_bytes(data)
    return folder / "f"


@pytest.mark.parametrize("path_taken", PATHS)
@pytest.mark.parametrize("row", [1, 512, 4096, 70_001])
@pytest.mark.parametrize("pitch", [0, 512])
def test_rows_of_one_array(file: Path, data: bytes, path_taken: Any, row: int, pitch: int) -> None:
    offsets = np.random.default_rng(0).integers(0, SIZE - row, 50)
    whole = cp.asarray(np.full((50, row + pitch), 7, "u1"))
    rows = whole[:, :row]
    with hfa.open(file) as opened:
        assert opened.read_many(rows, offsets, path=path_taken) == 50 * row
    for got, at in zip(cp.asnumpy(rows), offsets.tolist(), strict=True):
        assert got.tobytes() == data[at : at + row]
    assert (cp.asnumpy(whole)[:, row:] == 7).all()  # what lies between is untouched


@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, 4096, 5000, 66_000]), max_size=12),
    seed=st.integers(0, 99),
    path_taken=st.sampled_from(PATHS),
    registered=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_arrays_of_any_sizes_there_and_back(
    tmp_path_factory: Any,
    data: bytes,
    sizes: list[int],
    seed: int,
    path_taken: Any,
    registered: bool,
) -> None:
    folder = tmp_path_factory.mktemp("many")
    (folder / "f").write_bytes(data)
    random = np.random.default_rng(seed)
    starts = np.cumsum([0, *sizes])[:-1] + 7  # neighbours in the file, in any order
    order = random.permutation(len(sizes))
    sizes, offsets = [sizes[i] for i in order], [int(starts[i]) for i in order]
    pool = cp.asarray(np.zeros(sum(sizes) + 1, "u1"))  # neighbours on the device too
    ends = np.cumsum([0, *sizes])
    arrays = [pool[a:b] for a, b in itertools.pairwise(ends)]
    with hfa.open(folder / "f") as source, hfa.open(folder / "g", "w") as copy:
        buffer = hfa.register(pool) if registered else None
        assert source.read_many(arrays, offsets, path=path_taken) == sum(sizes)
        assert copy.write_many(arrays, offsets, path=path_taken) == sum(sizes)
        if buffer is not None:
            buffer.close()
    for array, at, size in zip(arrays, offsets, sizes, strict=True):
        assert device_bytes(array) == data[at : at + size]
    assert (folder / "g").read_bytes()[7:] == data[7 : 7 + sum(sizes)]


@pytest.mark.emulated
class TestOneTransfer:
    """What is done once for all of them."""

    def test_one_pointer_lookup_an_allocation(self, make_file: Any, counters: Any) -> None:
        pool = cp.zeros(64 * 4096, "u1")
        with hfa.open(make_file(bytes(SIZE))) as file:
            before = counters().get("hipPointerGetAttributes", 0)
            file.read_many([pool[4096 * i :][:4096] for i in range(64)], np.arange(64) * 9000)
            assert counters()["hipPointerGetAttributes"] - before == 1

    def test_none_in_a_registered_buffer(self, make_file: Any, counters: Any) -> None:
        pool = cp.zeros(64 * 4096, "u1")
        with hfa.open(make_file(bytes(SIZE))) as file, hfa.register(pool) as buffer:
            before = counters().get("hipPointerGetAttributes", 0)
            file.read_many([pool[4096 * i :][:4096] for i in range(64)], np.arange(64) * 9000)
            file.read_many([buffer], [0])
            assert counters()["hipPointerGetAttributes"] == before
            assert [info.hits for info in hfa.buffers()] == [2]

    def test_neighbours_are_copied_together(self, make_file: Any, counters: Any) -> None:
        rows = cp.zeros((64, 4096), "u1")
        offsets = np.random.default_rng(1).permutation(64) * 8192
        with hfa.open(make_file(bytes(SIZE))) as file:
            file.read_many(rows, offsets)
            assert counters().get("hipMemcpyAsync", 0) <= 4

    def test_two_devices_and_two_streams(self, make_file: Any, data: bytes) -> None:
        with cp.cuda.Device(1):
            there = cp.zeros(5000, "u1")
        here = cp.zeros(5000, "u1")
        with hfa.open(make_file(data)) as file:
            assert file.read_many([here, there], [0, 5000]) == 10_000
        assert device_bytes(here) + device_bytes(there) == data[:10_000]
        assert cp.cuda.Device().id == 0

    def test_a_write_sees_earlier_work(self, tmp_path: Path) -> None:
        stream = cp.cuda.Stream(non_blocking=True)
        rows = cp.zeros((4, 5000), "u1")
        cp.cuda.Device().synchronize()
        with hfa.emulator.late_streams(30_000), stream, hfa.open(tmp_path / "f", "w") as file:
            rows.fill(7)
            file.write_many(rows, np.arange(4) * 5000)
        assert (tmp_path / "f").read_bytes() == bytes([7]) * 20_000


class TestRefused:
    """Nothing has moved when these are raised."""

    @pytest.fixture
    def rows(self) -> Any:
        return cp.asarray(np.full((2, 100), 7, "u1"))

    def test_a_range_beyond_the_end(self, make_file: Any, rows: Any) -> None:
        with (
            hfa.open(make_file(bytes(150))) as file,
            pytest.raises(hfa.ShortReadError, match=r"1 of 2 ranges.*number 1 .*offset 51") as info,
        ):
            file.read_many(rows, [50, 51])
        assert (info.value.expected, info.value.found) == (200, 199)
        assert (cp.asnumpy(rows) == 7).all()

    @pytest.mark.parametrize(
        ("offsets", "error", "message"),
        [
            ([0], ValueError, "one row"),
            ([0, -1], ValueError, "negative"),
            ([0.5, 1], TypeError, "integers"),
            ([[0, 1]], ValueError, "one-dimensional"),
            ([0, 2**63 - 50], ValueError, "too large"),
        ],
    )
    def test_offsets(
        self, make_file: Any, rows: Any, offsets: Any, error: Any, message: str
    ) -> None:
        with hfa.open(make_file(bytes(500))) as file, pytest.raises(error, match=message):
            file.read_many(rows, offsets)
        assert (cp.asnumpy(rows) == 7).all()

    def test_shared_memory_and_shared_bytes(self, make_file: Any, rows: Any) -> None:
        with hfa.open(make_file(bytes(500)), "r+") as file:
            with pytest.raises(ValueError, match="numbers 0 and 1 share memory"):
                file.read_many([rows[0], rows[0, 50:]], [0, 100])
            with pytest.raises(ValueError, match="numbers 0 and 1 share bytes of the file"):
                file.write_many(rows, [50, 149])
            assert file.read_many(rows, [50, 50]) == 200  # the same bytes twice are fine

    def test_what_is_not_contiguous(self, make_file: Any, rows: Any) -> None:
        with hfa.open(make_file(bytes(500))) as file:
            with pytest.raises(ValueError, match="rows of an array of shape"):
                file.read_many(rows[:, ::2], [0, 100])
            with pytest.raises(ValueError, match="array 1 of 2 is not contiguous"):
                file.read_many([rows[0], rows[1, ::2]], [0, 100])

    def test_host_memory(self, make_file: Any, rows: Any) -> None:
        with hfa.open(make_file(bytes(500))) as file, pytest.raises(hfa.MemoryTypeError):
            file.read_many([rows[0], np.zeros(3)], [0, 100])

    def test_nothing(self, make_file: Any) -> None:
        with hfa.open(make_file(b"")) as file:
            assert file.read_many([], []) == 0
            assert file.read_many(cp.empty((0, 5)), []) == 0
            assert file.read_many(cp.empty((3, 0)), [1, 2, 3]) == 0


def test_progress_counts_to_the_end(file: Path) -> None:
    seen = []
    with hfa.open(file) as opened:
        opened.read_many(
            cp.empty((10, 5000), "u1"), range(10), progress=lambda *told: seen.append(told)
        )
    assert seen[-1] == (50_000, 50_000)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=20),
    st.randoms(use_true_random=False),
)
def test_joining_keeps_every_byte(gaps: list[tuple[int, int]], random: Any) -> None:
    pieces = []
    at = 0
    for gap, size in gaps:
        at += gap if gap > 25 else 0
        pieces.append((at, 10_000 + at if gap % 2 else 500_000 - 20 * len(pieces), size))
        at += size
    random.shuffle(pieces)

    def every_byte(rows: Any) -> set[tuple[int, int]]:
        return {(o + i, p + i) for o, p, n in rows for i in range(n)}

    offsets, pointers, nbytes = joined(
        *(np.array(column, np.int64) for column in zip(*pieces, strict=True))
    )
    rows = list(zip(offsets.tolist(), pointers.tolist(), nbytes.tolist(), strict=True))
    assert every_byte(rows) == every_byte(pieces)
    assert len(rows) <= len(pieces)
