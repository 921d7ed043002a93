#!/bin/sh
# Compile the device kernels for AMD GPUs, without one, and fail where a kernel spills registers or
# uses scratch memory: it would be several times slower there, and no test of values would show it.
#
#     tools/compile_amd_targets.sh [CLANG]
#
# Needs clang 19 or newer (gfx1201) and Python with this package's sources; neither ROCm nor HIP
# headers: the kernels use so few names of HIP that the prelude below supplies them.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
clang=${1:-${CLANG:-clang++-19}}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

cat >"$build/hip_names.h" <<'EOF'
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
struct Index3 { unsigned x, y, z; };
__device__ inline Index3 thread_index() {
    return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), 0};
}
__device__ inline Index3 block_index() {
    return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), 0};
}
__device__ inline Index3 block_size() {
    return {__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(), 1};
}
__device__ inline Index3 grid_size() {
    return {__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
            __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(), 1};
}
#define threadIdx thread_index()
#define blockIdx block_index()
#define blockDim block_size()
#define gridDim grid_size()
__device__ inline void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
    __builtin_amdgcn_s_barrier();
}
EOF

# One file a kernel: a plain copy, swaps, casts, many axes, unaligned fields, tiles, rows.
PYTHONPATH="$root" ${PYTHON:-python3} "$root/tools/kernel_samples.py" "$build"

failed=0
for target in gfx90a gfx942 gfx1100 gfx1201; do
    number=0
    for source in "$build"/*.hip; do
        name=$(basename "$source" .hip)
        assembly="$build/$name.$target.s"
        "$clang" -x hip --offload-arch=$target --cuda-device-only -nogpulib -nogpuinc -O3 \
            -Wall -Wextra -Werror -Wno-unused-command-line-argument \
            -include "$build/hip_names.h" -S "$source" -o "$assembly" || { failed=1; continue; }
        if grep -E '\.(vgpr|sgpr)_spill_count: +[1-9]|\.private_segment_fixed_size: +[1-9]' \
            "$assembly"; then
            echo "$name for $target spills registers or uses scratch memory" >&2
            failed=1
        fi
        number=$((number + 1))
    done
    echo "$target: $number kernels"
done
exit $failed
