"""Hand-made DLPack exporters: old and new capsules, flags, odd strides, lies.

A `Capsule` lays out a managed tensor with ctypes over somebody else's memory and counts how often
its deleter runs.
"""

from __future__ import annotations

import ctypes
from typing import Any

_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


# A real exporter's managed tensor owns itself until its deleter runs; these are kept for good, so
# that no garbage collection can free a deleter before it is called.
_kept: list[Any] = []


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


class Exporter:
    """Exports the memory of a CuPy array, described as the test wants it."""

    def __init__(
        self,
        array: Any,
        *,
        versioned: bool = True,
        major: int = 1,
        flags: int = 0,
        shape: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
        null_strides: bool = False,
        byte_offset: int = 0,
        device: tuple[int, int] | None = None,
        dtype: tuple[int, int, int] | None = None,
        pointer: int | None = None,
    ) -> None:
        self.array = array
        self.device = device or array.__dlpack_device__()
        self.deleted = 0
        self.calls: list[dict[str, Any]] = []
        self._versioned = versioned
        self._major = major
        self._flags = flags
        self._shape = array.shape if shape is None else shape
        item = array.dtype.itemsize
        self._strides = strides or tuple(s // item for s in array.strides)
        self._null_strides = null_strides
        self._byte_offset = byte_offset
        self._dtype = dtype or ({"f": 2, "i": 0, "u": 1, "c": 5}[array.dtype.kind], 8 * item, 1)
        self._pointer = array.data.ptr if pointer is None else pointer

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> object:
        self.calls.append({"stream": stream, **kwargs})
        return self.capsule()

    def capsule(self) -> object:
        ndim = len(self._shape)
        shape = (ctypes.c_int64 * max(ndim, 1))(*self._shape)
        strides = (ctypes.c_int64 * max(ndim, 1))(*self._strides[:ndim])
        managed: Any = _ManagedVersioned() if self._versioned else _Managed()
        tensor = managed.tensor
        tensor.data = self._pointer
        tensor.device_type, tensor.device_id = self.device
        tensor.ndim = ndim
        tensor.code, tensor.bits, tensor.lanes = self._dtype
        tensor.shape = shape
        if not self._null_strides:
            tensor.strides = strides
        tensor.byte_offset = self._byte_offset
        deleter = _DELETER(self._delete)
        managed.deleter = deleter
        if self._versioned:
            managed.major, managed.minor, managed.flags = self._major, 1, self._flags
        _kept.extend([shape, strides, managed, deleter])
        name = b"dltensor_versioned" if self._versioned else b"dltensor"
        return _api.PyCapsule_New(ctypes.addressof(managed), name, None)

    def _delete(self, _: int | None) -> None:
        self.deleted += 1


class OldExporter(Exporter):
    """From before DLPack 1.0: knows no keyword but `stream`, makes unversioned capsules."""

    def __init__(self, array: Any, **kwargs: Any) -> None:
        super().__init__(array, versioned=False, **kwargs)

    def __dlpack__(self, *, stream: Any = None) -> object:  # type: ignore[override]
        self.calls.append({"stream": stream})
        return self.capsule()


class OldestExporter(Exporter):
    """Knows no keyword at all."""

    def __init__(self, array: Any, **kwargs: Any) -> None:
        super().__init__(array, versioned=False, **kwargs)

    def __dlpack__(self) -> object:  # type: ignore[override]
        self.calls.append({})
        return self.capsule()
