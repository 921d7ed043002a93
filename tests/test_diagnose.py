"""`diagnose` tells what the planner decides, from the planner."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cupy as cp
import pytest
from support import random_bytes

import hipfile_arrays as hfa

pytestmark = pytest.mark.emulated


def drop_cache(file: Path) -> None:
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_cold_file_on_disk_goes_direct(make_file: Any) -> None:
    file = make_file(random_bytes(1 << 20))
    drop_cache(file)
    told = hfa.diagnose(file, cp.empty(1 << 20, "u1"))
    assert told.choice.path == "direct"
    assert told.obstacles == ()


def test_memory_file_system_is_named(tmp_path: Path) -> None:
    file = Path("/dev/shm") / f"diagnose-{os.getpid()}"
    file.write_bytes(random_bytes(1 << 20))
    try:
        told = hfa.diagnose(file)
    finally:
        file.unlink()
    assert told.choice.path == "staged"
    assert any("tmpfs" in reason for reason in told.obstacles)


def test_environment_is_named(make_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPFILE_FORCE_COMPAT_MODE", "true")
    told = hfa.diagnose(make_file(random_bytes(1 << 20)))
    assert "HIPFILE_FORCE_COMPAT_MODE" in " ".join(told.obstacles)


def test_what_it_says_is_what_happens(make_file: Any) -> None:
    file = make_file(random_bytes(1 << 20))
    for cold in (True, False):
        if cold:
            drop_cache(file)
        else:
            file.read_bytes()
        told = hfa.diagnose(file)
        hfa.stats.reset()
        hfa.fromfile(file, "u1", like=cp)
        moved = {route for route, s in hfa.stats.get().read.items() if s.nbytes}
        assert moved == {piece.split()[-1] for piece in told.pieces}


def test_wrong_memory_is_told(make_file: Any) -> None:
    with pytest.raises(hfa.MemoryTypeError, match="managed"):
        hfa.diagnose(make_file(b"1234"), cp.ndarray(4, "u1", cp.cuda.malloc_managed(4)))
