"""The main job, shown: a file into a GPU array and back, with the numbers."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import config, emulator, stats
from .._transfer.buffers import register
from ..errors import LibraryNotFound
from ..file import open as open_file
from ..rawfile import fromfile, tofile

_REPEATS = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--mib", type=int, default=32, help="size of the file (default: 32)")
    parser.add_argument("--folder", type=Path, help="where to write it (default: temporary)")


def run(options: argparse.Namespace) -> int:
    """Run the demo; 0 if every byte was equal."""
    try:
        import cupy
    except ImportError as error:
        # CuPy wraps the cause in a page of advice for its own installation.
        cause = str(error).partition("Original error:")[2].strip(" =\n") or str(error)
        raise LibraryNotFound(
            f'the demo needs CuPy ({cause}): pip install "hipfile-arrays[rocm]" on an AMD machine, '
            '"hipfile-arrays[cuda13]" on an NVIDIA one, or "hipfile-arrays[emulator]" with '
            "HIPFILE_ARRAYS_EMULATE=1 on any x86-64 Linux"
        ) from None
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"device: {name}")
    if emulator.is_active():
        print("        (the emulated device shows that it works, not how fast a GPU is)")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        return _run_in(cupy, Path(folder), options.mib << 20)


def _timed(call: Callable[[], Any]) -> tuple[Any, float, str]:
    """Return the result, the seconds, and the paths that the bytes took."""
    before = stats.get()
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    after = stats.get()
    paths = [
        route
        for old, new in ((before.read, after.read), (before.written, after.written))
        for route in new
        if new[route].nbytes > old[route].nbytes
    ]
    return result, seconds, "+".join(paths)


def _lookups() -> int | None:
    """Pointer lookups so far; only the emulated device counts them."""
    if not emulator.is_active():
        return None
    return emulator.counters().get("hipPointerGetAttributes", 0)


def _run_in(cupy: Any, folder: Path, nbytes: int) -> int:
    source, copy = folder / "source.f4", folder / "copy.f4"
    numbers = np.random.default_rng(0).random(nbytes // 4, dtype=np.float32)
    numbers.tofile(source)
    reference = cupy.empty(1, np.float32)
    rows: list[tuple[str, str, float, int | None]] = []
    equal = True

    def step(what: str, repeats: int, call: Callable[[], Any]) -> Any:
        before = _lookups()
        result, seconds, paths = _timed(call)
        after = _lookups()
        lookups = None if before is None or after is None else after - before
        rows.append((what, paths, repeats * nbytes / seconds / 1e9, lookups))
        return result

    for path in ("auto", "library"):
        with config.override(path=path):
            x = step(
                f"fromfile(path, like=x), {path}", 1, lambda: fromfile(source, "f4", like=reference)
            )
            equal &= bool(np.array_equal(cupy.asnumpy(x), numbers))

    def again(target: Any) -> Callable[[], None]:
        def call() -> None:
            with open_file(source) as file:
                for _ in range(_REPEATS):
                    file.read(target, path="library")

        return call

    with config.override(auto_register=False):
        step(f"{_REPEATS} reads, not registered", _REPEATS, again(x))
    step(f"{_REPEATS} reads, registers itself", _REPEATS, again(x))
    with register(x) as buffer:
        step(f"{_REPEATS} reads, registered", _REPEATS, again(buffer))
        equal &= bool(np.array_equal(cupy.asnumpy(x), numbers))
    step("tofile(x, path)", 1, lambda: tofile(x, copy))
    equal &= source.read_bytes() == copy.read_bytes()

    print(f"{'what':<32}{'path taken':<16}{'GB/s':>8}{'pointer lookups':>18}")
    for what, paths, rate, lookups in rows:
        shown = "-" if lookups is None else str(lookups)
        print(f"{what:<32}{paths:<16}{rate:>8.2f}{shown:>18}")
    before, after = rows[2][3], rows[4][3]
    if before is not None and after is not None:
        print(f"pointer lookups saved by registering: {before - after}")
    print("every byte equal" if equal else "BYTES DIFFER")
    return 0 if equal else 1
