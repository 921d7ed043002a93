"""Ours against the usual ways and the bare ceilings, on this machine and this file system."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import config, emulator
from ..errors import HipFileArraysError, LibraryNotFound
from ..stats import get as get_stats
from ._contenders import CONTENDERS, Case, Contender, drop_cache

SIZES = tuple(4096 << shift for shift in (0, 4, 8, 12, 16, 18, 20))  # 4 KiB to 4 GiB
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# One point is measured at least so often, and for so long, seconds.
_LEAST = 3
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Panel:
    """One table: a direction, and where the data is before."""

    name: str
    reads: bool
    cold: bool


PANELS = (
    Panel("read, warm", reads=True, cold=False),
    Panel("read, cold", reads=True, cold=True),
    Panel("write, warm", reads=False, cold=False),
    Panel("write, with fsync", reads=False, cold=True),
)


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement.

    Attributes
    ----------
    panel, contender, role : str
        What was measured.
    nbytes : int
        Bytes of one call.
    seconds : float
        The median of one call.
    calls : int
        How many calls that is the median of.
    paths : str
        For our own: the paths that the bytes took.
    """

    panel: str
    contender: str
    role: str
    nbytes: int
    seconds: float
    calls: int
    paths: str = ""

    @property
    def rate(self) -> float:
        """GB/s."""
        return self.nbytes / self.seconds / 1e9


