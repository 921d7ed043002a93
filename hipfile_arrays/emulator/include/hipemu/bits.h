// Integer and bit intrinsics, reinterpretation, clocks.
#pragma once

template <class To, class From>
static inline To hipemu_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= ((x >> i) & 1u) << (31 - i);
    return reversed;
}
static inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
// Bytes picked from two words, a nibble each, as NVIDIA's and AMD's instruction does.
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned pick = (selector >> (4 * i)) & 7u;
        result |= (unsigned)((both >> (8 * pick)) & 0xffu) << (8 * i);
    }
    return result;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31));
}

static inline float __int_as_float(int x) { return hipemu_bits<float>(x); }
static inline int __float_as_int(float x) { return hipemu_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return hipemu_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return hipemu_bits<unsigned>(x); }
static inline double __longlong_as_double(long long x) { return hipemu_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return hipemu_bits<long long>(x); }
static inline int __double2hiint(double x) { return (int)(hipemu_bits<uint64_t>(x) >> 32); }
static inline int __double2loint(double x) { return (int)hipemu_bits<uint64_t>(x); }
static inline double __hiloint2double(int high, int low) {
    return hipemu_bits<double>((uint64_t)(uint32_t)high << 32 | (uint32_t)low);
}
static inline int __mul24(int a, int b) { return a * b; }
static inline int __mulhi(int a, int b) { return (int)(((int64_t)a * b) >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)(((uint64_t)a * b) >> 32);
}
static inline long long __mul64hi(long long a, long long b) {
    return (long long)(((__int128)a * b) >> 64);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline long long clock64() { return (long long)__builtin_ia32_rdtsc(); }
static inline long long wall_clock64() { return (long long)__builtin_ia32_rdtsc(); }
