"""The second transfer on an allocation registers it; no entry outlives the memory it is of."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import cupy as cp
import numpy as np
import pytest
from exporters import Exporter
from support import device_bytes, random_bytes

import hipfile_arrays as hfa

SIZE = 100_000


@pytest.fixture
def file(make_file: Any) -> Iterator[hfa.File]:
    with hfa.open(make_file(random_bytes(SIZE)), "r+") as opened:
        yield opened


@pytest.fixture
def allocator() -> Iterator[Any]:
    """Every array its own allocation, given back to the runtime at once: no pool."""
    cp.cuda.set_allocator(cp.cuda.memory.alloc)
    cp.get_default_memory_pool().free_all_blocks()
    cp.cuda.set_allocator(lambda nbytes: cp.cuda.MemoryPointer(cp.cuda.Memory(nbytes), 0))
    yield
    cp.cuda.set_allocator(cp.get_default_memory_pool().malloc)


def automatic() -> list[hfa.BufferInfo]:
    return [buffer for buffer in hfa.buffers() if buffer.automatic]


class TestWhen:
    def test_the_second_transfer_registers_the_allocation(self, file: Any) -> None:
        x = cp.empty(SIZE, "u1")
        file.read(x)
        assert automatic() == []
        file.read(x)
        (buffer,) = automatic()
        assert buffer.pointer <= x.data.ptr
        assert x.data.ptr + SIZE <= buffer.pointer + buffer.nbytes
        assert device_bytes(x) == random_bytes(SIZE)

    @pytest.mark.emulated
    @pytest.mark.parametrize("path", ["staged", "library", "direct"])
    def test_then_there_are_no_lookups_any_more(
        self, file: Any, counters: Any, path: Any, tmp_path: Any
    ) -> None:
        x = cp.empty(4096 * 20, "u1")
        looked_up = []
        for _ in range(4):
            before = counters().get("hipPointerGetAttributes", 0)
            file.read(x, path=path)
            looked_up.append(counters().get("hipPointerGetAttributes", 0) - before)
        # The library looks for itself as long as it does not know the buffer.
        assert looked_up[0] >= looked_up[1] >= 1
        assert looked_up[2:] == [0, 0]

    @pytest.mark.emulated
    def test_an_array_that_is_not_registered_costs_one_lookup(
        self, file: Any, counters: Any
    ) -> None:
        for call in (
            lambda x: file.read(x),
            lambda x: file.write(x),
            lambda x: hfa.fromfile(file, out=x),
            lambda x: hfa.tofile(x, file),
            lambda x: file.read_async(x).result(),
        ):
            x = cp.empty(SIZE, "u1")
            before = counters().get("hipPointerGetAttributes", 0)
            with hfa.config.override(path="staged", auto_register=False):
                call(x)
            assert counters()["hipPointerGetAttributes"] - before == 1

    @pytest.mark.emulated
    def test_memory_that_is_only_staged_does_not_start_the_library(
        self, file: Any, counters: Any
    ) -> None:
        x = cp.empty(SIZE, "u1")
        for _ in range(3):
            file.read(x, path="staged")
        assert "hipFileBufRegister" not in counters()
        assert not automatic()[0].in_library
        file.read(x, path="library")
        assert counters()["hipFileBufRegister"] == 1
        assert automatic()[0].in_library

    def test_all_slices_profit(self, file: Any) -> None:
        x = cp.empty((10, SIZE // 10), "u1")
        for row in x:
            file.read(row)
        assert automatic()[0].hits == 9
        with hfa.config.override(path="library"):
            file.read(x[3:].reshape(-1)[7:], offset=5)
        assert automatic()[0].hits == 10

    def test_arrays_of_one_allocation_share_it(self, file: Any) -> None:
        x = cp.empty(1 << 20, "u1")
        parts = [cp.ndarray(SIZE, "u1", x.data + start) for start in (0, SIZE)]
        for part in (*parts, *parts, *parts):
            file.read(part)
        (buffer,) = automatic()
        del x, parts[0]
        file.read(parts[0])
        assert automatic()[0].hits == buffer.hits + 1

    @pytest.mark.parametrize("changes", [{"auto_register": False}, {"auto_register_count": 0}])
    def test_opting_out(self, file: Any, changes: Any) -> None:
        x = cp.empty(SIZE, "u1")
        with hfa.config.override(**changes):
            for _ in range(3):
                file.read(x)
            assert automatic() == []

    def test_opting_out_later_ends_it(self, file: Any) -> None:
        x = cp.empty(SIZE, "u1")
        file.read(x)
        file.read(x)
        with hfa.config.override(auto_register=False):
            file.read(x)
            assert automatic() == []

    def test_what_cannot_be_watched_is_never_registered(self, file: Any) -> None:
        x = cp.empty(SIZE, "u1")
        memory = cp.cuda.UnownedMemory(x.data.ptr, SIZE, None)
        unowned = cp.ndarray(SIZE, "u1", cp.cuda.MemoryPointer(memory, 0))
        for array in (Exporter(x), unowned):
            for _ in range(3):
                file.read(array)
        assert automatic() == []

    def test_the_users_own_registration_goes_first(self, file: Any) -> None:
        x = cp.empty(SIZE, "u1")
        file.read(x)
        file.read(x)
        assert len(automatic()) == 1
        with hfa.register(x[10:100]) as buffer:
            assert buffer.registered
            assert automatic() == []
            for _ in range(3):
                file.read(x)
            assert automatic() == []
        file.read(x)
        file.read(x)
        assert len(automatic()) == 1


class TestBounds:
    def test_by_count_the_one_not_used_for_longest_goes(self, file: Any, allocator: Any) -> None:
        arrays = [cp.empty(SIZE, "u1") for _ in range(4)]
        with hfa.config.override(auto_register_count=3):
            for x in arrays[:3]:
                file.read(x)
                file.read(x)
            file.read(arrays[0])
            file.read(arrays[3])
            file.read(arrays[3])
        found = {buffer.pointer for buffer in automatic()}
        assert found == {arrays[number].data.ptr for number in (0, 2, 3)}

    def test_by_bytes(self, file: Any, allocator: Any) -> None:
        arrays = [cp.empty(SIZE, "u1") for _ in range(3)]
        large = cp.empty(10 * SIZE, "u1")
        with hfa.config.override(auto_register_bytes=5 * SIZE // 2):
            for x in (*arrays, large):
                file.read(x[:SIZE])
                file.read(x[:SIZE])
        found = {buffer.pointer for buffer in automatic()}
        assert found == {x.data.ptr for x in arrays[1:]}

    @pytest.mark.emulated
    def test_what_is_in_use_stays(self, file: Any, allocator: Any) -> None:
        x, y = (cp.empty(SIZE, "u1") for _ in range(2))
        file.read(x)
        file.read(x)
        stream, go_on = cp.cuda.Stream(non_blocking=True), threading.Event()
        stream.launch_host_func(lambda _: go_on.wait(20), None)
        with hfa.config.override(auto_register_count=1):
            transfer = file.read_async(x, stream=stream.ptr)
            file.read(y)
            file.read(y)
            assert [buffer.pointer for buffer in automatic()] == [x.data.ptr]
            go_on.set()
            transfer.result()
            file.read(y)
            file.read(y)
            assert [buffer.pointer for buffer in automatic()] == [y.data.ptr]


class TestLives:
    """Memory that goes takes its registration along, before it can come again."""

    def test_freed_at_the_owners_end(self, file: Any, allocator: Any) -> None:
        x = cp.empty(SIZE, "u1")
        file.read(x, path="library")
        file.read(x, path="library")
        view = x[10:]
        del x
        assert len(automatic()) == 1  # the view keeps the memory
        del view
        assert automatic() == []

    @pytest.mark.emulated
    def test_the_library_forgets_it_before_the_runtime_does(
        self, file: Any, allocator: Any
    ) -> None:
        x = cp.empty(SIZE, "u1")
        for _ in range(3):
            file.read(x, path="library")
        assert hfa.emulator.live()["registered buffers"] == 1
        del x
        assert hfa.emulator.live()["registered buffers"] == 0

    def test_returned_to_a_pool_and_handed_out_again(self, file: Any) -> None:
        for _ in range(5):
            x = cp.empty(SIZE, "u1")
            file.read(x)
            file.read(x)
            assert len(automatic()) == 1
            del x
            assert automatic() == []

    def test_a_neighbour_in_the_pools_block_is_none_of_it(self, file: Any) -> None:
        pool = cp.get_default_memory_pool()
        pool.free_all_blocks()
        block = cp.empty(4 * SIZE, "u1")
        del block
        x, y = cp.empty(SIZE, "u1"), cp.empty(SIZE, "u1")
        before = device_bytes(y)
        file.read(x, path="library")
        file.read(x, path="library")
        file.read(x, path="library")
        assert device_bytes(y) == before
        del x
        for _ in range(3):
            file.read(y, path="library")
        assert device_bytes(y) == random_bytes(SIZE)

    def test_a_pool_is_trimmed(self, file: Any) -> None:
        pool = cp.get_default_memory_pool()
        pool.free_all_blocks()
        for size in (SIZE, 2 * SIZE, SIZE // 2):
            x = cp.empty(size, "u1")
            for _ in range(3):
                file.read(x[: SIZE // 2])
            del x
            pool.free_all_blocks()
            assert automatic() == []

    def test_memory_that_is_given_back_by_hand(self, file: Any, allocator: Any) -> None:
        # Against the rules, but it happens: the owner lives on without its memory.
        pool = cp.cuda.MemoryPool()
        x = cp.ndarray(SIZE, "u1", pool.malloc(SIZE))
        file.read(x, path="library")
        file.read(x, path="library")
        assert len(automatic()) == 1
        x.data.mem.free()
        pool.free_all_blocks()
        y = cp.ndarray(2 * SIZE, "u1", pool.malloc(2 * SIZE))
        z = cp.empty(SIZE, "u1")
        for array in (y[:SIZE], z):
            for _ in range(3):
                file.read(array, path="library")
            assert device_bytes(array) == random_bytes(SIZE)

    def test_freed_while_another_thread_reads(self, file: Any, allocator: Any) -> None:
        stop = threading.Event()
        errors: list[BaseException] = []

        def churn() -> None:
            try:
                while not stop.is_set():
                    x = cp.empty(SIZE, "u1")
                    for _ in range(4):
                        file.read(x, path="library")
                    assert device_bytes(x) == random_bytes(SIZE)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=churn) for _ in range(4)]
        for thread in threads:
            thread.start()
        stop.wait(2)
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert automatic() == []

    def test_closed_by_another_thread_just_before_it_is_used(self, file: Any) -> None:
        x, y = cp.empty(SIZE, "u1"), cp.empty(SIZE, "u1")
        stop = threading.Event()
        errors: list[BaseException] = []

        def close() -> None:
            while not stop.is_set():
                with hfa.config.override(auto_register=False):
                    file.read(x, path="staged")

        thread = threading.Thread(target=close)
        thread.start()
        try:
            for _ in range(300):
                file.read(x, path="library")
                file.read(y, path="library")
        except BaseException as error:
            errors.append(error)
        stop.set()
        thread.join()
        assert errors == []
        assert device_bytes(x) == device_bytes(y) == random_bytes(SIZE)

    @pytest.mark.emulated
    def test_registered_by_others_it_is_used_and_left_alone(
        self, file: Any, counters: Any, allocator: Any
    ) -> None:
        x = cp.empty(SIZE, "u1")
        with hfa.emulator.faults(entries={"hipFileBufRegister": (1, 5023)}):
            for _ in range(3):
                file.read(x, path="library")
        assert automatic()[0].in_library
        del x
        assert "hipFileBufDeregister" not in counters()

    @pytest.mark.emulated
    def test_a_library_that_refuses_costs_nothing(self, file: Any) -> None:
        x = cp.empty(SIZE, "u1")
        with hfa.emulator.faults(entries={"hipFileBufRegister": (1, 5036)}):
            for _ in range(3):
                file.read(x, path="library")
        assert not automatic()[0].in_library
        assert device_bytes(x) == random_bytes(SIZE)

    @pytest.mark.emulated
    def test_fork_and_exit(self, tmp_path: Any) -> None:
        script = """