def size(text: str) -> int:
    """Turn ``4KiB``, ``16M`` or ``1g`` into bytes."""
    lower = text.lower().removesuffix("b").removesuffix("i")
    number = lower.rstrip("kmg")
    if not number.isdecimal() or lower[len(number) :] not in _UNITS or not int(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no size: 4KiB, 16M, 1g")
    return int(number) * _UNITS[lower[len(number) :]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "path",
        type=Path,
        help="a folder, where a file is written and removed again; or a file, which is only read",
    )
    parser.add_argument(
        "--sizes", type=size, nargs="+", default=SIZES, help="default: 4KiB to 4GiB"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="for each point, at least (default: 0.5)"
    )
    parser.add_argument("--threads", type=int, help="of ours and of the others (default: ours)")
    parser.add_argument("--json", type=Path, help="write every point to this file")
    parser.add_argument("--picture", type=Path, help="draw GB/s over size into this file")


def run(options: argparse.Namespace) -> int:
    """Measure, and print one table a panel."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        raise LibraryNotFound(
            'bench needs CuPy: pip install "hipfile-arrays[rocm]" or "hipfile-arrays[cuda13]"'
        ) from None
    if options.picture:
        _matplotlib()  # before minutes are spent
    changes = {"threads": options.threads} if options.threads else {}
    with config.override(**changes), _file(options.path, max(options.sizes)) as path:
        sizes = _possible(cupy, path, sorted(options.sizes))
        machine = _machine(cupy, path)
        print("\n".join(f"{name}: {value}" for name, value in machine.items()))
        points: list[Point] = []
        for panel in PANELS:
            if panel.reads or options.path.is_dir():
                points += _measure(cupy, path, panel, sizes, options.seconds)
                print(f"\n{_table(panel.name, points)}", flush=True)
    if options.json:
        found = [{**asdict(point), "gb_per_second": point.rate} for point in points]
        options.json.write_text(json.dumps({"machine": machine, "points": found}, indent=1))
    if options.picture:
        _draw(points, options.picture)
    return 0


def _matplotlib() -> Any:
    try:
        figure: Any = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise LibraryNotFound("--picture needs matplotlib: pip install matplotlib") from None
    return figure


@contextlib.contextmanager
def _file(path: Path, nbytes: int) -> Iterator[Path]:
    """Give the user's file; or one of ours in the user's folder, as long as the disk allows."""
    if not path.is_dir():
        path.open("rb").close()
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="hipfile-arrays-bench-", dir=path) as folder:
        name = Path(folder) / "data"
        nbytes = min(nbytes, shutil.disk_usage(folder).free // 2)
        block = np.random.default_rng(0).integers(0, 256, 16 << 20, np.uint8)
        with name.open("wb") as file:
            for start in range(0, nbytes, block.nbytes):
                block[: nbytes - start].tofile(file)
        yield name


def _possible(cupy: Any, path: Path, sizes: list[int]) -> list[int]:
    """Sizes that the file has and the device holds; the others are named."""
    free = cupy.cuda.runtime.memGetInfo()[0] // 2
    length = path.stat().st_size
    possible = [nbytes for nbytes in sizes if nbytes <= min(free, length)]
    for nbytes in sizes:
        if nbytes not in possible:
            why = "the device has not the memory" if nbytes > free else "the file is shorter"
            print(f"left out: {_shown(nbytes)}, {why}", file=sys.stderr)
    if not possible:
        raise OSError(f"no size is left to measure: {path} has {length} bytes")
    return possible


def _machine(cupy: Any, path: Path) -> dict[str, str]:
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    if emulator.is_active():
        device += " (shows that it works, not how fast a GPU is)"
    found = {
        "device": device,
        "threads": str(config.get().threads),
        "cores": str(len(os.sched_getaffinity(0))),
        "file": str(path),
    }
    for name in ("hipfile-arrays", "numpy", "kvikio-cu13", "kvikio-cu12"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    found["cupy"] = cupy.__version__
    return found


def _measure(
    cupy: Any, path: Path, panel: Panel, sizes: list[int], seconds: float
) -> Iterator[Point]:
    for nbytes in sizes:
        case = Case(cupy, path, cupy.zeros(nbytes, cupy.uint8), config.get().threads)
        for contender in CONTENDERS:
            try:
                point = _point(contender, case, panel, seconds)
            except (ImportError, OSError, HipFileArraysError) as error:
                if not isinstance(error, ModuleNotFoundError):
                    where = f"{panel.name}, {_shown(nbytes)}, {contender.name}"
                    print(f"left out: {where}: {error}", file=sys.stderr)
                continue
            if point:
                yield point


def _point(contender: Contender, case: Case, panel: Panel, seconds: float) -> Point | None:
    prepare = contender.reads if panel.reads else contender.writes
    if prepare is None:
        return None
    times: list[float] = []
    before = get_stats()
    with prepare(case) as call:
        if not panel.cold:
            call()
        begun = time.perf_counter()
        while len(times) < _LEAST or (len(times) < _MOST and time.perf_counter() - begun < seconds):
            if panel.cold:
                drop_cache(case.path)
            start = time.perf_counter()
            call()
            if panel.cold and not panel.reads:
                with case.path.open("rb") as file:
                    os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    after = get_stats()
    old, new = (before.read, after.read) if panel.reads else (before.written, after.written)
    paths = "+".join(route for route in new if new[route].nbytes > old[route].nbytes)
    return Point(
        panel.name,
        contender.name,
        contender.role,
        case.nbytes,
        statistics.median(times),
        len(times),
        paths,
    )


def _shown(nbytes: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024 or nbytes % 1024:
            return f"{nbytes} {unit}"
        nbytes //= 1024
    return f"{nbytes} GiB"


def _table(panel: str, points: list[Point]) -> str:
    """Rows are sizes, columns contenders; last, the paths that ours took."""
    mine = [point for point in points if point.panel == panel]
    names = [c.name for c in CONTENDERS if any(point.contender == c.name for point in mine)]
    widths = [max(len(name), 10) + 2 for name in names]
    lines = [f"{panel}, GB/s", " " * 9 + "".join(map(str.rjust, names, widths))]
    for nbytes in sorted({point.nbytes for point in mine}):
        row = {point.contender: point for point in mine if point.nbytes == nbytes}
        cells = [f"{row[name].rate:.3f}" if name in row else "-" for name in names]
        paths = row["ours"].paths if "ours" in row else ""
        lines.append(f"{_shown(nbytes):>9}" + "".join(map(str.rjust, cells, widths)) + f"  {paths}")
    return "\n".join(lines)


def _draw(points: list[Point], path: Path) -> None:
    panels = [panel.name for panel in PANELS if any(p.panel == panel.name for p in points)]
    figure = _matplotlib().Figure(figsize=(12, 4.5 * -(-len(panels) // 2)), layout="constrained")
    style = {"ours": "-o", "peer": "--s", "ceiling": ":"}
    for number, name in enumerate(panels):
        axes = figure.add_subplot(-(-len(panels) // 2), 2, number + 1)
        for contender in CONTENDERS:
            mine = [p for p in points if p.panel == name and p.contender == contender.name]
            if mine:
                note = " (ceiling)" if contender.role == "ceiling" else ""
                axes.loglog(
                    [p.nbytes for p in mine],
                    [p.rate for p in mine],
                    style[contender.role],
                    label=contender.name + note,
                )
        ticks = sorted({p.nbytes for p in points if p.panel == name})
        axes.set_xticks(ticks, [_shown(tick) for tick in ticks], rotation=30)
        axes.minorticks_off()
        axes.set(title=name, xlabel="bytes of one call", ylabel="GB/s")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
