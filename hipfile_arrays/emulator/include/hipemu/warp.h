// Barriers and exchanges between the threads of a block and the lanes of a wave.
#pragma once

static inline void __syncthreads() { hipemu_block_barrier(); }

static inline int __lane_id() {
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) &
                 (unsigned)(warpSize - 1));
}

// The value of lane `source`; zero from a lane that is not there, as the hardware gives.
template <class T>
static inline T hipemu_from_lane(T mine, int source) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0, present;
    __builtin_memcpy(&bits, &mine, sizeof mine);
    const uint64_t* lanes = hipemu_warp_exchange(bits, &present);
    T result;
    __builtin_memset(&result, 0, sizeof result);
    if (source >= 0 && source < warpSize && ((present >> source) & 1)) {
        __builtin_memcpy(&result, &lanes[source], sizeof result);
    }
    return result;
}

template <class T>
static inline T __shfl(T value, int lane, int width = warpSize) {
    return hipemu_from_lane(value, (__lane_id() & ~(width - 1)) | (lane & (width - 1)));
}
template <class T>
static inline T __shfl_down(T value, unsigned delta, int width = warpSize) {
    const int me = __lane_id();
    const int target = (me & (width - 1)) + (int)delta;
    return hipemu_from_lane(value, target < width ? me + (int)delta : me);
}
template <class T>
static inline T __shfl_up(T value, unsigned delta, int width = warpSize) {
    const int me = __lane_id();
    return hipemu_from_lane(value, (me & (width - 1)) >= (int)delta ? me - (int)delta : me);
}
template <class T>
static inline T __shfl_xor(T value, int mask, int width = warpSize) {
    const int me = __lane_id();
    const int target = me ^ mask;
    const bool inside = (target & ~(width - 1)) == (me & ~(width - 1));
    return hipemu_from_lane(value, inside ? target : me);
}
template <class Mask, class T>
static inline T __shfl_sync(Mask, T value, int lane, int width = warpSize) {
    return __shfl(value, lane, width);
}
template <class Mask, class T>
static inline T __shfl_down_sync(Mask, T value, unsigned delta, int width = warpSize) {
    return __shfl_down(value, delta, width);
}
template <class Mask, class T>
static inline T __shfl_up_sync(Mask, T value, unsigned delta, int width = warpSize) {
    return __shfl_up(value, delta, width);
}
template <class Mask, class T>
static inline T __shfl_xor_sync(Mask, T value, int mask, int width = warpSize) {
    return __shfl_xor(value, mask, width);
}

static inline unsigned long long __ballot(int predicate) {
    uint64_t present;
    const uint64_t* lanes = hipemu_warp_exchange(predicate != 0, &present);
    unsigned long long votes = 0;
    for (int i = 0; i < warpSize; ++i) {
        if (((present >> i) & 1) && lanes[i]) votes |= 1ull << i;
    }
    return votes;
}
static inline int __any(int predicate) { return __ballot(predicate) != 0; }
static inline int __all(int predicate) { return __ballot(!predicate) == 0; }
static inline unsigned long long __activemask() { return __ballot(1); }
template <class Mask>
static inline unsigned long long __ballot_sync(Mask mask, int predicate) {
    return __ballot(predicate) & mask;
}
template <class Mask>
static inline int __any_sync(Mask mask, int predicate) {
    return (__ballot(predicate) & mask) != 0;
}
template <class Mask>
static inline int __all_sync(Mask mask, int predicate) {
    return (__ballot(!predicate) & mask) == 0;
}

// Votes of a whole block. Each counts in memory shared by the block, twice over, so that a fast
// thread's next vote cannot disturb a slow one's reading.
static inline int __syncthreads_count(int predicate) {
    static thread_local int votes;
    __syncthreads();
    votes = 0;
    __syncthreads();
    votes += predicate != 0;
    __syncthreads();
    const int result = votes;
    __syncthreads();
    return result;
}
static inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
static inline int __syncthreads_and(int predicate) { return __syncthreads_count(!predicate) == 0; }

// CuPy's hip_workaround.cuh makes __syncwarp a mere fence, for lanes in lock-step run by hardware.
// Here lanes run one after another: its guard is taken, and this one waits.
#define INCLUDE_GUARD_CUPY_HIP_WORKAROUND_H
static inline void __syncwarp(unsigned long long = ~0ull) {
    uint64_t present;
    hipemu_warp_exchange(0, &present);
}
