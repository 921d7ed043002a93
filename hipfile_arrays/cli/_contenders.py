"""What `bench` compares: ours, the file library alone, the usual ways, and the bare ceilings."""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .._transfer.buffers import register
from ..file import open as open_file

__all__ = ["CONTENDERS", "Case", "Contender", "drop_cache", "parallel_io"]

_PIECE = 4 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement's surroundings.

    Attributes
    ----------
    cupy : module
        CuPy.
    path : Path
        The file; for reads at least as long as the array.
    array : cupy.ndarray
        Of bytes, as many as are moved.
    threads : int
        For those that must be told.
    """

    cupy: Any
    path: Path
    array: Any
    threads: int

    @property
    def nbytes(self) -> int:
        """Bytes that are moved."""
        return int(self.array.nbytes)

    def wait(self) -> None:
        """Wait for the device."""
        self.cupy.cuda.get_current_stream().synchronize()


Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to move the bytes of a case.

    Attributes
    ----------
    name : str
        For the table.
    role : {"ours", "peer", "ceiling"}
        A ceiling does only a part of the work.
    reads, writes : callable, optional
        Given a case, a context manager with the call to be timed.
    """

    name: str
    role: Literal["ours", "peer", "ceiling"]
    reads: Callable[[Case], AbstractContextManager[Call]] | None = None
    writes: Callable[[Case], AbstractContextManager[Call]] | None = None


def drop_cache(path: Path) -> None:
    """Write a file's pages to storage, and take them out of the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def parallel_io(
    fd: int, nbytes: int, buffers: Sequence[mmap.mmap], *, writes: bool = False
) -> None:
    """Read a file's first bytes with ``preadv`` alone, or write them, in threads.

    Parameters
    ----------
    fd : int
        Of the file.
    nbytes : int
        How many bytes.
    buffers : sequence of mmap
        Page-aligned and of one size; a thread for each, as far as there is work.
    writes : bool, optional
        ``pwritev`` instead.
    """
    piece = len(buffers[0])
    threads = max(1, min(len(buffers), -(-nbytes // piece)))
    system_call = os.pwritev if writes else os.preadv

    def work(index: int) -> None:
        for start in range(index * piece, nbytes, threads * piece):
            with memoryview(buffers[index])[: nbytes - start] as view:
                system_call(fd, [view], start)

    if threads == 1:
        work(0)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def _ours(mode: Literal["r", "r+"], path: Literal["auto", "library"], registered: bool) -> Any:
    @contextlib.contextmanager
    def prepare(case: Case) -> Iterator[Call]:
        with contextlib.ExitStack() as stack:
            target: Any = case.array
            if registered:
                target = stack.enter_context(register(target))
            file = stack.enter_context(open_file(case.path, mode))
            move = file.read if mode == "r" else file.write

            def call() -> None:
                move(target, path=path)
                case.wait()

            yield call

    return prepare


@contextlib.contextmanager
def _numpy_reads(case: Case) -> Iterator[Call]:
    def call() -> None:
        case.cupy.asarray(np.fromfile(case.path, np.uint8, case.nbytes))
        case.wait()

    yield call


@contextlib.contextmanager
def _numpy_writes(case: Case) -> Iterator[Call]:
    yield lambda: case.array.get().tofile(case.path)


def _kvikio(mode: Literal["r", "r+"]) -> Any:
    @contextlib.contextmanager
    def prepare(case: Case) -> Iterator[Call]:
        kvikio = importlib.import_module("kvikio")
        defaults = importlib.import_module("kvikio.defaults")
        with defaults.set({"num_threads": case.threads}), kvikio.CuFile(case.path, mode) as file:
            move = file.read if mode == "r" else file.write
            yield lambda: move(case.array)

    return prepare


def _pinned(to_device: bool) -> Any:
    @contextlib.contextmanager
    def prepare(case: Case) -> Iterator[Call]:
        memory = case.cupy.cuda.alloc_pinned_memory(case.nbytes)
        host = np.frombuffer(memory, np.uint8, case.nbytes)
        host[:] = 1

        def call() -> None:
            if to_device:
                case.array.set(host)
            else:
                case.array.get(out=host)
            case.wait()

        yield call

    return prepare


def _system_calls(flags: int) -> Any:
    @contextlib.contextmanager
    def prepare(case: Case) -> Iterator[Call]:
        nbytes = case.nbytes
        if flags & os.O_DIRECT:
            nbytes = nbytes // 4096 * 4096
        with contextlib.ExitStack() as stack:
            fd = os.open(case.path, flags)
            stack.callback(os.close, fd)
            buffers = [mmap.mmap(-1, _PIECE) for _ in range(case.threads)]
            for buffer in buffers:
                buffer[:] = bytes(_PIECE)  # its pages are there before the clock runs
                stack.callback(buffer.close)
            yield lambda: parallel_io(fd, nbytes, buffers, writes=bool(flags & os.O_RDWR))

    return prepare


CONTENDERS = (
    Contender("ours", "ours", _ours("r", "auto", False), _ours("r+", "auto", False)),
    Contender("ours, registered", "ours", _ours("r", "auto", True), _ours("r+", "auto", True)),
    Contender("file library", "peer", _ours("r", "library", False), _ours("r+", "library", False)),
    Contender("kvikio", "peer", _kvikio("r"), _kvikio("r+")),
    Contender("NumPy + CuPy", "peer", _numpy_reads, _numpy_writes),
    Contender("pinned copy", "ceiling", _pinned(True), _pinned(False)),
    Contender("system calls", "ceiling", _system_calls(os.O_RDONLY), _system_calls(os.O_RDWR)),
    Contender(
        "O_DIRECT",
        "ceiling",
        _system_calls(os.O_RDONLY | os.O_DIRECT),
        _system_calls(os.O_RDWR | os.O_DIRECT),
    ),
)
