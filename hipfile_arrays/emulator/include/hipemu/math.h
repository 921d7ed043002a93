// The device's mathematics in the global namespace.
#pragma once

#define HIPEMU_STD(name) using std::name;
HIPEMU_STD(isnan) HIPEMU_STD(isinf) HIPEMU_STD(isfinite) HIPEMU_STD(signbit) HIPEMU_STD(abs)
HIPEMU_STD(fabs) HIPEMU_STD(pow) HIPEMU_STD(exp) HIPEMU_STD(log) HIPEMU_STD(sqrt) HIPEMU_STD(sin)
HIPEMU_STD(cos) HIPEMU_STD(tan) HIPEMU_STD(sinh) HIPEMU_STD(cosh) HIPEMU_STD(tanh) HIPEMU_STD(asin)
HIPEMU_STD(acos) HIPEMU_STD(atan) HIPEMU_STD(atan2) HIPEMU_STD(asinh) HIPEMU_STD(acosh)
HIPEMU_STD(atanh) HIPEMU_STD(floor) HIPEMU_STD(ceil) HIPEMU_STD(trunc) HIPEMU_STD(rint)
HIPEMU_STD(round) HIPEMU_STD(fmod) HIPEMU_STD(log1p) HIPEMU_STD(expm1) HIPEMU_STD(log2)
HIPEMU_STD(log10) HIPEMU_STD(exp2) HIPEMU_STD(hypot) HIPEMU_STD(ldexp) HIPEMU_STD(frexp)
HIPEMU_STD(modf) HIPEMU_STD(copysign) HIPEMU_STD(nextafter) HIPEMU_STD(fmin) HIPEMU_STD(fmax)
HIPEMU_STD(erf) HIPEMU_STD(erfc) HIPEMU_STD(lgamma) HIPEMU_STD(tgamma) HIPEMU_STD(cbrt)
HIPEMU_STD(fma) HIPEMU_STD(remainder) HIPEMU_STD(ilogb) HIPEMU_STD(logb)
#undef HIPEMU_STD

template <class A, class B>
using hipemu_common =
    std::enable_if_t<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value,
                     std::common_type_t<A, B>>;

template <class A, class B, class T = hipemu_common<A, B>>
static inline constexpr T min(A a, B b) {
    if constexpr (std::is_floating_point<T>::value) {
        return (T)__builtin_fmin((double)a, (double)b);
    } else {
        return (T)b < (T)a ? (T)b : (T)a;
    }
}
template <class A, class B, class T = hipemu_common<A, B>>
static inline constexpr T max(A a, B b) {
    if constexpr (std::is_floating_point<T>::value) {
        return (T)__builtin_fmax((double)a, (double)b);
    } else {
        return (T)a < (T)b ? (T)b : (T)a;
    }
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }

// The C library declares functions of these names: renamed, after its header.
#define __expf hipemu_expf
#define __logf hipemu_logf
#define __sinf hipemu_sinf
#define __cosf hipemu_cosf
#define __powf hipemu_powf
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline float __int2float_rn(int x) { return (float)x; }
template <class T>
static inline T __ldg(const T* address) {
    return *address;
}
