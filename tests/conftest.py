"""Every test runs on real CuPy arrays: on the emulated HIP device, or on a GPU.

``HIPFILE_ARRAYS_TEST_PLATFORM`` says where: ``emulated`` (default), ``rocm`` or ``cuda``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

PLATFORM = os.environ.get("HIPFILE_ARRAYS_TEST_PLATFORM", "emulated")
if PLATFORM == "emulated":
    # Before anything imports CuPy.
    from hipfile_arrays import emulator

    emulator.activate()

import pytest

import hipfile_arrays as hfa
from hipfile_arrays import _native
from hipfile_arrays._transfer import automatic


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the emulated device are left out on a real one."""
    if PLATFORM == "emulated":
        return
    reason = pytest.mark.skip(reason="asks the emulated device for counts, faults or lateness")
    for item in items:
        if item.get_closest_marker("emulated") or "emulator" in item.path.parts:
            item.add_marker(reason)
        params = getattr(item, "callspec", None)
        direct = params is not None and params.params.get("path_taken") == "direct"
        if direct and PLATFORM == "cuda" and not Path("/proc/driver/nvidia-fs").exists():
            item.add_marker(pytest.mark.skip(reason="no nvidia-fs: no direct path here"))


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """After every test: no registration, no open file, no new thread of ours."""
    descriptors = _descriptors()
    yield
    assert [buffer for buffer in hfa.buffers() if not buffer.automatic] == []
    automatic.close_all()
    assert hfa.buffers() == []
    left = _descriptors() - descriptors
    assert not left, f"open files left behind: {left}"


def _descriptors() -> set[str]:
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        # The libraries' own: memory, devices, shared objects, logs, CuPy's kernel cache, fonts.
        theirs = (
            "hipemu",
            "/dev/nvidia",
            "/dev/dri",
            "/dev/kfd",
            ".so",
            "cufile.log",
            "cupy",
            ".ttf",
        )
        if target.startswith("/") and not any(word in target for word in theirs):
            found.add(f"{fd.name} -> {target}")
    return found


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on a real file system: of the disk, and on tmpfs (which has no fast path)."""
    wish = getattr(request.node, "callspec", None) and request.node.callspec.params.get(
        "path_taken"
    )
    if PLATFORM == "cuda" and request.param == "memory" and wish == "library":
        pytest.skip("cuFile takes no files on tmpfs, and path='library' hands it all of them")
    if request.param == "disk":
        yield tmp_path
        return
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.fixture
def make_file(tmp_path: Path) -> Callable[[bytes], Path]:
    """Write bytes into a new file."""

    def make(data: bytes) -> Path:
        path = tmp_path / f"data-{len(list(tmp_path.iterdir()))}.bin"
        path.write_bytes(data)
        return path

    return make


@pytest.fixture
def counters() -> Callable[[], dict[str, int]]:
    """Calls of the emulated libraries since the test began, by name."""
    emulator.reset_counters()
    return emulator.counters


@pytest.fixture
def release() -> Iterator[None]:
    """Start and end without worker threads and pinned memory of ours."""
    _native.release_resources()
    yield
    _native.release_resources()
