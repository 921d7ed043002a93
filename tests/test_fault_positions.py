"""A fault at each call number: the right bytes or a documented error, and nothing is left behind.

One position: a function of the HIP runtime, of hipFile or of the system, the number of its call in
one transfer, and what it answers. After each, the bytes around the array are untouched, the next
transfer works, and allocations, pinned bytes, registrations, streams, events, descriptors and
threads are what they were.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hipfile_arrays import emulator

SCRIPT = Path(__file__).with_name("fault_positions.py")

pytestmark = pytest.mark.emulated


@pytest.mark.parametrize(
    ("most", "late"),
    [(2, 0), (2, 300), pytest.param(1000, 0, marks=pytest.mark.slow)],
    ids=["some positions", "late streams", "all positions"],
)
def test_faults_at_each_call_number(tmp_path: Path, most: int, late: int) -> None:
    run = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, str(most), str(late)],
        env=os.environ | {"LD_PRELOAD": str(emulator.system_calls())},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    found = re.search(r"^(\d+) positions, (\d+) failed$", run.stdout, re.MULTILINE)
    assert found, run.stdout
    assert found[2] == "0", run.stdout
    assert int(found[1]) >= 500
