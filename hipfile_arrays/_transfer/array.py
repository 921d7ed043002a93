"""What an array is, asked of its own library; and new arrays in the library of ``like``.

Libraries are recognised by the module of an object's type, never imported for it: a library that
the user has not imported cannot own the user's array. What differs from library to library (the
current stream, how to make an empty array) is one row of `_LIBRARIES` each; everything else is
DLPack, through the native module.

DLPack streams: this library asks exporters for no synchronisation (stream ``-1``) and orders itself
after the stream that the array's library is on. An exporter whose stream cannot be asked for gets
the number of the default stream instead (0 on ROCm, 1 on CUDA: the numbers differ), on which it
then orders its own work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from .. import _native
from ..errors import MemoryTypeError
from .values import Extent, Platform

__all__ = [
    "DeviceArray",
    "address_of",
    "describe",
    "dtype_of",
    "empty",
    "owner_of",
    "stream_of",
    "target_of",
    "transposed",
]

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


@dataclass(frozen=True, slots=True)
class _Library:
    """What has to be asked of an array library in its own words."""

    # The stream its next operation on `device` goes to.
    stream: Callable[[ModuleType, int], int]
    # A new array: (module, device of `like` or None, shape, dtype) -> array.
    empty: Callable[[ModuleType, int | None, tuple[int, ...], np.dtype[Any]], Any]
    # The object whose life is that of an array's memory; it can be weakly referenced.
    owner: Callable[[Any], object]
    # The address of an owner's memory; 0 if it does not keep any.
    address: Callable[[ModuleType, Any], int]


def _cupy_stream(cupy: ModuleType, device: int) -> int:
    return int(cupy.cuda.get_current_stream(device).ptr)


def _cupy_empty(
    cupy: ModuleType, device: int | None, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    if device is None:
        return cupy.empty(shape, dtype)
    with cupy.cuda.Device(device):
        return cupy.empty(shape, dtype)


def _cupy_owner(array: Any) -> object:
    base = array.base
    return array if base is None else base


def _cupy_address(cupy: ModuleType, owner: Any) -> int:
    memory = owner.data.mem
    # Other kinds are somebody else's, or have no allocation of their own.
    kinds = (cupy.cuda.memory.Memory, cupy.cuda.memory.PooledMemory)
    return int(memory.ptr) if type(memory) in kinds else 0


def _torch_stream(torch: ModuleType, device: int) -> int:
    return int(torch.cuda.current_stream(device).cuda_stream)


def _torch_empty(
    torch: ModuleType, device: int | None, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    names = {"bool": "bool"}
    name = names.get(dtype.name, dtype.name)
    kind = getattr(torch, name, None)
    if not isinstance(kind, torch.dtype):
        raise TypeError(f"PyTorch has no dtype for {dtype}")
    where = "cuda" if device is None else f"cuda:{device}"
    return torch.empty(shape, dtype=kind, device=where)


def _torch_owner(array: Any) -> object:
    owner: object = array.untyped_storage()
    return owner


def _torch_address(_: ModuleType, owner: Any) -> int:
    return int(owner.data_ptr())


_LIBRARIES = {
    "cupy": _Library(_cupy_stream, _cupy_empty, _cupy_owner, _cupy_address),
    "torch": _Library(_torch_stream, _torch_empty, _torch_owner, _torch_address),
}


@lru_cache(maxsize=256)
def _library_of_type(kind: Any) -> tuple[ModuleType, _Library] | None:
    root = kind.__module__.partition(".")[0]
    library = _LIBRARIES.get(root)
    return None if library is None else (sys.modules[root], library)


def _library_of(array: object) -> tuple[ModuleType, _Library] | None:
    kind: Any = type(array)
    return _library_of_type(kind)


def _default_stream_number(device_type: int) -> int:
    return 0 if device_type == 10 else 1


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


def _import(array: Any, library: object | None) -> _native.Tensor:
    try:
        return _native.import_tensor(array, -1 if library else None)
    except AttributeError:
        if hasattr(array, "__dlpack__"):
            raise
        raise MemoryTypeError(
            f"a device array is needed, but {_describe_kind(array)} does not export DLPack "
            "(it has no __dlpack__ method)"
        ) from None
    except Exception:
        # Host libraries refuse foreign streams in their own words (NumPy: BufferError); whose
        # memory it is makes the better message.
        device_type, _ = array.__dlpack_device__()
        if device_type not in _PLATFORMS:
            raise _refuse_device(array, device_type) from None
        raise


def describe(array: Any, *, stream: int | None = None) -> DeviceArray:
    """Import an array and say what it is.

    Parameters
    ----------
    array : object
        Any exporter of DLPack.
    stream : int, optional
        The caller's stream; by default the one that the array's library is on.

    Returns
    -------
    DeviceArray
        Whose memory has not been looked at yet: see `memory`.

    Raises
    ------
    MemoryTypeError
        If it exports no DLPack, or says itself that its memory is not on a ROCm or CUDA device.
    TypeError
        If its items are of a type that is not supported.
    """
    owner = _library_of(array)
    tensor = _import(array, owner)
    platform = _PLATFORMS.get(tensor.device_type)
    if platform is None:
        raise _refuse_device(array, tensor.device_type)
    device = tensor.device_id
    if stream is None:
        stream = stream_of(array, device)
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
        be lost), or if the array has overlapping items (a zero stride).
    """
    described = describe(array, stream=stream)
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


