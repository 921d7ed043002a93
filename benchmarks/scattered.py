"""Parts of files: many small ranges, rows and columns of a matrix, other byte orders.

    python benchmarks/scattered.py [--folder DIR] [--mib 1024] [--json FILE]

Each against what one would do without: kvikio range by range, NumPy's memory map, the same bytes in
native order. All from the page cache, medians of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hipfile_arrays as hfa

import cupy as cp  # isort: skip  (after hipfile_arrays: it may have to emulate the device)

MIB = 1 << 20
ROW = 4096


def seconds(call: Callable[[], Any], repeat: int) -> float:
    call()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def fill(path: Path, nbytes: int) -> None:
    block = np.random.default_rng(0).integers(0, 255, min(nbytes, 64 * MIB), "u1").tobytes()
    with open(path, "wb") as file:
        for start in range(0, nbytes, len(block)):
            file.write(block[: nbytes - start])


def one_by_one(path: Path, rows: Any, offsets: Any) -> Callable[[], None] | None:
    """Read rows with kvikio, if it is installed."""
    try:
        import kvikio
    except ImportError:
        return None
    file = kvikio.CuFile(path, "r")

    def call() -> None:
        for row, offset in zip(rows, offsets.tolist(), strict=True):
            file.read(row, file_offset=offset)

    return call


def measure(folder: Path, nbytes: int, count: int, repeat: int) -> dict[str, float]:
    """Return seconds by name."""
    found: dict[str, float] = {}
    path = folder / "matrix"
    fill(path, nbytes)
    offsets = np.random.default_rng(1).permutation(nbytes // ROW)[:count].astype(np.int64) * ROW
    count = len(offsets)
    rows = cp.empty((count, ROW), "u1")
    views = [rows[i] for i in range(count)]
    peer = one_by_one(path, views, offsets)
    with hfa.open(path) as file:
        found["read_many, rows of one array"] = seconds(
            lambda: file.read_many(rows, offsets), repeat
        )
        expected = np.memmap(path, "u1", "r").reshape(-1, ROW)[offsets // ROW]
        assert (cp.asnumpy(rows) == expected).all()
        found["read_many, as many arrays"] = seconds(lambda: file.read_many(views, offsets), repeat)
        found["File.read, one by one"] = seconds(
            lambda: [file.read(v, o) for v, o in zip(views, offsets.tolist(), strict=True)], repeat
        )
        if peer is not None:
            found["kvikio, one by one"] = seconds(peer, repeat)
        step = max(1, nbytes // ROW // count)
        regular = np.arange(count) * step * ROW
        shape = (nbytes // ROW, ROW)
        found["read_slab, every so many-th row"] = seconds(
            lambda: file.read_slab(rows, shape, "u1", np.s_[: count * step : step]), repeat
        )
        if peer is not None:
            peer = one_by_one(path, views, regular)
            assert peer is not None
            found["kvikio, every so many-th row"] = seconds(peer, repeat)
        floats = nbytes // 4
        columns = 1024
        shape = (floats // columns, columns)
        half = cp.empty((shape[0], columns // 2), "f4")
        found["read_slab, every second column"] = seconds(
            lambda: file.read_slab(half, shape, "f4", np.s_[:, ::2]), repeat
        )
        found["memmap, every second column"] = seconds(
            lambda: cp.asarray(np.memmap(path, "f4", "r", shape=shape)[:, ::2]), 1
        )
    out = cp.empty(floats, "f4")
    found["fromfile, native"] = seconds(lambda: hfa.fromfile(path, "<f4", out=out), repeat)
    found["fromfile, big-endian"] = seconds(lambda: hfa.fromfile(path, ">f4", out=out), repeat)
    found["fromfile, native, new array"] = seconds(
        lambda: hfa.fromfile(path, "<f4", like=cp), repeat
    )
    found["fromfile, big-endian, new array"] = seconds(
        lambda: hfa.fromfile(path, ">f4", like=cp), repeat
    )
    os.unlink(path)
    return found


RATIOS = [
    ("kvikio, one by one", "read_many, rows of one array"),
    ("kvikio, one by one", "read_many, as many arrays"),
    ("File.read, one by one", "read_many, rows of one array"),
    ("kvikio, every so many-th row", "read_slab, every so many-th row"),
    ("memmap, every second column", "read_slab, every second column"),
    ("fromfile, native", "fromfile, big-endian"),
    ("fromfile, native, new array", "fromfile, big-endian, new array"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, help="where files are written (default: a temporary)"
    )
    parser.add_argument("--mib", type=int, default=1024, help="of the matrix")
    parser.add_argument("--count", type=int, default=10_000, help="of small ranges")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        found = measure(Path(folder), arguments.mib * MIB, arguments.count, arguments.repeat)
    for name, took in found.items():
        print(f"{name:40} {took * 1e3:10.3f} ms")
    print()
    ratios = {}
    for slow, quick in RATIOS:
        if slow in found:
            ratios[f"{quick} over {slow}"] = found[slow] / found[quick]
            print(f"{found[slow] / found[quick]:8.2f} x  {quick}  over  {slow}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"seconds": found, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
