// HIP's keywords and the built-in index variables.
#pragma once

#include "kernel_abi.h"

#define __host__
#define __device__
#define __constant__
#define __managed__
// Markers: the run-time compiler looks for them after preprocessing.
#define __global__ __hipemu_global__
#define __shared__ __hipemu_shared__
#define __launch_bounds__(...)
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define HIP_DYNAMIC_SHARED(type, name) type* name = (type*)hipemu_current->dynamic_shared;

#define threadIdx (hipemu_current->thread)
#define blockIdx (hipemu_current->block)
#define blockDim (hipemu_current->block_dim)
#define gridDim (hipemu_current->grid_dim)

static constexpr int warpSize = __AMDGCN_WAVEFRONT_SIZE;

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
