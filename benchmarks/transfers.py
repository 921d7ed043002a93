"""Ours against the peers and against the ceilings, on one file, in one run.

    python benchmarks/transfers.py [--folder DIR] [--mib 1024] [--json FILE]

Prints a table and the ratios that matter. Peers and ceilings: pinned copies, `preadv` alone,
O_DIRECT alone, ``cp.asarray(np.fromfile())``, and kvikio where it is installed.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hipfile_arrays as hfa
from hipfile_arrays.cli._contenders import drop_cache, parallel_io

import cupy as cp  # isort: skip  (after hipfile_arrays: it may have to emulate the device)

MIB = 1 << 20
PAGE = 4096


def median_seconds(
    call: Callable[[], Any], repeat: int, before: Callable[[], Any] | None = None
) -> float:
    times = []
    for _ in range(repeat):
        if before is not None:
            before()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def parallel_pread(path: Path, nbytes: int, threads: int, chunk: int, flags: int = 0) -> None:
    fd = os.open(path, os.O_RDONLY | flags)
    buffers = [mmap.mmap(-1, chunk) for _ in range(threads)]
    try:
        parallel_io(fd, nbytes, buffers)
    finally:
        os.close(fd)
        for buffer in buffers:
            buffer.close()


class Bench:
    """Collects GB/s by name."""

    def __init__(self, nbytes: int, repeat: int) -> None:
        self.nbytes = nbytes
        self.repeat = repeat
        self.rates: dict[str, float] = {}

    def rate(
        self,
        name: str,
        call: Callable[[], Any],
        before: Callable[[], Any] | None = None,
        repeat: int | None = None,
    ) -> float:
        if before is None:
            call()
        seconds = median_seconds(call, repeat or self.repeat, before)
        self.rates[name] = self.nbytes / seconds / 1e9
        print(f"{name:48s} {self.rates[name]:8.2f} GB/s", flush=True)
        return self.rates[name]

    def latency(self, name: str, call: Callable[[], Any], count: int = 2000) -> float:
        for _ in range(50):
            call()
        times = []
        for _ in range(count):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        self.rates[name] = statistics.median(times) * 1e6
        print(f"{name:48s} {self.rates[name]:8.2f} us", flush=True)
        return self.rates[name]


def best(rates: dict[str, float], prefix: str) -> float:
    return max(
        (rate for name, rate in rates.items() if name.startswith(prefix)), default=float("nan")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 4, 8, 16])
    parser.add_argument("--chunks", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    nbytes = options.mib * MIB
    path = options.folder / "transfers.bin"
    np.random.default_rng(0).integers(0, 256, nbytes, dtype=np.uint8).tofile(path)
    bench = Bench(nbytes, options.repeat)
    x = cp.empty(nbytes, "u1")
    sync = cp.cuda.Device().synchronize

    pinned = cp.cuda.alloc_pinned_memory(nbytes)
    host = np.frombuffer(pinned, np.uint8, nbytes)
    bench.rate("ceiling: pinned host to device", lambda: (x.set(host), sync()))
    bench.rate("ceiling: device to pinned host", lambda: x.get(out=host))
    del pinned
    for threads in options.threads:
        bench.rate(
            f"ceiling: preadv warm, {threads} threads",
            lambda t=threads: parallel_pread(path, nbytes, t, 4 * MIB),
        )

    bench.rate(
        "peer: cp.asarray(np.fromfile())",
        lambda: (cp.asarray(np.fromfile(path, "u1")), sync()),
        repeat=2,
    )
    kvikio: Any = None
    try:
        import kvikio  # type: ignore[no-redef]
        import kvikio.defaults
    except ImportError:
        print("kvikio is not installed")
    if kvikio is not None:
        for threads in options.threads:
            kvikio.defaults.set({"num_threads": threads})
            with kvikio.CuFile(path, "r") as file:
                bench.rate(f"kvikio read warm, {threads} threads", lambda f=file: f.read(x))

    with hfa.open(path) as file:
        for chunk in options.chunks:
            for threads in options.threads:
                with hfa.config.override(
                    threads=threads, chunk_bytes=chunk * MIB, pinned_limit_bytes=1 << 30
                ):
                    bench.rate(
                        f"ours read warm, {threads} threads, {chunk} MiB", lambda: file.read(x)
                    )
        bench.rate("ours read warm, defaults", lambda: file.read(x))
        with hfa.register(x):
            bench.rate("ours read warm registered, defaults", lambda: file.read(x))
    del x
    bench.rate("ours fromfile warm into a new array", lambda: hfa.fromfile(path, "u1", like=cp))
    x = hfa.fromfile(path, "u1", like=cp)
    check = x.get().tobytes() == path.read_bytes()
    print("equal bytes:", check)

    cold = lambda: drop_cache(path)
    bench.rate(
        "ceiling: O_DIRECT pread cold, 8 threads",
        lambda: parallel_pread(path, nbytes, 8, 4 * MIB, os.O_DIRECT),
        cold,
        repeat=3,
    )
    with hfa.open(path) as file:
        bench.rate("ours read cold", lambda: file.read(x), cold, repeat=3)
    if kvikio is not None:
        with kvikio.CuFile(path, "r") as file:
            bench.rate("kvikio read cold", lambda: file.read(x), cold, repeat=2)

    out = options.folder / "transfers.out"
    if kvikio is not None:
        for threads in options.threads:
            kvikio.defaults.set({"num_threads": threads})
            with kvikio.CuFile(out, "w") as file:
                bench.rate(
                    f"kvikio write warm, {threads} threads", lambda f=file: f.write(x), repeat=3
                )
    with hfa.open(out, "w") as file:
        for chunk in options.chunks:
            for threads in options.threads:
                with hfa.config.override(
                    threads=threads, chunk_bytes=chunk * MIB, pinned_limit_bytes=1 << 30
                ):
                    bench.rate(
                        f"ours write warm, {threads} threads, {chunk} MiB",
                        lambda: file.write(x),
                        repeat=3,
                    )
        bench.rate("ours write warm, defaults", lambda: file.write(x), repeat=3)
    out.unlink()

    small = cp.empty(PAGE, "u1")
    with hfa.open(path) as file, hfa.register(small) as buffer:
        bench.latency("4 KiB: ours, File.read(registered)", lambda: file.read(buffer, 8192))
        bench.latency("4 KiB: ours, File.read(array)", lambda: file.read(small, 8192))
        bench.latency(
            "4 KiB: ours, fromfile(out=registered)", lambda: hfa.fromfile(file, out=buffer)
        )
    if kvikio is not None:
        with kvikio.CuFile(path, "r") as file:
            bench.latency("4 KiB: kvikio", lambda: file.read(small, PAGE, 8192))
            bench.latency("4 KiB: kvikio raw_read", lambda: file.raw_read(small, PAGE, 8192), 300)

    rates = bench.rates
    ratios = {
        "warm read, best setting / pinned copy": best(rates, "ours read warm")
        / rates["ceiling: pinned host to device"],
        "warm read, defaults / best setting": rates["ours read warm, defaults"]
        / best(rates, "ours read warm"),
        "warm read / kvikio's best": best(rates, "ours read warm")
        / best(rates, "kvikio read warm"),
        "warm read, 4 threads / kvikio's, 4 threads": best(rates, "ours read warm, 4 threads")
        / rates.get("kvikio read warm, 4 threads", float("nan")),
        "fromfile / read into existing": rates["ours fromfile warm into a new array"]
        / rates["ours read warm, defaults"],
        "cold read / O_DIRECT alone": rates["ours read cold"]
        / rates["ceiling: O_DIRECT pread cold, 8 threads"],
        "warm write / kvikio's best": best(rates, "ours write warm")
        / best(rates, "kvikio write warm"),
        "4 KiB registered / kvikio (latency)": rates["4 KiB: ours, File.read(registered)"]
        / rates.get("4 KiB: kvikio", float("nan")),
    }
    print()
    for name, ratio in ratios.items():
        print(f"{name:48s} {ratio:8.2f}")
    path.unlink()
    if options.json:
        options.json.write_text(json.dumps({"rates": rates, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
