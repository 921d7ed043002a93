"""Arrays of libraries that nobody here knows: exchange API, CUDA array interface, from_dlpack."""

from __future__ import annotations

import ctypes
import gc
import sys
import types
from typing import Any

import cupy as cp
import numpy as np
import pytest
from exporters import Exporter, _Tensor
from support import device_bytes, random_bytes

import hipfile_arrays as hfa

_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]

_FROM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
_TO = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
_ALLOCATE = ctypes.PYFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(_Tensor),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_STREAM = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class _Table(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", _ALLOCATE),
        ("from_object", _FROM),
        ("to_object", _TO),
        ("view_of_object", ctypes.c_void_p),
        ("current_stream", _STREAM),
    ]


def exchanging(*, newer: bool = False, major: int = 1) -> type:
    """Make an array type with an exchange API, over CuPy arrays, and a stream of its own."""

    class Array(Exporter):
        stream = cp.cuda.Stream(non_blocking=True)
        made: list[Any] = []

        def __dlpack__(self, **kwargs: Any) -> object:
            pytest.fail("the exchange API goes first")

    def from_object(array: Any, out: Any) -> int:
        out[0] = _api.PyCapsule_GetPointer(array.capsule(), b"dltensor_versioned")
        return 0

    def allocate(prototype: Any, out: Any, context: int, set_error: int) -> int:
        wanted = prototype[0]
        shape = tuple(wanted.shape[i] for i in range(wanted.ndim))
        kind = {0: "i", 1: "u", 2: "f"}[wanted.code]
        array = Array(cp.empty(shape, f"{kind}{wanted.bits // 8}"))
        Array.made.append(array)
        out[0] = _api.PyCapsule_GetPointer(array.capsule(), b"dltensor_versioned")
        return 0

    def to_object(managed: int, out: Any) -> int:
        array = Array.made[-1]
        _api.Py_IncRef(ctypes.py_object(array))
        out[0] = id(array)
        return 0

    def current_stream(device_type: int, device: int, out: Any) -> int:
        out[0] = Array.stream.ptr
        return 0

    table = _Table(
        major,
        3,
        None,
        _ALLOCATE(allocate),
        _FROM(from_object),
        _TO(to_object),
        None,
        _STREAM(current_stream),
    )
    first = table
    if newer:
        first = _Table(major=2, minor=0, previous=ctypes.addressof(table))
    Array.tables = (table, first)
    Array.__dlpack_c_exchange_api__ = _api.PyCapsule_New(
        ctypes.addressof(first), b"dlpack_exchange_api", None
    )
    return Array


@pytest.fixture
def file(make_file: Any) -> Any:
    return make_file(random_bytes(400))


class TestExchangeApi:
    @pytest.mark.parametrize("newer", [False, True], ids=["1", "2, then 1"])
    def test_reads_and_writes_without_capsules(self, file: Any, newer: bool) -> None:
        array = exchanging(newer=newer)(cp.empty(100, "f4"))
        hfa.fromfile(file, "f4", out=array)
        assert device_bytes(array.array) == random_bytes(400)
        hfa.tofile(array, file)
        assert file.read_bytes() == random_bytes(400)
        assert array.deleted == 2

    def test_a_table_of_an_unknown_version_is_not_used(self, file: Any) -> None:
        kind = exchanging(major=7)
        kind.__dlpack__ = Exporter.__dlpack__
        array = kind(cp.empty(100, "f4"))
        hfa.fromfile(file, "f4", out=array)
        assert array.calls

    @pytest.mark.emulated
    def test_writes_what_its_own_stream_has_queued(self, file: Any) -> None:
        array = exchanging()(cp.asarray(np.zeros(100, "f4")))
        with hfa.emulator.late_streams(20_000):
            with type(array).stream:
                array.array[...] = 3
            hfa.tofile(array, file)
        assert (np.fromfile(file, "f4") == 3).all()

    def test_makes_the_new_arrays(self, file: Any) -> None:
        kind = exchanging()
        got = hfa.fromfile(file, "f4", shape=(10, 10), like=kind(cp.empty(1, "f4")))
        assert type(got) is kind
        assert got.array.shape == (10, 10)
        assert device_bytes(got.array) == random_bytes(400)

    def test_the_device_that_it_names_counts(self, file: Any) -> None:
        array = exchanging()(cp.empty(100, "f4"), device=(1, 0))
        with pytest.raises(hfa.MemoryTypeError, match="host memory"):
            hfa.fromfile(file, "f4", out=array)

    def test_pytorchs(self, file: Any) -> None:
        torch = pytest.importorskip("torch")
        if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            pytest.skip("this PyTorch has none")
        with pytest.raises(hfa.MemoryTypeError, match=r"torch\.Tensor is host memory"):
            hfa.fromfile(file, "f4", out=torch.empty(100))


