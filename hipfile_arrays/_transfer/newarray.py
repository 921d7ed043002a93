"""New arrays in the library of ``like``.

A library with a row in `libraries` makes an empty array itself, and so does one with DLPack's
exchange API. Any other one takes over device memory of ours by its ``from_dlpack`` once it is
filled, since its arrays may be immutable; it is freed when that array is.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from .. import _native
from ..errors import MemoryTypeError
from .array import code_of, describe, device_type_of
from .libraries import empty_of, root_of
from .records import packed_strides
from .values import Platform

__all__ = ["empty", "finished"]


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """Device memory of ours as an array, until a library takes it over. Strides are in items."""

    memory: _native.DeviceMemory
    platform: Platform
    device: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __dlpack_device__(self) -> tuple[int, int]:
        return device_type_of(self.platform), self.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        # Filled by transfers that have ended, so there is nothing to order on any stream.
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("this memory can only be exported where it is")
        versioned = max_version is not None and max_version[0] >= 1
        code, bits = code_of(self.dtype)
        kind = device_type_of(self.platform)
        return self.memory.capsule(kind, code, bits, self.shape, self.strides, versioned)

    def transpose(self, axes: tuple[int, ...]) -> _Unfinished:
        return self._with(
            tuple(self.shape[axis] for axis in axes), tuple(self.strides[axis] for axis in axes)
        )

    def __getitem__(self, items: slice) -> _Unfinished:
        return self._with((len(range(self.shape[0])[items]), *self.shape[1:]), self.strides)

    def _with(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> _Unfinished:
        return _Unfinished(self.memory, self.platform, self.device, self.dtype, shape, strides)


def _namespaces(like: Any) -> list[Any]:
    """Where `like`'s library may have its ``from_dlpack`` and ``zeros``."""
    if isinstance(like, ModuleType):
        found: list[Any] = [like]
    else:
        found = [like.__array_namespace__()] if hasattr(like, "__array_namespace__") else []
        kind = like if isinstance(like, type) else type(like)
        found.append(sys.modules.get(root_of(kind)))
    # JAX's array functions are in jax.numpy.
    return [one for one in (*found, *(getattr(one, "numpy", None) for one in found)) if one]


def _function(like: Any, name: str) -> Callable[..., Any] | None:
    if isinstance(like, type) and hasattr(like, "__array_namespace__"):
        like = sys.modules.get(root_of(like), like)
    for namespace in _namespaces(like):
        found = getattr(namespace, name, None)
        if callable(found):
            function: Callable[..., Any] = found
            return function
    return None


def empty(like: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return a new array to be filled, and then passed through `finished`.

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
    if isinstance(like, ModuleType | type):
        made = empty_of(like, None, shape, dtype)
        if made is not None:
            return made
        zeros = _function(like, "zeros")
        if zeros is None:
            raise MemoryTypeError(
                f"like={like!r} is not a library of device arrays known here; pass an array on the "
                "device you mean"
            )
        like = zeros(1)  # where the library makes its arrays
    extent = describe(like).extent
    made = empty_of(like, extent.device, shape, dtype)
    if made is not None:
        return made
    if _native.has_exchange(like):
        kind = device_type_of(extent.platform)
        return _native.new_array(like, kind, extent.device, shape, *code_of(dtype))
    if _function(like, "from_dlpack") is None:
        raise MemoryTypeError(
            f"no new array can be made like {type(like).__module__}.{type(like).__qualname__}, "
            "whose library has no from_dlpack; make one with that library and pass it as out="
        )
    nbytes = math.prod(shape) * dtype.itemsize
    memory = _native.DeviceMemory(int(extent.platform), extent.device, nbytes)
    strides = packed_strides(shape, 1)
    return _Unfinished(memory, extent.platform, extent.device, dtype, shape, strides)


def finished(like: Any, array: Any) -> Any:
    """Return what `empty` gave, now that it is filled, as an array of `like`'s library."""
    if not isinstance(array, _Unfinished):
        return array
    from_dlpack = _function(like, "from_dlpack")
    if from_dlpack is None:
        raise MemoryTypeError(f"the library of {like!r} has no from_dlpack")
    return from_dlpack(array)