import os, sys
from hipfile_arrays import emulator
emulator.activate()
import cupy as cp, hipfile_arrays as hfa
x = cp.zeros(4096, "u1")
x.tofile(sys.argv[1])
file = hfa.open(sys.argv[1])
for _ in range(3):
    file.read(x, path="library")
assert hfa.buffers()[0].automatic
pid = os.fork()
if pid == 0:
    try:
        file.read(x, path="library")
    except hfa.StateError:
        del x
        os._exit(0)
    os._exit(3)
assert os.waitpid(pid, 0)[1] == 0
assert len(hfa.buffers()) == 1
assert file.read(x) == 4096
"""
        run = subprocess.run(
            [sys.executable, "-W", "error", "-c", script, str(tmp_path / "f")],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (run.returncode, run.stderr) == (0, "")


class TestAdversaries:
    """Exporters that lie. They are unknown here, so they are looked up every time."""

    def test_another_pointer_every_time(self, file: Any) -> None:
        arrays = [cp.asarray(np.zeros(SIZE, "u1")) for _ in range(3)]

        class Moving(Exporter):
            def capsule(self) -> object:
                self._pointer = arrays[len(self.calls) % 3].data.ptr
                return super().capsule()

        moving = Moving(arrays[0])
        for _ in range(6):
            file.read(moving)
        assert all(device_bytes(x) == random_bytes(SIZE) for x in arrays)
        assert automatic() == []

    def test_a_size_that_is_a_lie(self, file: Any, allocator: Any) -> None:
        x = cp.empty(4096, "u1")
        file.read(x)
        file.read(x)
        assert len(automatic()) == 1
        with pytest.raises(hfa.MemoryTypeError, match="beyond"):
            file.read(Exporter(x, shape=(SIZE,)))

    def test_dies_during_the_transfer(self, file: Any) -> None:
        x = cp.empty(SIZE, "u1")
        pointer = x.data.ptr
        held = [x]
        del x

        handed_out: list[int] = []

        def progress(done: int, total: int) -> None:
            held.clear()
            gc.collect()
            handed_out.append(cp.empty(SIZE, "u1").data.ptr)

        for _ in range(2):
            file.read(held[0], path="staged", progress=progress)
            assert pointer not in handed_out
            held.append(cp.empty(SIZE, "u1"))
            pointer = held[0].data.ptr
            handed_out.clear()
