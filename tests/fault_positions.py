"""Runs every scenario with a fault at each call number; started by test_fault_positions.

    LD_PRELOAD=... python fault_positions.py FOLDER MOST LATE

At most MOST positions of one function in one scenario are tried, spread over all, on streams that
start everything LATE microseconds late. Prints what went wrong and, last, how many positions were
hit.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipfile_arrays import emulator

emulator.activate()

import cupy as cp
import numpy as np

import hipfile_arrays as hfa
from hipfile_arrays import _native

SIZE = 5 * 65536 + 777
SMALL = 3000
GUARD = 4096
DATA = np.random.default_rng(0).integers(1, 255, SIZE, dtype=np.uint8)

# What each function may answer. For the system calls 0 means half of the bytes.
HIP = {"": (2, 719)}
HIPFILE = {"": (5001, 5030), "hipFileRead": (5030, 719, 5027), "hipFileWrite": (5030, 719, 5027)}
SYSTEM = {
    "preadv": (errno.EIO, errno.EINTR, 0),
    "pwritev": (errno.ENOSPC, errno.EINTR, 0),
    "open": (errno.EMFILE,),
    "fstat": (errno.EIO,),
    "mmap": (errno.ENOMEM,),
    "pthread_create": (errno.EAGAIN,),
}
# Not tried: what tells of errors, and what gives things back (one that fails keeps them).
LEFT_OUT = {
    "hipGetLastError",
    "hipGetErrorName",
    "hipGetErrorString",
    "hipFree",
    "hipHostFree",
    "hipHostUnregister",
    "hipEventDestroy",
    "hipStreamDestroy",
    "hipFileBufDeregister",
    "hipFileHandleDeregister",
}

# What a user may get to see; CuPy's own where CuPy is asked for memory or a launch.
DOCUMENTED = (
    OSError,
    hfa.HipFileArraysError,
    MemoryError,
    cp.cuda.runtime.CUDARuntimeError,
    cp.cuda.driver.CUDADriverError,
)


class Memory:
    """Device memory with a guard on both sides."""

    def __init__(self, size: int) -> None:
        self.whole = cp.asarray(np.full(size + 2 * GUARD, 0xAB, "u1"))
        self.array = self.whole[GUARD : GUARD + size]

    def fill(self, data: Any) -> None:
        self.whole[:] = 0xAB
        self.array.set(data)

    def check(self) -> None:
        host = cp.asnumpy(self.whole)
        assert (host[:GUARD] == 0xAB).all(), "bytes before the array were written"
        assert (host[len(host) - GUARD :] == 0xAB).all(), "bytes after the array were written"


@dataclass(frozen=True)
class Scenario:
    """One transfer, and how to see that it did what it said."""

    name: str
    act: Callable[[], object]
    verify: Callable[[], None]
    before: Callable[[], None]


def scenarios(folder: Path) -> Iterator[Scenario]:
    source, target = folder / "in", folder / "out"
    source.write_bytes(DATA.tobytes())
    memory = Memory(SIZE)
    grid = cp.zeros((SIZE, 2), "u1")

    def reset_read() -> None:
        memory.fill(np.zeros(SIZE, "u1"))

    def reset_write() -> None:
        memory.fill(DATA)
        target.write_bytes(bytes(SIZE + 100))

    def verify_read(size: int = SIZE, offset: int = 0) -> Callable[[], None]:
        def verify() -> None:
            host = cp.asnumpy(memory.array[:size])
            assert (host == DATA[offset : offset + size]).all(), "wrong bytes in the array"

        return verify

    def verify_write(size: int = SIZE) -> Callable[[], None]:
        def verify() -> None:
            assert target.read_bytes()[:size] == DATA[:size].tobytes(), "wrong bytes in the file"

        return verify

    def read(path: Any, size: int = SIZE, offset: int = 0) -> None:
        with hfa.open(source) as file:
            file.read(memory.array[:size], offset, path=path)

    def write(path: Any, size: int = SIZE) -> None:
        with hfa.open(target, "r+") as file:
            file.write(memory.array[:size], path=path)

    def drop_cache() -> None:
        reset_read()
        with open(source, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    for path in ("staged", "auto", "library"):
        yield Scenario(f"read {path}", lambda path=path: read(path), verify_read(), reset_read)
        yield Scenario(f"write {path}", lambda path=path: write(path), verify_write(), reset_write)
    yield Scenario("read cold", lambda: read("auto"), verify_read(), drop_cache)
    yield Scenario("read cold, staged", lambda: read("staged"), verify_read(), drop_cache)
    for path in ("auto", "library"):
        yield Scenario(
            f"read small {path}",
            lambda path=path: read(path, SMALL, 5),
            verify_read(SMALL, 5),
            reset_read,
        )
        yield Scenario(
            f"write small {path}",
            lambda path=path: write(path, SMALL),
            verify_write(SMALL),
            reset_write,
        )

    def registered(act: Callable[[hfa.File, Any], object], mode: Any) -> None:
        name = target if mode == "r+" else source
        with hfa.register(memory.array) as buffer, hfa.open(name, mode) as file:
            act(file, buffer)

    yield Scenario(
        "read registered",
        lambda: registered(lambda file, buffer: file.read(buffer), "r"),
        verify_read(),
        reset_read,
    )
    yield Scenario(
        "read registered, direct",
        lambda: registered(lambda file, buffer: file.read(buffer, path="direct"), "r"),
        verify_read(),
        reset_read,
    )
    yield Scenario(
        "write registered",
        lambda: registered(lambda file, buffer: file.write(buffer), "r+"),
        verify_write(),
        reset_write,
    )

    def later(reads: bool) -> None:
        with hfa.open(source if reads else target, "r" if reads else "r+") as file:
            transfer = file.read_async(memory.array) if reads else file.write_async(memory.array)
            transfer.result(timeout=60)

    yield Scenario("read_async", lambda: later(True), verify_read(), reset_read)
    yield Scenario("write_async", lambda: later(False), verify_write(), reset_write)

    offsets = np.arange(20) * 4096

    def many(reads: bool) -> None:
        rows = memory.array[: 20 * 4096].reshape(20, 4096)
        with hfa.open(source if reads else target, "r" if reads else "r+") as file:
            file.read_many(rows, offsets) if reads else file.write_many(rows, offsets)

    yield Scenario("read_many", lambda: many(True), verify_read(20 * 4096), reset_read)
    yield Scenario("write_many", lambda: many(False), verify_write(20 * 4096), reset_write)

    def verify_grid() -> None:
        host = cp.asnumpy(grid)
        assert (host[:, 0] == DATA).all(), "wrong bytes in the column"
        assert (host[:, 1] == 0xAB).all(), "the other column was written"

    def reset_grid() -> None:
        grid[:] = 0xAB
        target.write_bytes(bytes(SIZE))

    def strided() -> None:
        hfa.fromfile(source, "u1", out=grid[:, 0])
        hfa.tofile(grid[:, 0], target, atomic=True)

    yield Scenario("strided, there and back", strided, verify_grid, reset_grid)

    def atomic() -> None:
        try:
            hfa.tofile(memory.array, target, atomic=True, sync=True)
        except BaseException:
            assert target.read_bytes() == bytes(SIZE + 100), "the old file is damaged"
            raise

    yield Scenario("write atomically", atomic, verify_write(), reset_write)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def state(folder: Path) -> dict[str, Any]:
    gc.collect()
    _native.release_resources()
    cp.get_default_memory_pool().free_all_blocks()
    return {
        **emulator.live(),
        "descriptors": open_descriptors(),
        "registrations": len(_native.registrations()),
        "pinned bytes": _native.pinned_bytes(),
        "threads": _native.thread_count(),
        "files": sorted(os.listdir(folder)),
    }


def spread(count: int, most: int) -> list[int]:
    """Return call numbers from 1 to `count`: all, or `most` of them with the first and the last."""
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})


def codes_of(name: str) -> tuple[int, ...]:
    if name in SYSTEM:
        return SYSTEM[name]
    table = HIPFILE if name.startswith("hipFile") else HIP
    return table.get(name, table[""])


class Runner:
    """Counts what was hit and what went wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hit = 0
        self.failed = 0

    def run(self, scenario: Scenario, most: int) -> None:
        for _ in range(2):  # what is made once for good is there afterwards
            scenario.before()
            scenario.act()
        scenario.verify()
        base = state(self.folder)
        scenario.before()
        emulator.reset_counters()
        with emulator.system_call_faults():
            scenario.act()
            calls = {name: n for name, n in emulator.system_call_counts().items() if n}
        for name, count in emulator.counters().items():
            if name.startswith("hip") and "." not in name and name not in LEFT_OUT:
                calls[name] = count
        scenario.verify()
        assert state(self.folder) == base
        for name, count in sorted(calls.items()):
            for at in spread(count, most):
                for code in codes_of(name):
                    self.position(scenario, name, at, code, base)

    def position(
        self, scenario: Scenario, name: str, at: int, code: int, base: dict[str, Any]
    ) -> None:
        what = f"{scenario.name}: {name} call {at} answers {code}"
        self.hit += 1
        try:
            scenario.before()
            failure = self.act(scenario, name, at, code)
            if failure is None:
                scenario.verify()
            elif not isinstance(failure, DOCUMENTED):
                raise failure
            elif not str(failure):
                raise AssertionError(f"an error without a word: {failure!r}")
            del failure
            now = state(self.folder)
            assert now == base, {k: (base[k], v) for k, v in now.items() if base[k] != v}
            scenario.before()
            scenario.act()
            scenario.verify()
        except Exception:
            self.failed += 1
            print(f"FAILED {what}\n{traceback.format_exc()}", flush=True)

    def act(self, scenario: Scenario, name: str, at: int, code: int) -> BaseException | None:
        context = (
            emulator.system_call_faults(name, at, code)
            if name in SYSTEM
            else emulator.faults(entries={name: (at, code)})
        )
        try:
            with context:
                scenario.act()
        except Exception as error:
            return error.with_traceback(None)
        return None


def main() -> None:
    folder, most, late = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    hfa.config.set(chunk_bytes=65536, threads=2)
    runner = Runner(folder)
    with emulator.late_streams(late):
        for scenario in scenarios(folder):
            runner.run(scenario, most)
    print(f"{runner.hit} positions, {runner.failed} failed")


if __name__ == "__main__":
    main()
