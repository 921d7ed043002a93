"""An emulated HIP device: the real CuPy-ROCm wheel on any x86-64 Linux CPU.

`activate` loads this package's ``libamdhip64.so.7``, ``libhipfile.so.0`` and stand-ins for the
other libraries that CuPy's wheel links, before CuPy is imported. Arrays are then real CuPy arrays
in memory that the host cannot touch; streams are asynchronous; hipFile checks, fails and moves
bytes as documented. It is an emulator, not a mock: a pass shows API, ABI, order and values, not
speed.

Ways to switch it on: ``HIPFILE_ARRAYS_EMULATE=1`` in the environment (and ``import hipfile_arrays``
before CuPy), `activate`, ``python -m hipfile_arrays.emulator script.py``, or pytest's option
``--emulate-hip``.

This package and the rest of the library share nothing but the C ABI.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "activate",
    "allocate_segments",
    "capturing",
    "counters",
    "faults",
    "is_active",
    "late_streams",
    "library_folder",
    "live",
    "reset_counters",
    "system_call_counts",
    "system_call_faults",
    "system_calls",
]

_HIP = "libamdhip64.so.7"
_HIPFILE = "libhipfile.so.0"
_HIPRTC = "libhiprtc.so.7"
_SYSTEM_CALLS = "libhipemu_system_calls.so"
# CuPy's own extension modules are what must not be loaded yet.
_CUPY_MARK = "cupy_backends.cuda.api.runtime"

_loaded: dict[str, ctypes.CDLL] = {}


def library_folder() -> Path:
    """Return the folder of the emulated libraries.

    Returns
    -------
    pathlib.Path
        ``HIPFILE_ARRAYS_EMULATOR_LIB`` where set, else the ``lib`` folder of this package.

    Raises
    ------
    ImportError
        If the package was built without them.
    """
    override = os.environ.get("HIPFILE_ARRAYS_EMULATOR_LIB")
    candidates = [Path(override)] if override else [Path(entry) / "lib" for entry in __path__]
    for folder in candidates:
        if (folder / _HIP).is_file():
            return folder
    tried = ", ".join(str(folder) for folder in candidates)
    raise ImportError(f"the emulated device's libraries are not there; looked in: {tried}")


def is_active() -> bool:
    """Whether `activate` was called in this process."""
    return bool(_loaded)


def activate() -> None:
    """Make this process's HIP device the emulated one. Harmless when repeated.

    Raises
    ------
    RuntimeError
        If CuPy, or another HIP runtime, is loaded already: the first one in a process is the one.
    """
    if _loaded:
        return
    if _CUPY_MARK in sys.modules:
        raise RuntimeError(
            "CuPy is imported already, so this process has its GPU runtime. Activate the emulated "
            "device before CuPy is imported, or set HIPFILE_ARRAYS_EMULATE=1"
        )
    other = _other_runtime()
    folder = library_folder()
    if other and Path(other).parent != folder:
        raise RuntimeError(f"another HIP runtime is loaded in this process: {other}")
    # By full path, the runtime first: the loader then takes ours for every later request by SONAME.
    names = [_HIP, _HIPFILE, _HIPRTC]
    names += sorted(p.name for p in folder.iterdir() if p.name not in names)
    for name in names:
        if (folder / name).is_file():
            _loaded[name] = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_LOCAL)
    _prepare_kernels(folder)


def _other_runtime() -> str | None:
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")
            if path[1] and Path(path[2]).name.startswith("libamdhip64"):
                return "/" + path[2]
    return None


def _prepare_kernels(folder: Path) -> None:
    """CuPy asks a ``hipcc`` on the path for include folders, and keeps kernels on disk: our own."""
    here = Path(__file__).parent
    os.environ["PATH"] = f"{here / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    os.environ.setdefault("CUPY_CACHE_DIR", f"{cache}/hipfile_arrays/cupy-kernels")
    os.environ.setdefault("ROCM_HOME", str(here))


def _hip() -> ctypes.CDLL:
    if not _loaded:
        raise RuntimeError("the emulated device is not active: call activate() first")
    return _loaded[_HIP]


def counters() -> dict[str, int]:
    """Return how often each entry point was called, by its name, since `reset_counters`.

    Returns
    -------
    dict of str to int
        Besides HIP's and hipFile's names: ``hipfile.fast`` and ``hipfile.fallback`` (transfers by
        path), ``hipfile.registered`` and ``hipfile.on_the_fly`` (transfers by how the buffer was
        known), ``hipfile.bytes``.
    """
    found: dict[str, int] = {}
    kind = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64)
    visit = kind(lambda name, count: found.__setitem__(name.decode(), count))
    _hip().hipemuVisitCounts(visit)
    return {name: count for name, count in found.items() if count}


def live() -> dict[str, int]:
    """Return what was made and not given back yet, by kind.

    Returns
    -------
    dict of str to int
        Allocations, registered host ranges, streams, events; hipFile's registered files and
        buffers.
    """
    found: dict[str, int] = {}
    kind = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64)
    visit = kind(lambda name, count: found.__setitem__(name.decode(), count))
    _hip().hipemuVisitLive(visit)
    _loaded[_HIPFILE].hipemuVisitRegistered(visit)
    return found


def system_calls() -> Path:
    """Return the library to name in ``LD_PRELOAD`` for `system_call_faults`."""
    return library_folder() / _SYSTEM_CALLS


def system_call_counts() -> dict[str, int]:
    """Return how often the native module made each system call since `system_call_faults` began.

    Returns
    -------
    dict of str to int
        ``preadv``, ``pwritev``, ``open``, ``fstat``, ``mmap``, ``pthread_create``.
    """
    found: dict[str, int] = {}
    kind = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64)
    visit = kind(lambda name, count: found.__setitem__(name.decode(), count))
    ctypes.CDLL(None).hipemuVisitSystemCalls(visit)
    return found


@contextlib.contextmanager
def system_call_faults(name: str = "", at: int = 0, error: int = 0) -> Iterator[None]:
    """Count the native module's system calls for a ``with`` block, and let one of them fail.

    The process must have been started with `system_calls` in ``LD_PRELOAD``.

    Parameters
    ----------
    name : str, optional
        Of `system_call_counts`; by default none fails.
    at : int, optional
        Which call, from 1 on.
    error : int, optional
        The ``errno`` that it fails with; or 0, and it moves only half of its bytes.
    """
    process = ctypes.CDLL(None)
    process.hipemuWatchSystemCalls(name.encode(), ctypes.c_uint64(at), ctypes.c_int(error))
    try:
        yield
    finally:
        process.hipemuIgnoreSystemCalls()


def reset_counters() -> None:
    """Set all counters to zero."""
    _hip().hipemuResetCounts()


@contextlib.contextmanager
def late_streams(microseconds: int) -> Iterator[None]:
    """Let every operation on every stream begin late, so that a missing dependency shows.

    Parameters
    ----------
    microseconds : int
        How late.
    """
    hip = _hip()
    hip.hipemuSetDelay(ctypes.c_uint64(microseconds))
    try:
        yield
    finally:
        hip.hipemuSetDelay(ctypes.c_uint64(0))


@contextlib.contextmanager
def faults(
    *,
    short_io: int | None = None,
    eintr: int | None = None,
    errno: tuple[int, int] | None = None,
    limit: int | None = None,
    eligible: bool = False,
    entries: dict[str, tuple[int, int]] | None = None,
    times: int = 1,
) -> Iterator[None]:
    """Make the emulated device fail for a ``with`` block.

    Parameters
    ----------
    short_io : int, optional
        hipFile moves at most this many bytes a call.
    eintr : int, optional
        Every so many-th hipFile transfer is interrupted (-1, errno EINTR).
    errno : tuple of int, optional
        ``(errno, n)``: the n-th hipFile transfer from now fails so.
    limit : int, optional
        hipFile's bytes a call, 2 GiB - 4 KiB by default.
    eligible : bool, optional
        Every file counts as one that the fast path takes.
    entries : dict, optional
        ``{"hipMemcpyAsync": (n, code)}``: that entry point's n-th call from now answers `code`. For
        hipFile entries, codes from 5000 on are hipFile's, smaller ones HIP's.
    times : int, optional
        How often an entry point fails, from its n-th call on.
    """
    hip, hipfile = _hip(), _loaded[_HIPFILE]
    words = {
        "short_io": short_io,
        "eintr": eintr,
        "limit": limit,
        "eligible": int(eligible) or None,
    }
    for word, value in words.items():
        if value is not None:
            hipfile.hipemuSetIoFault(f"{word}={value}".encode())
    if errno is not None:
        hipfile.hipemuSetIoFault(f"errno={errno[0]}@{errno[1]}".encode())
    u64 = ctypes.c_uint64
    for name, (at, code) in (entries or {}).items():
        hip.hipemuInject(name.encode(), u64(at), ctypes.c_int(code), u64(times))
    try:
        yield
    finally:
        if any(value is not None for value in words.values()) or errno is not None:
            hipfile.hipemuClearIoFaults()
        for name in entries or {}:
            hip.hipemuInject(name.encode(), u64(0), ctypes.c_int(0), u64(0))


def allocate_segments(nbytes: int, count: int) -> int:
    """Allocate several device allocations side by side, as expandable segments are.

    Parameters
    ----------
    nbytes : int
        Of each; a multiple of 4096.
    count : int
        How many.

    Returns
    -------
    int
        The address of the first. Each answers for itself only; free each with ``hipFree``.
    """
    base = ctypes.c_void_p()
    code = _hip().hipemuAllocateSegments(ctypes.byref(base), ctypes.c_size_t(nbytes), count)
    if code:
        raise MemoryError(f"hipErrorOutOfMemory ({code})")
    return base.value or 0


@contextlib.contextmanager
def capturing(stream: int) -> Iterator[None]:
    """Make a stream answer that it is being captured into a graph.

    Parameters
    ----------
    stream : int
        Its handle.
    """
    hip = _hip()
    hip.hipemuSetCapturing(ctypes.c_void_p(stream), 1)
    try:
        yield
    finally:
        hip.hipemuSetCapturing(ctypes.c_void_p(stream), 0)
