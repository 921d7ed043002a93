"""Settings: environment, process, block."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

import hipfile_arrays as hfa


def test_override_ends_with_its_block_and_stays_in_its_thread() -> None:
    before = hfa.config.get()
    seen = []
    with hfa.config.override(threads=3) as inner:
        assert inner.threads == hfa.config.get().threads == 3
        thread = threading.Thread(target=lambda: seen.append(hfa.config.get()))
        thread.start()
        thread.join()
    assert hfa.config.get() == before == seen[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"threads": 0}, "threads"),
        ({"chunk_bytes": 5}, "chunk_bytes"),
        ({"chunk_bytes": 100_000}, "multiple of 4096"),
        ({"pinned_limit_bytes": 1}, "two chunks"),
        ({"path": "fast"}, "path"),
    ],
)
def test_nonsense_is_refused(change: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words), hfa.config.override(**change):
        pass


def test_unknown_setting() -> None:
    with pytest.raises(TypeError), hfa.config.override(speed=11):
        pass


def test_environment() -> None:
    code = "import hipfile_arrays as h; s = h.config.get(); print(s.threads, s.path)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"HIPFILE_ARRAYS_THREADS": "5", "HIPFILE_ARRAYS_PATH": "staged", "PATH": ""},
    )
    assert run.stdout == "5 staged\n", run.stderr
