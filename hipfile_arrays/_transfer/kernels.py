"""Device kernels: bytes to and from strided arrays of another byte order or dtype, on the GPU.

The kernels are templates in ``shim.hip``, over the types and casts in ``scalars.hip``. `_copies`
says which one a copy needs; CuPy compiles that one at first need and caches it on disk. Calls are
queued on the given stream; nothing here waits. Callers guarantee that both extents are legal
device memory.

Casts are NumPy's ``astype``, bit for bit; what NumPy leaves undefined (a float beyond the integer's
range, NaN as an integer) is undefined here too. Without a cast bits are moved, NaN payloads
included. CuPy is imported at the first launch, by name: the package depends on no array library.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import KernelsUnavailable
from ._copies import THREADS, Dtype, Strided, plan
from ._strided import WIDEST, Axis
from .values import Platform

__all__ = [
    "Strided",
    "available",
    "copy",
    "gather_rows",
    "plan",
    "prepare",
    "require",
    "swap_inplace",
    "temporary",
]

MOST_BLOCKS = 1 << 16


ROWS_SOURCE = """extern "C" __global__ void __launch_bounds__(256) kernel(
    char* dst, const char* src, const Offset* offsets, Bits64 rows, Bits64 row_bytes) {
    copy_rows(dst, src, offsets, rows, row_bytes);
}
"""


@cache
def _axes_dtype(number: int) -> Dtype:
    divisor = np.dtype([("value", "u4"), ("magic", "u4"), ("shift", "u4")])
    return np.dtype(
        [("dst", "i8", (number,)), ("src", "i8", (number,)), ("size", divisor, (number,))],
        align=True,
    )


_TILE_AXIS = np.dtype([("dst", "i8"), ("src", "i8"), ("size", "u4")], align=True)


def _axes_argument(axes: tuple[Axis, ...]) -> np.ndarray[Any, Any]:
    found = np.zeros((), _axes_dtype(len(axes)))
    found["dst"] = [axis.dst for axis in axes]
    found["src"] = [axis.src for axis in axes]
    found["size"] = [divisor(axis.size) for axis in axes]
    return found


def _tile_axis(axis: Axis) -> np.ndarray[Any, Any]:
    return np.array((axis.dst, axis.src, axis.size), _TILE_AXIS)


def divisor(number: int) -> tuple[int, int, int]:
    """Return (number, magic, shift): n // number is ((n * magic >> 32) + n) >> shift, n < 2**31."""
    shift = (number - 1).bit_length()
    return number, ((1 << 32) * ((1 << shift) - number)) // number + 1, shift


@dataclass(frozen=True, slots=True)
class _Stream:
    """Somebody's stream, as a launch and as CuPy itself ask for it."""

    ptr: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


def available() -> bool:
    """Whether CuPy, which compiles and launches the kernels, is installed."""
    return importlib.util.find_spec("cupy") is not None


def _cupy(platform: Platform) -> Any:
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        extra = "rocm" if platform is Platform.HIP else "cuda13"
        raise KernelsUnavailable(
            "byte order, casts and strides are done by device kernels, which CuPy compiles, and "
            f'CuPy cannot be imported ({error}): pip install "hipfile-arrays[{extra}]"'
        ) from error
    is_hip = bool(cupy.cuda.runtime.is_hip)
    if is_hip is not (platform is Platform.HIP):
        raise KernelsUnavailable(
            f"the array is in {platform.name} memory, and the installed CuPy is for "
            f"{'HIP' if is_hip else 'CUDA'}"
        )
    return cupy


def require(platform: Platform) -> None:
    """Raise `KernelsUnavailable` unless CuPy can run kernels on this platform."""
    _cupy(platform)


