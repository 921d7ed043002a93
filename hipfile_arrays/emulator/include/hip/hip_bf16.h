#pragma once

struct __hip_bfloat16 {
    unsigned short bits;
    __hip_bfloat16() : bits(0) {}
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
    __hip_bfloat16(T value) : bits(rounded((float)value)) {}
    operator float() const { return hipemu_bits<float>((unsigned)bits << 16); }

    // To nearest, ties to even; a NaN stays one and becomes quiet.
    static unsigned short rounded(float value) {
        unsigned word = hipemu_bits<unsigned>(value);
        if ((word & 0x7fffffff) > 0x7f800000) return (unsigned short)(word >> 16 | 0x40);
        word += 0x7fff + (word >> 16 & 1);
        return (unsigned short)(word >> 16);
    }
};
typedef __hip_bfloat16 hip_bfloat16;
static inline unsigned short __bfloat16_as_ushort(__hip_bfloat16 b) { return b.bits; }
static inline __hip_bfloat16 __ushort_as_bfloat16(unsigned short x) {
    __hip_bfloat16 b;
    b.bits = x;
    return b;
}
static inline float __bfloat162float(__hip_bfloat16 b) { return b; }
static inline __hip_bfloat16 __float2bfloat16(float x) { return x; }
static inline bool __hisnan(__hip_bfloat16 b) { return (b.bits & 0x7fff) > 0x7f80; }
static inline bool __hisinf(__hip_bfloat16 b) { return (b.bits & 0x7fff) == 0x7f80; }