class Interface:
    """Only __cuda_array_interface__, as Numba's device arrays."""

    def __init__(self, array: Any, **changes: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.data.ptr, False),
            "strides": None if array.flags.c_contiguous else array.strides,
            "version": 3,
            "stream": None,
            **changes,
        }


class TestCudaArrayInterface:
    def test_reads_and_writes(self, file: Any) -> None:
        array = Interface(cp.empty((10, 10), "f4"))
        hfa.fromfile(file, "f4", out=array)
        assert device_bytes(array.array) == random_bytes(400)
        hfa.tofile(array, file)
        with hfa.register(array) as buffer, hfa.open(file) as opened:
            assert opened.read(buffer) == 400

    def test_strides(self, file: Any) -> None:
        x = cp.asarray(np.zeros((100, 2), "f4"))
        hfa.fromfile(file, "f4", out=Interface(x[:, 1]))
        assert device_bytes(x[:, 1]) == random_bytes(400)
        assert not x[:, 0].any()

    @pytest.mark.emulated
    @pytest.mark.parametrize("stream", [1, "own"])
    def test_its_stream_is_waited_for(self, file: Any, stream: Any) -> None:
        own = cp.cuda.Stream(non_blocking=True) if stream == "own" else cp.cuda.Stream.null
        x = cp.asarray(np.zeros(100, "f4"))
        cp.cuda.Device().synchronize()
        with hfa.emulator.late_streams(20_000):
            with own:
                x[...] = 3
            hfa.tofile(Interface(x, stream=own.ptr or 1), file)
        assert (np.fromfile(file, "f4") == 3).all()

    def test_what_it_says_is_kept(self, file: Any) -> None:
        x = cp.asarray(np.zeros(100, "f4"))
        with pytest.raises(ValueError, match="read-only"):
            hfa.fromfile(file, "f4", out=Interface(x, data=(x.data.ptr, True)))
        for changes, error, words in (
            ({"mask": x}, TypeError, "mask"),
            ({"typestr": ">f4"}, TypeError, ">f4"),
            ({"strides": (6,)}, TypeError, "multiples"),
            ({"stream": 0}, ValueError, "stream 0"),
            ({"shape": (1 << 40,)}, hfa.MemoryTypeError, "beyond"),
            ({"data": (np.zeros(100).ctypes.data, False)}, hfa.MemoryTypeError, "does not know"),
        ):
            with pytest.raises(error, match=words):
                hfa.tofile(Interface(x, **changes), file)
        assert file.read_bytes() == random_bytes(400)

    def test_nothing(self, make_file: Any) -> None:
        array = Interface(cp.empty(1, "f4"), shape=(0, 3), data=(0, False))
        hfa.tofile(array, make_file(b"1234"))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An array library that only takes over what others made, as JAX does."""
    module: Any = types.ModuleType("frozen")

    class Array:
        __module__ = "frozen"

        def __init__(self, exporter: Any) -> None:
            self.kept = cp.from_dlpack(exporter)

        def __dlpack__(self, **kwargs: Any) -> object:
            return self.kept.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.kept.__dlpack_device__()

        def __array_namespace__(self) -> Any:
            return module

    module.Array = Array
    module.from_dlpack = Array
    module.zeros = lambda shape: Array(cp.asarray(np.zeros(shape)))
    monkeypatch.setitem(sys.modules, "frozen", module)
    return module


def allocations() -> int:
    """Device allocations of the emulated device, once garbage is gone."""
    gc.collect()
    cp.get_default_memory_pool().free_all_blocks()
    return hfa.emulator.live()["device allocations"]


class TestFromDlpack:
    @pytest.mark.parametrize("what", ["array", "module", "type"])
    def test_new_arrays_are_taken_over(self, file: Any, library: Any, what: str) -> None:
        likes = {"array": library.zeros(1), "module": library, "type": library.Array}
        got = hfa.fromfile(file, "f4", shape=(4, 25), like=likes[what])
        assert type(got) is library.Array
        assert (got.kept.shape, got.kept.dtype) == ((4, 25), np.dtype("f4"))
        assert device_bytes(got.kept) == random_bytes(400)

    def test_fortran_order_records_and_text(self, file: Any, library: Any, make_file: Any) -> None:
        got = hfa.fromfile(file, "f4", shape=(4, 25), order="F", like=library)
        want = np.frombuffer(random_bytes(400), "f4").reshape((4, 25), order="F")
        assert device_bytes(got.kept) == want.tobytes()
        fields = hfa.fromfile(file, [("a", "u1"), ("b", "<i2"), ("c", "u1")], like=library)
        records = np.frombuffer(random_bytes(400), [("a", "u1"), ("b", "<i2"), ("c", "u1")])
        assert (cp.asnumpy(fields["b"].kept) == records["b"]).all()
        text = hfa.fromfile(make_file(b"1 2 3"), "i4", sep=" ", like=library)
        assert cp.asnumpy(text.kept).tolist() == [1, 2, 3]

    @pytest.mark.emulated
    def test_the_memory_goes_with_the_array(self, file: Any, library: Any) -> None:
        like = library.zeros(1)
        before = allocations()
        got = [hfa.fromfile(file, "f4", like=like) for _ in range(3)]
        assert allocations() == before + 3
        got.clear()
        assert allocations() == before

    @pytest.mark.emulated
    def test_a_failed_read_keeps_nothing(self, file: Any, library: Any) -> None:
        like = library.zeros(1)
        before = allocations()
        with hfa.emulator.faults(errno=(5, 1)), pytest.raises(OSError):
            hfa.fromfile(file, "f4", like=like, path="library")
        assert allocations() == before

    def test_without_from_dlpack(self, file: Any) -> None:
        with pytest.raises(hfa.MemoryTypeError, match=r"from_dlpack.*out="):
            hfa.fromfile(file, "f4", like=Exporter(cp.empty(1, "f4")))

    def test_unversioned_for_old_consumers(self, file: Any, library: Any) -> None:
        seen: list[Any] = []

        def from_dlpack(exporter: Any) -> Any:
            for ask in ({}, {"max_version": (1, 1)}):
                capsule = exporter.__dlpack__(**ask)
                seen.append("versioned" in repr(capsule))
            return library.Array(exporter)

        library.from_dlpack = from_dlpack
        hfa.fromfile(file, "f4", like=library)
        assert seen == [False, True]

    def test_jax_on_a_host_and_jax_arrays_as_targets(self, file: Any) -> None:
        jnp = pytest.importorskip("jax.numpy")
        with pytest.raises(hfa.MemoryTypeError, match="host memory"):
            hfa.fromfile(file, "f4", like=jnp.zeros(1))
        with pytest.raises(hfa.MemoryTypeError, match="host memory"):
            hfa.fromfile(file, "f4", like=sys.modules["jax"])

    def test_arrays_that_never_change_are_no_targets(self, file: Any) -> None:
        kind = type("ArrayImpl", (Exporter,), {"__module__": "jaxlib.xla_extension"})
        with pytest.raises(ValueError, match="never changes"):
            hfa.fromfile(file, "f4", out=kind(cp.empty(100, "f4")))
