"""What an array is: DLPack, through the native module, or ``__cuda_array_interface__``.

DLPack streams: this library asks exporters for no synchronisation (stream ``-1``) and orders itself
after the stream that the array's library is on. An exporter whose stream cannot be asked for gets
none instead, and orders its own work before the default stream. ``__cuda_array_interface__`` names
the stream itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .. import _native
from ..errors import MemoryTypeError
from . import vendor
from .libraries import has_stream, is_immutable, stream_of
from .records import packed_strides
from .values import Extent, Platform

__all__ = ["DeviceArray", "code_of", "describe", "device_type_of", "dtype_of", "target_of"]

# DLPack device types (dlpack.h)
_CPU = 1
_PLATFORMS = {10: Platform.HIP, 2: Platform.CUDA}
_DEVICE_NAMES = {
    1: "host memory (kDLCPU)",
    2: "CUDA device memory (kDLCUDA)",
    3: "pinned host memory (kDLCUDAHost)",
    4: "OpenCL memory (kDLOpenCL)",
    7: "Vulkan memory (kDLVulkan)",
    8: "Metal memory (kDLMetal)",
    10: "ROCm device memory (kDLROCM)",
    11: "pinned host memory (kDLROCMHost)",
    13: "CUDA managed memory (kDLCUDAManaged)",
    14: "oneAPI memory (kDLOneAPI)",
}
_CONVERSION = {
    1: "For host arrays numpy.fromfile and numpy.ndarray.tofile are the better tools; "
    "cupy.asarray(x) makes a device array.",
    3: "Copy it to the device first, for example by cupy.asarray(x).",
    11: "Copy it to the device first, for example by cupy.asarray(x).",
    13: "Copy it to plain device memory first, for example with CuPy's default allocator.",
}
_READ_ONLY = 1
_IS_COPIED = 2

# (DLPack type code, bits) of the types that NumPy has; the others come from ml_dtypes.
_DTYPES: dict[tuple[int, int], np.dtype[Any]] = {
    **{(0, 8 * n): np.dtype(f"i{n}") for n in (1, 2, 4, 8)},
    **{(1, 8 * n): np.dtype(f"u{n}") for n in (1, 2, 4, 8)},
    **{(2, 8 * n): np.dtype(f"f{n}") for n in (2, 4, 8)},
    **{(5, 8 * n): np.dtype(f"c{n}") for n in (8, 16)},
    (6, 8): np.dtype(bool),
}
_ML_DTYPES = {
    (4, 16): "bfloat16",
    (7, 8): "float8_e3m4",
    (8, 8): "float8_e4m3",
    (9, 8): "float8_e4m3b11fnuz",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """An exporter's array as the transfer steps see it. Holding it keeps the memory alive.

    Attributes
    ----------
    tensor : Tensor
        The imported DLPack tensor, which owns a reference to the memory.
    dtype : numpy.dtype
        Native byte order.
    extent : Extent
        The memory from the first item on, if `contiguous`; the caller checks that.
    stream : int
        The stream that the array's library is on.
    """

    tensor: _native.Tensor
    dtype: np.dtype[Any]
    extent: Extent
    stream: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Items of each axis."""
        return self.tensor.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from item to item of each axis."""
        return self.tensor.strides

    @property
    def contiguous(self) -> bool:
        """Whether the items lie in C order without gaps."""
        return self.tensor.contiguous

    @property
    def size(self) -> int:
        """Number of items."""
        return self.extent.nbytes // self.dtype.itemsize


@lru_cache(maxsize=64)
def dtype_of(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    """Return the NumPy dtype of a DLPack dtype, from ml_dtypes where NumPy has none.

    Parameters
    ----------
    code, bits, lanes : int
        As in ``DLDataType``.

    Returns
    -------
    numpy.dtype
        In native byte order.

    Raises
    ------
    TypeError
        For vector types, types that do not fill whole bytes, and types unknown here.
    """
    if lanes != 1:
        raise TypeError(f"arrays of {lanes}-lane vector items are not supported")
    found = _DTYPES.get((code, bits))
    if found is not None:
        return found
    name = _ML_DTYPES.get((code, bits))
    if name is None:
        raise TypeError(f"arrays of DLPack type code {code} with {bits} bits are not supported")
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            f"arrays of {name} need the package ml_dtypes: pip install ml_dtypes"
        ) from None
    extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return extended


def _describe_kind(array: object) -> str:
    kind = type(array)
    return f"{kind.__module__}.{kind.__qualname__}"


def _refuse_device(array: object, device_type: int) -> MemoryTypeError:
    what = _DEVICE_NAMES.get(device_type, f"memory of DLPack device type {device_type}")
    advice = _CONVERSION.get(device_type, "Only ROCm and CUDA device arrays can be transferred.")
    return MemoryTypeError(
        f"a device array is needed, but this {_describe_kind(array)} is {what}. {advice}"
    )


def _import(array: Any, streams: bool) -> _native.Tensor:
    try:
        return _native.import_tensor(array, -1 if streams else None)
    except AttributeError:
        if hasattr(array, "__dlpack__"):
            raise
        raise MemoryTypeError(
            f"a device array is needed, but {_describe_kind(array)} exports neither DLPack (it has "
            "no __dlpack__ method) nor __cuda_array_interface__"
        ) from None
    except Exception:
        # Host libraries refuse foreign streams in their own words (NumPy: BufferError); whose
        # memory it is makes the better message.
        device_type, _ = array.__dlpack_device__()
        if device_type not in _PLATFORMS:
            raise _refuse_device(array, device_type) from None
        raise


def _interface_of(array: object) -> dict[str, Any] | None:
    if hasattr(array, "__dlpack__") or _native.has_exchange(array):
        return None
    interface: dict[str, Any] | None = getattr(array, "__cuda_array_interface__", None)
    return interface


def _adopt(array: object, interface: dict[str, Any]) -> tuple[_native.Tensor, int]:
    """Import ``__cuda_array_interface__``: the tensor, and the stream that it names.

    https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html; ROCm's libraries have it
    under the same name.
    """
    if interface.get("mask") is not None:
        raise TypeError("arrays with a mask are not supported")
    dtype: np.dtype[Any] = np.dtype(interface["typestr"])
    if not dtype.isnative or dtype.hasobject or len(interface.get("descr") or [0]) > 1:
        raise TypeError(f"device arrays of {interface['typestr']!r} items are not supported")
    code, bits = code_of(dtype)
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        strides = packed_strides(shape, dtype.itemsize)
    elif any(step % dtype.itemsize for step in strides):
        raise TypeError(f"strides {strides} are no multiples of the item's {dtype.itemsize} bytes")
    pointer, read_only = interface["data"]
    if 0 in shape:
        pointer = pointer or 0
    stream = interface.get("stream")
    if stream == 0:
        raise ValueError("__cuda_array_interface__ names stream 0, which means none: see its rules")
    platform, device = _where(int(pointer))
    tensor = _native.adopt_tensor(
        array,
        int(pointer),
        bool(read_only),
        device_type_of(platform),
        device,
        code,
        bits,
        shape,
        tuple(step // dtype.itemsize for step in strides),
    )
    # 1 is the legacy default stream, and 2 the handle of the per-thread one on both platforms.
    return tensor, 0 if stream in (None, 1) else int(stream)


def _where(pointer: int) -> tuple[Platform, int]:
    """Ask the runtimes in this process, HIP's first, whose memory an address is."""
    platform = Platform.HIP if _native.mapped_runtimes(Platform.HIP) else Platform.CUDA
    if not pointer:
        return platform, 0
    vendor.prepare(platform)
    _, device, _, _ = _native.locate(int(platform), pointer)
    return platform, max(device, 0)


