"""A short run of soak.py; the long one is started by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_random_transfers_from_many_threads() -> None:
    script = Path(__file__).parent / "soak.py"
    run = subprocess.run(
        [sys.executable, script, "--transfers", "8000"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "left over: 0 registrations, 0 threads, 0 pinned bytes" in run.stdout