def temporary(
    least: int, most: int, device: int, stream: int, platform: Platform
) -> tuple[Any, int]:
    """Borrow device memory from CuPy's current pool.

    Parameters
    ----------
    least, most : int
        Bytes: `most` if they are there, else as many as can be had.
    device : int
        Where.
    stream : int
        Whose work uses the memory; CuPy hands it to the same stream's work only.
    platform : Platform
        Whose device it is.

    Returns
    -------
    owner : cupy.cuda.MemoryPointer
        The memory, at its attribute ``ptr``, as long as this lives.
    nbytes : int
        How many.

    Raises
    ------
    cupy.cuda.memory.OutOfMemoryError
        If there are not even `least`.
    """
    cupy = _cupy(platform)
    with cupy.cuda.Device(device), cupy.cuda.Stream.from_external(_Stream(stream)):
        while True:
            try:
                return cupy.cuda.alloc(most), most
            except cupy.cuda.memory.OutOfMemoryError:
                if most <= least:
                    raise
                most = max(least, most // 2)


_functions: dict[tuple[str, int], Any] = {}
_compiling = threading.Lock()


@cache
def templates() -> str:
    here = Path(__file__).parent
    return "\n".join((here / name).read_text("utf-8") for name in ("scalars.hip", "shim.hip"))


def _function(cupy: Any, source: str, device: int) -> Any:
    """Compile the kernel, or take it from this process's or from CuPy's cache."""
    found = _functions.get((source, device))
    if found is not None:
        return found
    with _compiling:
        code = f"{templates()}\n{source}"
        try:
            found = cupy.RawModule(code=code).get_function("kernel")
        except OSError:
            # A cache folder that cannot be written to: CuPy then keeps the kernel in memory.
            before = os.environ.get("CUPY_CACHE_IN_MEMORY")
            os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
            try:
                found = cupy.RawModule(code=code).get_function("kernel")
            finally:
                if before is None:
                    del os.environ["CUPY_CACHE_IN_MEMORY"]
                else:
                    os.environ["CUPY_CACHE_IN_MEMORY"] = before
        _functions[source, device] = found
    return found


def _run(
    source: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    arguments: tuple[Any, ...],
    device: int,
    stream: int,
    platform: Platform,
) -> None:
    cupy = _cupy(platform)
    with cupy.cuda.Device(device):
        function = _function(cupy, source, device)
        function(grid, block, arguments, stream=_Stream(stream))


def copy(
    dst: Strided,
    src: Strided,
    *,
    device: int,
    stream: int,
    platform: Platform,
    first: int = 0,
    count: int | None = None,
) -> None:
    """Queue a copy of items ``[first, first + count)`` of `src` to the same items of `dst`.

    Byte orders, dtypes and strides of both sides are arbitrary; addresses need no alignment. The
    two may be the same memory with the same strides, and must not overlap otherwise.

    Parameters
    ----------
    dst, src : Strided
        Of one shape.
    device : int
        The device of both.
    stream : int
        The stream's pointer or number.
    platform : Platform
        Whose device it is.
    first, count : int, optional
        The items, in C order of the shape; by default all.

    Raises
    ------
    ValueError
        If the shapes differ, items of `dst` overlap, or the items are not within the shape.
    TypeError
        If there is no cast between the dtypes.
    KernelsUnavailable
        If CuPy is missing or another platform's.
    """
    for launch in plan(dst, src, first, count):
        arguments = [
            np.uint64(launch.dst),
            np.uint64(launch.src),
            np.uint32(launch.count),
            _axes_argument(launch.axes),
        ]
        per_block = 4 * THREADS
        if launch.columns is not None and launch.rows is not None:
            arguments += [_tile_axis(launch.columns), _tile_axis(launch.rows)]
            per_block = 1
        blocks = min(-(-launch.count // per_block), MOST_BLOCKS)
        source = launch.kernel.source
        _run(source, (blocks,), (THREADS,), tuple(arguments), device, stream, platform)


def prepare(dst: Strided, src: Strided, *, device: int, platform: Platform) -> None:
    """Compile and load what `copy` of all items needs."""
    cupy = _cupy(platform)
    with cupy.cuda.Device(device):
        for launch in plan(dst, src, 0, None):
            _function(cupy, launch.kernel.source, device)


def swap_inplace(
    ptr: int, dtype: Dtype, count: int, *, device: int, stream: int, platform: Platform
) -> None:
    """Queue a byte swap of `count` packed items where they are (complex: each half).

    Parameters
    ----------
    ptr : int
        Of the first item; any address.
    dtype : numpy.dtype
        Of the items; its byte order does not matter.
    count : int
        How many.
    device, stream, platform
        As for `copy`.
    """
    native = dtype.newbyteorder("=")
    shape, strides = (count,), (dtype.itemsize,)
    copy(
        Strided(ptr, native, shape, strides),
        Strided(ptr, native.newbyteorder("S"), shape, strides),
        device=device,
        stream=stream,
        platform=platform,
    )


def gather_rows(
    dst_ptr: int,
    src_ptr: int,
    row_bytes: int,
    row_offsets_ptr: int,
    n_rows: int,
    *,
    device: int,
    stream: int,
    platform: Platform,
) -> None:
    """Queue a copy of rows of one length at arbitrary offsets, packed one after the other.

    Parameters
    ----------
    dst_ptr, src_ptr : int
        Device addresses; the rows of `dst_ptr` are packed.
    row_bytes : int
        Of every row.
    row_offsets_ptr : int
        Device address of `n_rows` int64: where in `src_ptr` each row begins, in bytes.
    n_rows : int
        How many.
    device, stream, platform
        As for `copy`.
    """
    if row_bytes < 0 or n_rows < 0:
        raise ValueError(f"not rows: {n_rows} of {row_bytes} bytes")
    if row_bytes == 0 or n_rows == 0:
        return
    words = -(-row_bytes // WIDEST)
    across = min(THREADS, 1 << (words - 1).bit_length())
    blocks = min(-(-n_rows * across // THREADS), MOST_BLOCKS)
    # Few long rows are shared by several blocks.
    pieces = max(1, min(-(-words // (4 * across)), 2048 // blocks))
    arguments = (
        np.uint64(dst_ptr),
        np.uint64(src_ptr),
        np.uint64(row_offsets_ptr),
        np.uint64(n_rows),
        np.uint64(row_bytes),
    )
    block = (across, THREADS // across)
    _run(ROWS_SOURCE, (blocks, pieces), block, arguments, device, stream, platform)
