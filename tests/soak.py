"""Transfers of random size, offset, array, thread and stream, every byte checked.

    python tests/soak.py [--transfers 1000000] [--minutes 10] [--threads 8] [--late 50]

Each thread has a file of its own, whose bytes it knows, and moves parts of it into and out of
arrays of all kinds. At the end nothing may be left over, and after a warm-up neither memory nor
file descriptors may have grown. On a GPU with HIPFILE_ARRAYS_TEST_PLATFORM=rocm or cuda.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from hipfile_arrays import emulator

if os.environ.get("HIPFILE_ARRAYS_TEST_PLATFORM", "emulated") == "emulated":
    emulator.activate()

import cupy as cp
import numpy as np

import hipfile_arrays as hfa
from hipfile_arrays import _native
from hipfile_arrays._transfer import automatic

FILE = 3 << 20
LARGEST = 300_000


class Worker:
    """One thread's file, streams and arrays, and what the file holds."""

    def __init__(self, folder: Path, number: int) -> None:
        self.random = np.random.default_rng(number)
        self.holds = self.random.integers(0, 256, FILE, np.uint8)
        self.path = folder / f"{number}.bin"
        self.holds.tofile(self.path)
        self.file = hfa.open(self.path, "r+")
        self.streams = [cp.cuda.Stream.null, *(cp.cuda.Stream(non_blocking=True) for _ in range(2))]
        self.kept = cp.zeros(2 * LARGEST, "u1")
        self.registered = hfa.register(cp.zeros(LARGEST, "u1"))
        self.done = 0

    def number(self, most: int) -> int:
        """Small numbers, aligned ones, and any."""
        kind = self.random.integers(0, 3)
        if kind == 0:
            return int(self.random.integers(0, min(most, 200)))
        found = int(self.random.integers(0, most))
        return found // 4096 * 4096 if kind == 1 else found

    def array(self, nbytes: int) -> Any:
        """New, a part of one that stays, or a part of a registered one."""
        kind = self.random.integers(0, 3)
        if kind == 0:
            return cp.empty(nbytes, "u1")
        start = self.number(LARGEST - nbytes + 1)
        return (self.kept if kind == 1 else self.registered.array)[start : start + nbytes]

    def step(self) -> None:
        nbytes = max(1, self.number(LARGEST))
        offset = self.number(FILE - nbytes)
        part = slice(offset, offset + nbytes)
        stream = self.streams[self.random.integers(0, 3)]
        with stream:
            x = self.array(nbytes)
            path = ("auto", "staged", "library")[self.random.integers(0, 3)]
            what = self.random.integers(0, 6)
            if what in (0, 1):
                self.file.read(x, offset, path=path)
            elif what == 2:
                self.file.read_async(x, offset)
            elif what == 3:
                hfa.fromfile(self.file, "u1", offset=offset, out=x, path=path)
            else:
                value = int(self.random.integers(0, 256))
                x[...] = value
                if what == 4:
                    self.file.write(x, offset, path=path)
                else:
                    self.file.write_async(x, offset).result()
                self.holds[part] = value
            found = x.get()
        if not np.array_equal(found, self.holds[part]):
            raise AssertionError(
                f"{nbytes} bytes at {offset} of {self.path} differ ({what}, {path})"
            )
        self.done += 1

    def close(self) -> None:
        self.registered.close()
        self.file.close()
        if not np.array_equal(np.fromfile(self.path, np.uint8), self.holds):
            raise AssertionError(f"{self.path} does not hold what was written")


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(workers: list[Worker], transfers: int, seconds: float) -> list[BaseException]:
    """Do so many transfers, or for so long; return what went wrong."""
    errors: list[BaseException] = []
    end = time.monotonic() + seconds

    def work(worker: Worker) -> None:
        try:
            last = worker.done + transfers // len(workers)
            while worker.done < last and time.monotonic() < end and not errors:
                worker.step()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--transfers", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--late", type=int, default=50, help="microseconds, on the emulated device")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if emulator.is_active():
            stack.enter_context(emulator.late_streams(options.late))
        workers = [Worker(folder, number) for number in range(options.threads)]
        warm_up = options.transfers // 10
        errors = run(workers, warm_up, 60 * options.minutes)
        gc.collect()
        before = resident(), len(os.listdir("/proc/self/fd"))
        begun = time.monotonic()
        errors += run(workers, options.transfers - warm_up, 60 * options.minutes)
        gc.collect()
        grown = resident() - before[0]
        opened = len(os.listdir("/proc/self/fd")) - before[1]
        seconds = time.monotonic() - begun
        for worker in workers:
            try:
                worker.close()
            except BaseException as error:
                errors.append(error)
        done = sum(worker.done for worker in workers)
        workers.clear()
        automatic.close_all()
        _native.release_resources()
    for error in errors[:10]:
        print(f"{type(error).__name__}: {error}")
    left = len(hfa.buffers()), _native.thread_count(), _native.pinned_bytes()
    print(f"{done} transfers, {seconds:.0f} s after the warm-up, {len(errors)} failed")
    print(f"left over: {left[0]} registrations, {left[1]} threads, {left[2]} pinned bytes")
    print(f"grown: {grown} bytes of memory, {opened} descriptors")
    return 1 if errors or any(left) or opened > 0 or grown > 32 << 20 else 0


if __name__ == "__main__":
    raise SystemExit(main())
