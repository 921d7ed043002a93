// Vector types: two and four components are aligned as a whole.
#pragma once

#define HIPEMU_VECTOR(T, name)                                                           \
    struct alignas(sizeof(T) * 2) name##2 {                                              \
        T x, y;                                                                          \
    };                                                                                   \
    struct name##3 {                                                                     \
        T x, y, z;                                                                       \
    };                                                                                   \
    struct alignas(sizeof(T) * 4 > 16 ? 16 : sizeof(T) * 4) name##4 {                    \
        T x, y, z, w;                                                                    \
    };                                                                                   \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                    \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }            \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
HIPEMU_VECTOR(float, float)
HIPEMU_VECTOR(double, double)
HIPEMU_VECTOR(int, int)
HIPEMU_VECTOR(unsigned, uint)
HIPEMU_VECTOR(signed char, char)
HIPEMU_VECTOR(unsigned char, uchar)
HIPEMU_VECTOR(short, short)
HIPEMU_VECTOR(unsigned short, ushort)
HIPEMU_VECTOR(long long, longlong)
HIPEMU_VECTOR(unsigned long long, ulonglong)
#undef HIPEMU_VECTOR
