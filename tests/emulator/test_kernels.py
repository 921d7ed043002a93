"""CuPy's own kernels and raw ones, on the emulated device, against NumPy."""

from __future__ import annotations

import threading

import numpy as np
import pytest

cp = pytest.importorskip("cupy")

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]

SOURCE = r"""
struct Line { float slope; int count; double offset; };
extern "C" __global__ void line(float* y, const float* x, int n, Line l) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = l.slope * x[i] * l.count + l.offset;
}
extern "C" __global__ void reversed(int* x, int n) {
    extern __shared__ int copy[];
    copy[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = copy[n - 1 - threadIdx.x];
}
extern "C" __global__ void total(const int* x, int* sum, int n) {
    __shared__ int parts[1024 / 32];
    int value = threadIdx.x < n ? x[threadIdx.x] : 0;
    for (int d = warpSize / 2; d > 0; d /= 2) value += __shfl_down(value, d);
    if (threadIdx.x % warpSize == 0) parts[threadIdx.x / warpSize] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        int all = 0;
        for (int i = 0; i < (blockDim.x + warpSize - 1) / warpSize; ++i) all += parts[i];
        atomicAdd(sum, all);
    }
}
extern "C" __global__ void early(int* x) {
    if (threadIdx.x % 2) return;
    __syncthreads();
    x[threadIdx.x] = 1;
}
extern "C" __global__ void even_ballot(unsigned long long* votes) {
    if (threadIdx.x % 2 == 0) votes[threadIdx.x] = __ballot(1);
}
__constant__ int table[4];
extern "C" __global__ void looked_up(int* x) { x[threadIdx.x] = table[threadIdx.x]; }
namespace scales {
template <class T, int N> __global__ void scale(T* x) { x[threadIdx.x] *= N; }
}
"""


@pytest.fixture(scope="module")
def module():
    names = ["scales::scale<float, 3>", "scales::scale<double, 2>"]
    return cp.RawModule(code=SOURCE, options=("-std=c++17",), name_expressions=names)


def test_a_struct_is_passed_by_value(module) -> None:
    kind = np.dtype([("slope", "f4"), ("count", "i4"), ("offset", "f8")], align=True)
    x = cp.asarray(np.arange(1000, dtype="f4"))
    y = cp.empty_like(x)
    arguments = (y, x, np.int32(1000), np.array((2, 3, 0.5), kind))
    module.get_function("line")((8,), (128,), arguments)
    np.testing.assert_array_equal(y.get(), np.arange(1000, dtype="f4") * 6 + np.float32(0.5))


def test_dynamic_shared_memory_and_barriers(module) -> None:
    x = cp.asarray(np.arange(1024, dtype="i4"))
    module.get_function("reversed")((1,), (1024,), (x, np.int32(1024)), shared_mem=4096)
    np.testing.assert_array_equal(x.get(), np.arange(1024)[::-1])


@pytest.mark.parametrize("threads", [1, 31, 64, 65, 200, 1024])
def test_shuffles_and_static_shared_memory(module, threads: int) -> None:
    x = cp.asarray(np.arange(threads, dtype="i4"))
    total = cp.asarray(np.zeros(1, "i4"))
    module.get_function("total")((1,), (threads,), (x, total, np.int32(threads)))
    assert total.get()[0] == np.arange(threads).sum()


def test_nobody_waits_for_threads_that_returned(module) -> None:
    x = cp.asarray(np.zeros(128, "i4"))
    module.get_function("early")((1,), (128,), (x,))
    np.testing.assert_array_equal(x.get(), np.arange(128) % 2 == 0)


def test_a_divergent_wave_votes_with_those_present(module) -> None:
    votes = cp.asarray(np.zeros(32, "u8"))
    module.get_function("even_ballot")((1,), (32,), (votes,))
    np.testing.assert_array_equal(votes.get()[::2], np.full(16, 0x55555555, "u8"))


def test_constants_and_templates(module) -> None:
    table = cp.ndarray(4, "i4", module.get_global("table"))
    table.set(np.array([9, 8, 7, 6], "i4"))
    x = cp.empty(4, "i4")
    module.get_function("looked_up")((1,), (4,), (x,))
    np.testing.assert_array_equal(x.get(), [9, 8, 7, 6])
    y = cp.asarray(np.arange(4, dtype="f4"))
    module.get_function("scales::scale<float, 3>")((1,), (4,), (y,))
    np.testing.assert_array_equal(y.get(), [0, 3, 6, 9])


def test_an_error_in_the_source_is_told_with_its_line() -> None:
    kernel = cp.RawKernel('extern "C" __global__ void f(int* x) {\n *x = missing; }', "f")
    with pytest.raises(cp.cuda.compiler.CompileException, match=r":2:.*'missing' was not declared"):
        kernel((1,), (1,), (cp.empty(1, "i4"),))


@pytest.mark.parametrize("grid, block", [((1,), (1025,)), ((1,), (2, 2, 512))])
def test_impossible_dimensions_are_refused(module, grid, block) -> None:
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="hipErrorInvalidValue"):
        module.get_function("early")(grid, block, (cp.empty(1, "i4"),))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_of_every_dtype(dtype: str) -> None:
    host = (np.arange(60) % 7).astype(dtype).reshape(3, 4, 5)
    device = cp.asarray(host)
    np.testing.assert_array_equal((device + device).get(), host + host)
    np.testing.assert_array_equal((device == device[::-1]).get(), host == host[::-1])
    np.testing.assert_array_equal(cp.ascontiguousarray(device.T[::-1, 1:]).get(), host.T[::-1, 1:])
    np.testing.assert_allclose(device.sum(axis=1).get(), host.sum(axis=1))
    np.testing.assert_array_equal(device.astype("f8" if dtype[0] != "c" else "c16").get(), host)


def test_reductions_scans_and_made_kernels() -> None:
    host = np.random.default_rng(0).random(5000)
    device = cp.asarray(host)
    np.testing.assert_allclose(device.sum().get(), host.sum())
    np.testing.assert_allclose(cp.cumsum(device).get(), host.cumsum())
    assert bool((device < 1).all())
    square = cp.ElementwiseKernel("T x", "T y", "y = x * x", "square")
    norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    np.testing.assert_array_equal(square(device).get(), host * host)
    np.testing.assert_allclose(norm(device).get(), np.sqrt((host * host).sum()))
    cp.testing.assert_array_equal(device, host)


def test_many_streams_and_threads() -> None:
    arrays = [cp.asarray(np.full(100, i, "i4")) for i in range(100)]
    cp.cuda.Device().synchronize()

    def work(mine) -> None:
        for x in mine:
            with cp.cuda.Stream(non_blocking=True) as stream:
                for _ in range(3):
                    x += 1
                stream.synchronize()

    threads = [threading.Thread(target=work, args=(arrays[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, x in enumerate(arrays):
        np.testing.assert_array_equal(x.get(), i + 3)
