"""Whose memory is taken, and whose is refused; old and new DLPack exporters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from typing import Any

import cupy as cp
import numpy as np
import pytest
from exporters import Exporter, OldestExporter, OldExporter
from support import device_bytes, random_bytes

import hipfile_arrays as hfa


@pytest.fixture
def file(make_file: Any) -> Any:
    return make_file(random_bytes(400))


def memory_kinds() -> list[Any]:
    def pinned() -> Any:
        memory = cp.cuda.alloc_pinned_memory(400)
        return Exporter(cp.empty(100, "f4"), pointer=memory.ptr), memory

    def managed() -> Any:
        return cp.ndarray(100, "f4", cp.cuda.malloc_managed(400)), None

    def host() -> Any:
        array = np.empty(100, "f4")
        return Exporter(cp.empty(100, "f4"), pointer=array.ctypes.data), array

    def freed() -> Any:
        pointer = cp.cuda.runtime.malloc(1 << 20)
        cp.cuda.runtime.free(pointer)
        return Exporter(cp.empty(100, "f4"), pointer=pointer), None

    return [
        pytest.param(pinned, "pinned host memory", id="pinned"),
        pytest.param(managed, "managed memory", id="managed"),
        pytest.param(host, "does not know", id="host"),
        pytest.param(freed, "does not know", id="freed"),
    ]


class TestWrongMemory:
    """The pointer decides, whatever the exporter says; the message says what it is."""

    @pytest.mark.parametrize(("make", "words"), memory_kinds())
    def test_is_refused_by_every_call(self, file: Any, make: Any, words: str) -> None:
        before = file.read_bytes()
        array, _keep = make()
        with hfa.open(file, "r+") as opened:
            for use in (
                lambda: hfa.fromfile(file, "f4", out=array),
                lambda: hfa.tofile(array, file, offset=0),
                lambda: hfa.register(array),
                lambda: opened.read(array),
                lambda: opened.write(array),
            ):
                with pytest.raises(hfa.MemoryTypeError, match=words) as caught:
                    use()
                assert isinstance(caught.value, TypeError)
        assert file.read_bytes() == before
        assert float(cp.asnumpy(cp.asarray(np.ones(3))).sum()) == 3  # no sticky error for CuPy

    @pytest.mark.parametrize(
        ("device", "words"),
        [
            ((1, 0), r"host memory \(kDLCPU\)"),
            ((3, 0), "kDLCUDAHost"),
            ((11, 0), "kDLROCMHost"),
            ((13, 0), "kDLCUDAManaged"),
            ((7, 0), "kDLVulkan"),
            ((99, 0), "device type 99"),
        ],
    )
    def test_exporters_that_say_so_themselves(self, file: Any, device: Any, words: str) -> None:
        with pytest.raises(hfa.MemoryTypeError, match=words):
            hfa.fromfile(file, "f4", out=Exporter(cp.empty(100, "f4"), device=device))

    def test_host_arrays_of_every_library(self, file: Any) -> None:
        with pytest.raises(hfa.MemoryTypeError, match=r"numpy\.ndarray is host memory.*cupy"):
            hfa.fromfile(file, "f4", out=np.empty(100, "f4"))
        torch = pytest.importorskip("torch")
        with pytest.raises(hfa.MemoryTypeError, match=r"torch\.Tensor is host memory"):
            hfa.fromfile(file, "f4", out=torch.empty(100))
        with pytest.raises(hfa.MemoryTypeError, match="host memory"):
            hfa.tofile(torch.empty(100), file)

    @pytest.mark.parametrize("thing", [None, 3, b"bytes", [1, 2], object()])
    def test_what_is_no_array(self, thing: Any) -> None:
        with pytest.raises(hfa.MemoryTypeError, match="exports neither DLPack"):
            hfa.register(thing)

    def test_beyond_the_allocation(self, file: Any) -> None:
        pointer = cp.cuda.runtime.malloc(4096)
        try:
            inside = Exporter(cp.empty(4096, "u1"), pointer=pointer, shape=(4096,))
            hfa.register(inside).close()
            for start, length in ((0, 4097), (1, 4096), (4095, 2)):
                beyond = Exporter(cp.empty(1, "u1"), pointer=pointer + start, shape=(length,))
                with pytest.raises(hfa.MemoryTypeError, match="beyond their allocation"):
                    hfa.register(beyond)
                with pytest.raises(hfa.MemoryTypeError, match="beyond their allocation"):
                    hfa.tofile(beyond, file)
        finally:
            cp.cuda.runtime.free(pointer)

    def test_null_pointer(self) -> None:
        with pytest.raises(ValueError):
            hfa.register(Exporter(cp.empty(3, "f4"), pointer=0))

    def test_wrong_device_number(self, file: Any) -> None:
        kind, _ = cp.empty(1).__dlpack_device__()
        with pytest.raises(hfa.DeviceMismatchError, match="device 1.*device 0"):
            hfa.fromfile(file, "f4", out=Exporter(cp.empty(100, "f4"), device=(kind, 1)))

    @pytest.mark.emulated
    def test_several_segments_are_never_taken_as_one(self, file: Any) -> None:
        pointer = hfa.emulator.allocate_segments(4096, 3)
        try:
            whole = Exporter(cp.empty(1, "u1"), pointer=pointer, shape=(3 * 4096,))
            with pytest.raises(hfa.MemoryTypeError, match="beyond their allocation"):
                hfa.register(whole)
            part = Exporter(cp.empty(1, "u1"), pointer=pointer + 4096, shape=(400,))
            hfa.fromfile(file, "u1", out=part)
        finally:
            for i in range(3):
                cp.cuda.runtime.free(pointer + i * 4096)


class TestExporters:
    """Old and new, each consumed exactly once."""

    @pytest.mark.parametrize("kind", [Exporter, OldExporter, OldestExporter])
    def test_reads_and_writes(self, file: Any, kind: Any) -> None:
        x = cp.empty(100, "f4")
        exporter = kind(x)
        hfa.fromfile(file, "f4", out=exporter)
        assert device_bytes(x) == file.read_bytes()
        assert exporter.deleted == len([c for c in exporter.calls if c is not None]) > 0
        hfa.tofile(exporter, file)
        assert file.read_bytes() == device_bytes(x)

    def test_stream_number_is_legal_for_the_device(self, file: Any) -> None:
        exporter = Exporter(cp.empty(100, "f4"))
        hfa.fromfile(file, "f4", out=exporter)
        # DLPack: on ROCm 0 is the default stream and 1 and 2 are invalid; on CUDA 1 is, and 0 is
        # ambiguous.
        assert exporter.calls[-1]["stream"] in (
            (None, 0) if exporter.device[0] == 10 else (None, 1)
        )

    def test_null_strides_mean_c_order(self, file: Any) -> None:
        x = cp.empty((10, 10), "f4")
        hfa.fromfile(file, "f4", out=Exporter(x, null_strides=True))
        assert device_bytes(x) == file.read_bytes()

    @pytest.mark.parametrize("versioned", [True, False])
    def test_byte_offset_counts(self, make_file: Any, versioned: bool) -> None:
        x = cp.asarray(np.zeros(100, "u1"))
        exporter = Exporter(x, versioned=versioned, byte_offset=40, shape=(20,))
        hfa.fromfile(make_file(b"a" * 20), "u1", out=exporter)
        assert device_bytes(x) == bytes(40) + b"a" * 20 + bytes(40)

    def test_axes_of_one_item_may_have_any_stride(self, file: Any) -> None:
        x = cp.empty(100, "f4")
        exporter = Exporter(x, shape=(1, 100, 1), strides=(77, 1, -5))
        hfa.fromfile(file, "f4", out=exporter)
        assert device_bytes(x) == file.read_bytes()

    def test_empty_arrays_may_have_no_pointer(self, make_file: Any) -> None:
        exporter = Exporter(cp.empty(1, "f4"), shape=(0, 3), pointer=0)
        hfa.fromfile(make_file(b""), "f4", out=exporter)
        hfa.tofile(exporter, make_file(b""))

    @pytest.mark.parametrize(("flags", "words"), [(1, "read-only"), (2, "copy"), (3, "read-only")])
    def test_flags_refuse_targets_but_not_sources(self, file: Any, flags: int, words: str) -> None:
        exporter = Exporter(cp.asarray(np.zeros(100, "f4")), flags=flags)
        with pytest.raises(ValueError, match=words):
            hfa.fromfile(file, "f4", out=exporter)
        hfa.tofile(exporter, file)
        assert file.read_bytes() == bytes(400)

    def test_broadcast_arrays_are_no_targets(self, file: Any) -> None:
        with pytest.raises(ValueError, match="share memory"):
            hfa.fromfile(file, "f4", out=cp.broadcast_to(cp.empty(10, "f4"), (10, 10)))

    def test_other_major_version_is_refused(self, file: Any) -> None:
        with pytest.raises(BufferError, match="major version"):
            hfa.fromfile(file, "f4", out=Exporter(cp.empty(100, "f4"), major=2))

    def test_capsule_used_before_is_refused(self, file: Any) -> None:
        x = cp.empty(100, "f4")
        exporter = Exporter(x)
        once = exporter.capsule()
        exporter.capsule = lambda: once  # type: ignore[method-assign]
        hfa.fromfile(file, "f4", out=exporter)
        with pytest.raises(TypeError, match="used once"):
            hfa.fromfile(file, "f4", out=exporter)
        assert exporter.deleted == 1

    def test_exporters_own_errors_reach_the_user(self, file: Any) -> None:
        class Broken(Exporter):
            def __dlpack__(self, **kwargs: Any) -> object:
                raise RuntimeError("cannot export a tensor that requires grad")

        with pytest.raises(RuntimeError, match="requires grad"):
            hfa.fromfile(file, "f4", out=Broken(cp.empty(100, "f4")))

    @pytest.mark.parametrize(
        ("dtype", "words"),
        [((4, 4, 1), "4 bits"), ((2, 32, 4), "4-lane"), ((77, 32, 1), "type code 77")],
    )
    def test_types_without_a_meaning_here(self, file: Any, dtype: Any, words: str) -> None:
        with pytest.raises(TypeError, match=words):
            hfa.fromfile(file, "f4", out=Exporter(cp.empty(100, "f4"), dtype=dtype))

    @pytest.mark.parametrize(
        ("dtype", "name"), [((4, 16, 1), "bfloat16"), ((10, 8, 1), "float8_e4m3fn")]
    )
    def test_ml_dtypes_travel_as_bytes(self, file: Any, dtype: Any, name: str) -> None:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        size = np.dtype(getattr(ml_dtypes, name)).itemsize
        x = cp.empty(400 // size, f"u{size}")
        hfa.fromfile(file, out=Exporter(x, dtype=dtype))
        assert device_bytes(x) == file.read_bytes()


class TestDevices:
    """Arrays on device 1 while device 0 is current, and the caller's device stays what it was."""

    pytestmark = pytest.mark.skipif(
        cp.cuda.runtime.getDeviceCount() < 2, reason="needs two devices"
    )

    @pytest.mark.parametrize("path_taken", ["library", "auto", "staged"])
    def test_from_another_current_device(self, make_file: Any, path_taken: Any) -> None:
        data = random_bytes(300_000)
        file = make_file(data)
        with cp.cuda.Device(1):
            x = cp.empty(len(data), "u1")
        assert cp.cuda.Device().id == 0
        hfa.fromfile(file, out=x, path=path_taken)
        assert cp.cuda.Device().id == 0
        with cp.cuda.Device(1):
            assert device_bytes(x) == data
        y = hfa.fromfile(file, "u1", like=x, path=path_taken)
        assert y.device.id == 1
        hfa.tofile(x, file, path=path_taken)
        with hfa.register(x):
            assert hfa.buffers()[0].device == 1
        assert cp.cuda.Device().id == 0

    def test_from_a_fresh_thread(self, make_file: Any) -> None:
        data = random_bytes(300_000)
        file = make_file(data)
        with cp.cuda.Device(1):
            x = cp.empty(len(data), "u1")
        seen: list[Any] = []

        def read() -> None:
            try:
                hfa.fromfile(file, out=x)
                seen.append(cp.cuda.Device().id)
            except BaseException as error:
                seen.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        assert seen == [0]
        with cp.cuda.Device(1):
            assert device_bytes(x) == data

    def test_current_device_is_kept_after_an_exception(self, make_file: Any) -> None:
        with cp.cuda.Device(1):
            x = cp.empty(8, "u1")
        with hfa.open(make_file(b"1234")) as file, pytest.raises(hfa.ShortReadError):
            file.read(x)
        assert cp.cuda.Device().id == 0


def test_missing_file_is_told_before_any_library_is_asked(tmp_path: Any) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        hfa.fromfile(tmp_path / "absent", "f4", like=cp)
    assert caught.value.filename == str(tmp_path / "absent") or os.fspath(
        caught.value.filename
    ) == os.fspath(tmp_path / "absent")


@pytest.mark.emulated
def test_two_hip_runtimes_are_refused_with_both_paths(tmp_path: Any) -> None:
    original = hfa.emulator.library_folder() / "libamdhip64.so.7"
    copy = tmp_path / "libamdhip64.so.7"
    shutil.copy(original, copy)
    script = """
import ctypes, sys
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp, hipfile_arrays as hfa
ctypes.CDLL(sys.argv[1])
x = cp.empty(4, "u1")
for _ in range(2):
    try:
        hfa.tofile(x, sys.argv[2])
    except hfa.StateError as error:
        print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", script, copy, tmp_path / "out"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("two HIP runtimes") == 2
    assert run.stdout.count(str(copy)) == run.stdout.count(str(original.resolve())) == 2
