"""``hipfile-arrays``: demo and doctor."""

from __future__ import annotations

from typing import Any

import pytest

from hipfile_arrays.cli import main


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
