// 16-bit floating point: built into hiprtc, hence here without an include.
#pragma once

struct __half_raw {
    unsigned short x;
};
struct __half {
    union {
        _Float16 data;
        unsigned short __x;
    };
    __half() : __x(0) {}
    __half(const __half_raw& raw) : __x(raw.x) {}
    __half(_Float16 value) : data(value) {}
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
    __half(T value) : data((_Float16)value) {}
    operator float() const { return (float)data; }
    operator __half_raw() const { return {__x}; }
    __half operator-() const { return __half((_Float16)-data); }
};
typedef __half half;
static inline unsigned short __half_as_ushort(__half h) { return h.__x; }
static inline __half __ushort_as_half(unsigned short x) { return __half(__half_raw{x}); }
static inline float __half2float(__half h) { return (float)h; }
static inline __half __float2half(float x) { return __half(x); }
static inline __half __float2half_rn(float x) { return __half(x); }
static inline __half __double2half(double x) { return __half(x); }
