"""The device kernels against a device-to-device copy, in one run.

    python benchmarks/kernels.py [--mib 1024] [--repeat 10] [--json FILE]

Rates count bytes read and written, ratios are over a plain copy of as many bytes. Prints a table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hipfile_arrays  # noqa: F401  (it may have to emulate the device, before CuPy)
from hipfile_arrays._transfer import kernels
from hipfile_arrays._transfer.kernels import Strided
from hipfile_arrays._transfer.values import Platform

import cupy as cp  # isort: skip

PLATFORM = Platform.HIP if cp.cuda.runtime.is_hip else Platform.CUDA
CALLS = 8
WHERE: dict[str, Any] = {"device": 0, "stream": 0, "platform": PLATFORM}


def milliseconds(call: Callable[[], Any], repeat: int) -> float:
    call()
    cp.cuda.runtime.deviceSynchronize()
    times = []
    for _ in range(repeat):
        start, end = cp.cuda.Event(), cp.cuda.Event()
        start.record(cp.cuda.Stream.null)
        # Several, so that the time which Python takes for a call passes while the last one runs.
        for _ in range(CALLS):
            call()
        end.record(cp.cuda.Stream.null)
        end.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, end) / CALLS)
    return statistics.median(times)


def described(like: np.ndarray[Any, Any], ptr: int, base: int) -> Strided:
    offset = like.__array_interface__["data"][0] - base
    return Strided(ptr + offset, like.dtype, like.shape, like.strides)


class Memory:
    """Device memory, with host arrays of the same layout that are only described, never touched."""

    def __init__(self, nbytes: int) -> None:
        self.device = cp.empty(nbytes, np.uint8)
        self.host = np.empty(nbytes, np.uint8)

    def array(self, dtype: str, shape: tuple[int, ...], order: Any = "C") -> np.ndarray[Any, Any]:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.host[:size].view(dtype).reshape(shape, order=order)

    def strided(self, like: np.ndarray[Any, Any]) -> Strided:
        base = self.host.__array_interface__["data"][0]
        return described(like, self.device.data.ptr, base)


def cases(a: Memory, b: Memory, nbytes: int) -> dict[str, tuple[Callable[[], None], int]]:
    """Name -> (call, bytes read and written)."""
    found: dict[str, tuple[Callable[[], None], int]] = {}

    def copy(name: str, to: np.ndarray[Any, Any], frm: np.ndarray[Any, Any]) -> None:
        dst, src = a.strided(to), b.strided(frm)
        found[name] = (lambda: kernels.copy(dst, src, **WHERE), to.nbytes + frm.nbytes)

    for dtype in ("u2", "f4", "f8", "c16"):
        count = nbytes // np.dtype(dtype).itemsize
        found[f"swap {dtype} in place"] = (
            lambda dtype=dtype, count=count: kernels.swap_inplace(  # type: ignore[misc]
                a.device.data.ptr, np.dtype(dtype), count, **WHERE
            ),
            2 * nbytes,
        )
    items = nbytes // 4
    n = int(items**0.5) // 64 * 64
    copy("swap >f4 -> f4", a.array("f4", (items,)), b.array(">f4", (items,)))
    copy("plain, 1 byte off", a.array("u1", (nbytes,))[16:], b.array("u1", (nbytes,))[1:-15])
    copy("plain, 4 bytes off", a.array("u1", (nbytes,))[16:], b.array("u1", (nbytes,))[4:-12])
    copy("cast f8 -> f4", a.array("f4", (items // 2,)), b.array("f8", (items // 2,)))
    copy("cast >i2 -> f4", a.array("f4", (items,)), b.array(">i2", (items,)))
    copy("cast f4 -> f2", a.array("f2", (items,)), b.array("f4", (items,)))
    for run in (4, 16, 64, 1024):
        rows = nbytes // (2 * run)
        packed = ("u1", (rows, run))
        copy(f"gather, runs of {run}", a.array(*packed), b.array("u1", (rows, 2 * run))[:, :run])
        copy(f"scatter, runs of {run}", a.array("u1", (rows, 2 * run))[:, :run], b.array(*packed))
    half = n // 2
    copy("every second f4 column", a.array("f4", (n, half)), b.array("f4", (n, n))[:, ::2])
    copy("reversed f4", a.array("f4", (items,)), b.array("f4", (items,))[::-1])
    for dtype in ("u1", "u2", "f4", ">f4", "f8", "c16"):
        side = int((nbytes / np.dtype(dtype).itemsize) ** 0.5) // 64 * 64
        native = np.dtype(dtype).newbyteorder("=").str
        to, frm = a.array(native, (side, side), "F"), b.array(dtype, (side, side))
        copy(f"transpose {dtype}", to, frm)
    side = round(items ** (1 / 3)) // 16 * 16
    copy("transpose f4, 3-d", a.array("f4", (side,) * 3, "F"), b.array("f4", (side,) * 3))
    pixels = nbytes // 3
    copy("u1 (n, 3) to planes", a.array("u1", (pixels, 3), "F"), b.array("u1", (pixels, 3)))
    copy("u1 planes to (n, 3)", a.array("u1", (pixels, 3)), b.array("u1", (pixels, 3), "F"))
    record = np.dtype([("a", "u1"), ("b", ">f8"), ("c", "<i4")])
    number = nbytes // 16
    copy("packed >f8 field", a.array("f8", (number,)), b.array(record, (number,))["b"])
    rows = max(1, nbytes // 8192)
    offsets = cp.empty(rows, np.int64)
    offsets.set(np.random.default_rng(0).permutation(2 * rows)[:rows].astype("i8") * 4096)
    found["10 kB-scale rows of 4 KiB"] = (
        lambda: kernels.gather_rows(
            a.device.data.ptr, b.device.data.ptr, 4096, offsets.data.ptr, rows, **WHERE
        ),
        2 * rows * 4096,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=float, default=1024 if PLATFORM is Platform.CUDA else 1)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    nbytes = int(options.mib * 2**20) // 8192 * 8192
    a, b = Memory(nbytes), Memory(nbytes)

    def plain() -> None:
        cp.cuda.runtime.memcpyAsync(a.device.data.ptr, b.device.data.ptr, nbytes, 3, 0)

    milliseconds(plain, options.repeat)  # the clocks rise
    copy_rate = 2 * nbytes / milliseconds(plain, options.repeat) / 1e6
    results: dict[str, dict[str, float]] = {"copy": {"gb_per_s": copy_rate, "ratio": 1.0}}
    for name, (call, moved) in cases(a, b, nbytes).items():
        start = time.perf_counter()
        call()
        cp.cuda.runtime.deviceSynchronize()
        first = time.perf_counter() - start
        rate = moved / milliseconds(call, options.repeat) / 1e6
        results[name] = {"gb_per_s": rate, "ratio": rate / copy_rate, "first_call_s": first}
    print(f"{'':28}{'GB/s':>8}{'ratio':>8}{'first call, s':>15}")
    for name, row in results.items():
        print(
            f"{name:28}{row['gb_per_s']:8.1f}{row['ratio']:8.2f}{row.get('first_call_s', 0):15.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
