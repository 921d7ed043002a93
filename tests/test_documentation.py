"""Every Python example of the README and of the docs runs as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))


@pytest.mark.emulated
@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda p: p.name)
def test_examples_run_as_printed(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "examples.py"
    script.write_text(examples(page))
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "hipfile_arrays.emulator", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.emulated
def test_docstring_examples_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import doctest
    import importlib
    import pkgutil

    import hipfile_arrays

    failed = tried = 0
    for found in pkgutil.walk_packages(hipfile_arrays.__path__, "hipfile_arrays."):
        if found.name.endswith("__main__") or "_native._native" in found.name:
            continue
        result = doctest.testmod(importlib.import_module(found.name))
        failed += result.failed
        tried += result.attempted
    assert tried > 10
    assert failed == 0