def stream_of(array: object, device: int) -> int:
    """Return the stream that the array's library is on, as a number (a pointer; 0: the default).

    Parameters
    ----------
    array : object
        A device array.
    device : int
        The device that it is on.
    """
    owner = _library_of(array)
    return owner[1].stream(owner[0], device) if owner else 0


def owner_of(array: object) -> object:
    """Return the object whose life is that of an array's memory; None if there is none to watch.

    Parameters
    ----------
    array : object
        A device array, or None.
    """
    library = _library_of(array)
    return None if library is None else library[1].owner(array)


def address_of(owner: object) -> int:
    """Return the address of the memory that an owner keeps alive; 0 if it keeps none.

    Parameters
    ----------
    owner : object
        As `owner_of` returns it.
    """
    library = _library_of(owner)
    return 0 if library is None else library[1].address(library[0], owner)


def _namespace_name(like: Any) -> str | None:
    if isinstance(like, ModuleType):
        return like.__name__.partition(".")[0]
    if isinstance(like, type):
        return like.__module__.partition(".")[0]
    return None


def empty(like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return a new uninitialised array in the library, and on the device, of `like`.

    Parameters
    ----------
    like : array, module or type
        A device array, its library (``cupy``), or its type (``cupy.ndarray``). A library or type
        means that library's current device.
    shape : tuple of int
        Items.
    dtype : numpy.dtype
        Native byte order.

    Raises
    ------
    MemoryTypeError
        If `like` is not a device array, or a library of such.
    """
    name = _namespace_name(like)
    if name is not None:
        library = _LIBRARIES.get(name)
        if library is None:
            raise MemoryTypeError(
                f"like={like!r} is not a library of device arrays known here "
                f"({', '.join(sorted(_LIBRARIES))}); pass an array on the device you mean"
            )
        return library.empty(sys.modules[name], None, shape, dtype)
    described = describe(like)
    owner = _library_of(like)
    if owner is None:
        raise MemoryTypeError(
            f"no new array can be made like {_describe_kind(like)}; make one with its own library "
            "and pass it as out="
        )
    return owner[1].empty(owner[0], described.extent.device, shape, dtype)


def transposed(array: Any, axes: tuple[int, ...]) -> Any:
    """Return a view with the axes in another order, in the words of the array's library."""
    permute = getattr(array, "permute", None)  # PyTorch's; its transpose() takes two axes
    return array.transpose(axes) if permute is None else permute(axes)
