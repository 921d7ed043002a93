"""What a call costs over hipFile's own: a bare C loop against `File.read` and `fromfile`.

    HIPFILE_ARRAYS_EMULATE=1 python benchmarks/call_overhead.py [--count N]

Reads 4 KiB into a registered buffer, again and again, through the same library, in turns, in one
run. The C loop calls hipFileRead and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import hipfile_arrays as hfa

import cupy as cp  # isort: skip  (after hipfile_arrays: it may have to emulate the device)

NBYTES = 4096
LOOP = r"""
#include <sys/types.h>
#include <time.h>
typedef ssize_t (*reader)(void *, void *, size_t, off_t, off_t);
double loop(reader read, void *handle, void *base, int count) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int i = 0; i < count; ++i)
        if (read(handle, base, 4096, 8192, 0) != 4096) return -1;
    clock_gettime(CLOCK_MONOTONIC, &b);
    return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / count / 1e3;
}
"""


class Descriptor(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("fd", ctypes.c_int64),  # a union with a pointer
        ("operations", ctypes.c_void_p),
    ]


def bare_loop(folder: Path) -> ctypes.CDLL:
    source, library = folder / "loop.c", folder / "loop.so"
    source.write_text(LOOP)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    loop = ctypes.CDLL(str(library))
    loop.loop.restype = ctypes.c_double
    return loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    hipfile = ctypes.CDLL("libhipfile.so.0")
    for what, where, eligible in (
        ("fast path, disk", None, False),
        ("fallback, memory", "/dev/shm", False),
        ("fast path, memory", "/dev/shm", True),
    ):
        print(what)
        measure(hipfile, where, eligible, options.count, options.rounds)


def measure(
    hipfile: ctypes.CDLL, where: str | None, eligible: bool, count: int, rounds: int
) -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=where)))
        if eligible and hfa.emulator.is_active():
            # Without the disk's own time (and its scatter): memory, taken for a file system that
            # the fast path accepts.
            stack.enter_context(hfa.emulator.faults(eligible=True))
        path = folder / "data"
        np.random.default_rng(0).integers(0, 256, 1 << 20, dtype=np.uint8).tofile(path)
        loop = bare_loop(folder)
        x = cp.empty(NBYTES, "u1")
        fd = os.open(path, os.O_RDONLY)
        handle = ctypes.c_void_p()
        hipfile.hipFileHandleRegister(ctypes.byref(handle), ctypes.byref(Descriptor(1, fd)))
        bare, read, through = [], [], []
        with hfa.open(path) as file, hfa.register(x) as buffer:

            def seconds(call: object) -> float:
                start = time.perf_counter()
                for _ in range(count):
                    call()  # type: ignore[operator]
                return (time.perf_counter() - start) / count * 1e6

            for _ in range(rounds):
                bare.append(
                    loop.loop(hipfile.hipFileRead, handle, ctypes.c_void_p(x.data.ptr), count)
                )
                read.append(seconds(lambda: file.read(buffer, 8192, path="library")))
                through.append(
                    seconds(lambda: hfa.fromfile(file, offset=8192, out=buffer, path="library"))
                )
        hipfile.hipFileHandleDeregister(handle)
        os.close(fd)
    b, r, f = (statistics.median(times) for times in (bare, read, through))
    print(f"bare C loop over hipFileRead     {b:8.2f} us")
    print(f"File.read(registered)            {r:8.2f} us   ratio {r / b:.2f}")
    print(f"fromfile(file, out=registered)   {f:8.2f} us   {f - b:+.2f} us")
    print(json.dumps({"bare_us": b, "read_us": r, "fromfile_us": f}))


if __name__ == "__main__":
    main()
