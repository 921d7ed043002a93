"""What differs from array library to array library: one row each.

Libraries are recognised by the module of an object's type, never imported for it: a library that
the user has not imported cannot own the user's array. A library without a row can say its current
stream, and make arrays, by DLPack's exchange API; else its stream is the default one.
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

__all__ = [
    "address_of",
    "empty_of",
    "has_stream",
    "is_immutable",
    "owner_of",
    "root_of",
    "stream_of",
    "transposed",
]

# Arrays that must not be written into, though they say nothing of the kind.
_IMMUTABLE = frozenset({"jax", "jaxlib"})


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
    root = root_of(kind)
    library = _LIBRARIES.get(root)
    return None if library is None else (sys.modules[root], library)


def _library_of(array: object) -> tuple[ModuleType, _Library] | None:
    kind: Any = type(array)
    return _library_of_type(kind)


def root_of(kind: Any) -> str:
    """Return the name of the package that a type or module belongs to."""
    name = kind.__name__ if isinstance(kind, ModuleType) else kind.__module__
    return str(name).partition(".")[0]


def has_stream(array: object) -> bool:
    """Whether an array's library has a row here, or an exchange API: its stream can be asked for.

    Parameters
    ----------
    array : object
        Any.
    """
    return _library_of(array) is not None or _native.has_exchange(array)


def stream_of(array: object, device_type: int, device: int) -> int:
    """Return the stream that the array's library is on, as a number (a pointer; 0: the default).

    Parameters
    ----------
    array : object
        A device array.
    device_type, device : int
        Where it is, in DLPack's numbers.
    """
    if _native.has_exchange(array):
        return _native.current_stream(array, device_type, device)
    library = _library_of(array)
    return library[1].stream(library[0], device) if library else 0


def empty_of(
    like: Any, device: int | None, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any | None:
    """Return a new uninitialised array of a library that has a row here, else None.

    Parameters
    ----------
    like : array, module or type
        Of the library.
    device : int or None
        By default the library's current device.
    shape, dtype
        Of the new array.
    """
    kind: Any = like if isinstance(like, ModuleType | type) else type(like)
    root = root_of(kind)
    library = _LIBRARIES.get(root)
    return None if library is None else library.empty(sys.modules[root], device, shape, dtype)


def is_immutable(array: object) -> bool:
    """Whether an array's library promises that its arrays never change."""
    return root_of(type(array)) in _IMMUTABLE


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


def transposed(array: Any, axes: tuple[int, ...]) -> Any:
    """Return a view with the axes in another order, in the words of the array's library."""
    permute = getattr(array, "permute", None)  # PyTorch's; its transpose() takes two axes
    return array.transpose(axes) if permute is None else permute(axes)