def device_type_of(platform: Platform) -> int:
    """Return DLPack's number for a platform's device memory."""
    return next(number for number, found in _PLATFORMS.items() if found is platform)


def code_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the (type code, bits) of DLPack for a dtype.

    Raises
    ------
    TypeError
        If DLPack has none for it.
    """
    native = dtype.newbyteorder("=")
    for key, found in _DTYPES.items():
        if found == native:
            return key
    for key, name in _ML_DTYPES.items():
        if name == dtype.name:
            return key
    raise TypeError(f"DLPack has no arrays of {dtype}")


def describe(array: Any, *, stream: int | None = None) -> DeviceArray:
    """Import an array and say what it is.

    Parameters
    ----------
    array : object
        Any exporter of DLPack, or of ``__cuda_array_interface__``.
    stream : int, optional
        The caller's stream; by default the one that the array's library is on.

    Returns
    -------
    DeviceArray
        Whose memory has not been looked at yet: see `memory`.

    Raises
    ------
    MemoryTypeError
        If it is no exporter, or says itself that its memory is not on a ROCm or CUDA device.
    TypeError
        If its items are of a type that is not supported.
    """
    known = has_stream(array)
    interface = None if known else _interface_of(array)
    if interface is None:
        tensor = _import(array, known)
    else:
        tensor, named = _adopt(array, interface)
        stream = named if stream is None else stream
    platform = _PLATFORMS.get(tensor.device_type)
    if platform is None:
        raise _refuse_device(array, tensor.device_type)
    device = tensor.device_id
    if stream is None:
        stream = stream_of(array, tensor.device_type, device)
    nbytes = tensor.nbytes
    return DeviceArray(
        tensor,
        dtype_of(tensor.code, tensor.bits, tensor.lanes),
        Extent(tensor.pointer if nbytes else 0, nbytes, platform, device, array),
        stream,
    )


def target_of(array: Any, *, stream: int | None = None) -> DeviceArray:
    """Import an array that will be written into.

    As `describe`, and refuses what must not or cannot be written into.

    Raises
    ------
    ValueError
        If the exporter says that the memory is read-only, or a copy (bytes written into it would
        be lost), if its library's arrays never change, or if the array has overlapping items (a
        zero stride).
    """
    described = describe(array, stream=stream)
    if is_immutable(array):
        raise ValueError(
            f"cannot read into this array: a {_describe_kind(array)} never changes; like= gives a "
            "new one"
        )
    flags = described.tensor.flags
    if flags & _READ_ONLY:
        raise ValueError("cannot read into this array: its exporter says that it is read-only")
    if flags & _IS_COPIED:
        raise ValueError(
            "cannot read into this array: its exporter hands out a copy, and what is read into a "
            "copy is lost"
        )
    if not described.contiguous and any(
        step == 0 and n > 1 for step, n in zip(described.strides, described.shape, strict=True)
    ):
        raise ValueError(
            "cannot read into this array: its items share memory (it was broadcast, a stride is 0)"
        )
    return described
