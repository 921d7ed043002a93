"""``hipfile-arrays``: demo, doctor and bench."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest
from support import random_bytes

from hipfile_arrays.cli import main
from hipfile_arrays.cli.bench import size


def test_demo_proves_equality(capsys: Any, tmp_path: Any) -> None:
    assert main(["demo", "--mib", "2", "--folder", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "every byte equal" in out
    assert "GB/s" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.emulated
def test_demo_counts_the_lookups_saved(capsys: Any) -> None:
    assert main(["demo", "--mib", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (registered,) = [line for line in lines if "reads, registered" in line]
    assert registered.split()[-1] == "0"
    (saved,) = [line for line in lines if line.startswith("pointer lookups saved")]
    # Twenty by our own check, at least as many by the library.
    assert int(saved.split()[-1]) >= 40


@pytest.mark.emulated
def test_doctor_tells_path_and_reason(capsys: Any, make_file: Any) -> None:
    assert main(["doctor", str(make_file(bytes(1 << 20)))]) == 0
    out = capsys.readouterr().out
    assert "libamdhip64.so.7" in out
    assert "path " in out
    assert "why " in out


def test_doctor_of_a_missing_file(capsys: Any) -> None:
    assert main(["doctor", "/no/such/file"]) == 1
    assert "No such file" in capsys.readouterr().err


def bench(path: Any, *options: str) -> int:
    return main(["bench", str(path), "--sizes", "4KiB", "1M", "--seconds", "0", *options])


@pytest.mark.emulated
def test_bench_measures_all_of_it_in_a_folder(capsys: Any, tmp_path: Any) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    assert bench(folder, "--json", str(tmp_path / "points.json")) == 0
    out = capsys.readouterr().out
    for panel in ("read, warm", "read, cold", "write, warm", "write, with fsync"):
        assert f"{panel}, GB/s" in out
    found = json.loads((tmp_path / "points.json").read_text())
    assert found["machine"]["threads"]
    points = found["points"]
    assert {point["nbytes"] for point in points} == {4096, 1 << 20}
    assert {point["role"] for point in points} == {"ours", "peer", "ceiling"}
    assert {p["contender"] for p in points} >= {"ours", "file library", "NumPy + CuPy"}
    for point in points:
        assert point["gb_per_second"] == pytest.approx(point["nbytes"] / point["seconds"] / 1e9)
        assert point["calls"] >= 3
        assert bool(point["paths"]) == (point["role"] == "ours" or "library" in point["contender"])
    assert list(folder.iterdir()) == []


def test_bench_only_reads_a_file_of_the_users(capsys: Any, make_file: Any) -> None:
    data = random_bytes(10_000)
    path = make_file(data)
    assert bench(path) == 0
    shown = capsys.readouterr()
    assert "write" not in shown.out
    assert "left out: 1 MiB, the file is shorter" in shown.err
    assert path.read_bytes() == data


def test_bench_draws(tmp_path: Any, make_file: Any) -> None:
    pytest.importorskip("matplotlib")
    assert bench(make_file(bytes(1 << 20)), "--picture", str(tmp_path / "rates.png")) == 0
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")


def test_bench_without_anything_to_measure(capsys: Any, make_file: Any) -> None:
    assert bench(make_file(b"short")) == 1
    assert "no size is left to measure" in capsys.readouterr().err
    assert bench("/no/such/file") == 1
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "nbytes"), [("4096", 4096), ("4KiB", 4096), ("16m", 16 << 20), ("2GB", 2 << 30)]
)
def test_sizes(text: str, nbytes: int) -> None:
    assert size(text) == nbytes


@pytest.mark.parametrize("text", ["", "k", "0", "-1", "4T", "1.5M", "4 KiB x"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no size"):
        size(text)
