// Scalars of the device kernels: their types, and the conversions between them, NumPy's astype bit
// for bit. A *scalar* is what a byte order and a cast apply to (a complex item is two). CuPy
// compiles with "flush denormals": so conversions that meet subnormal floats work on their bits.
//
// The first half of one source; shim.hip, which moves scalars, is the second. It includes nothing,
// because not every hiprtc finds headers.

typedef unsigned char Bits8;
typedef unsigned short Bits16;
typedef unsigned int Bits32;
typedef unsigned long long Bits64;
typedef long long Offset;

struct alignas(16) Bits128 {
    Bits64 low, high;
};

template <int Bytes>
struct BitsOf;
template <>
struct BitsOf<1> {
    typedef Bits8 Type;
};
template <>
struct BitsOf<2> {
    typedef Bits16 Type;
};
template <>
struct BitsOf<4> {
    typedef Bits32 Type;
};
template <>
struct BitsOf<8> {
    typedef Bits64 Type;
};
template <>
struct BitsOf<16> {
    typedef Bits128 Type;
};

template <class To, class From>
__device__ inline To reinterpret(From value) {
    union {
        From from;
        To to;
    } both;
    both.from = value;
    return both.to;
}

// ---- Scalar types. Moved ones are bits; cast ones have a value.

struct Bool {
    Bits8 bits;
};
struct Half {
    Bits16 bits;
};
struct BFloat {
    Bits16 bits;
};
// Floats stay bits until their value is needed: a flushed subnormal would be lost.
struct Float {
    Bits32 bits;
};
struct Double {
    Bits64 bits;
};
template <class Part>
struct Complex {
    Part real, imag;
};

// What a scalar of type T is made of: P parts of S bytes, each with its own byte order.
template <class T>
struct Parts {
    static const int count = 1;
};
template <class T>
struct Parts<Complex<T>> {
    static const int count = 2;
};

// ---- Conversions, NumPy's astype.

// The rounded (to nearest, ties to even) value of `bits >> shift`, for 0 < shift < 64.
__device__ inline Bits64 rounded_shift(Bits64 bits, int shift) {
    const Bits64 kept = bits >> shift;
    const Bits64 rest = bits & ((1ull << shift) - 1);
    const Bits64 half = 1ull << (shift - 1);
    return kept + ((rest > half || (rest == half && (kept & 1))) ? 1 : 0);
}

// Narrow a finite or infinite float of (exponent, mantissa) bits to a smaller format, rounding
// once. NaNs keep their leading payload bits, and are set quiet where `quiet` asks for it.
template <int FromExponent, int FromMantissa, int ToExponent, int ToMantissa, bool Quiet>
__device__ inline Bits64 narrow(Bits64 bits) {
    const int lost = FromMantissa - ToMantissa;
    const Bits64 from_top = (1ull << FromExponent) - 1, to_top = (1ull << ToExponent) - 1;
    const Bits64 sign = (bits >> (FromExponent + FromMantissa)) << (ToExponent + ToMantissa);
    const Bits64 exponent = (bits >> FromMantissa) & from_top;
    const Bits64 mantissa = bits & ((1ull << FromMantissa) - 1);
    if (exponent == from_top) {
        if (mantissa == 0) return sign | (to_top << ToMantissa);
        Bits64 payload = mantissa >> lost;
        if (Quiet) payload |= 1ull << (ToMantissa - 1);
        if (payload == 0) payload = 1;
        return sign | (to_top << ToMantissa) | payload;
    }
    const int bias = (int)(from_top >> 1) - (int)(to_top >> 1);
    const int target = (int)exponent - bias;
    if (target >= (int)to_top) return sign | (to_top << ToMantissa);
    if (target > 0) {
        // A carry out of the mantissa runs into the exponent, up to infinity: as it should.
        return sign | rounded_shift(((Bits64)target << FromMantissa) | mantissa, lost);
    }
    // Subnormal in the target: the leading one becomes explicit and moves right.
    const Bits64 full = exponent ? mantissa | (1ull << FromMantissa) : mantissa;
    const int shift = lost + 1 - target - (exponent ? 0 : 1);
    return sign | (shift > FromMantissa + 1 ? 0 : rounded_shift(full, shift));
}

// Widen to a larger format: always exact.
template <int FromExponent, int FromMantissa, int ToExponent, int ToMantissa, bool Quiet>
__device__ inline Bits64 widen(Bits64 bits) {
    const int gained = ToMantissa - FromMantissa;
    const Bits64 from_top = (1ull << FromExponent) - 1, to_top = (1ull << ToExponent) - 1;
    const Bits64 sign = (bits >> (FromExponent + FromMantissa)) << (ToExponent + ToMantissa);
    Bits64 exponent = (bits >> FromMantissa) & from_top;
    Bits64 mantissa = bits & ((1ull << FromMantissa) - 1);
    if (exponent == from_top) {
        if (Quiet && mantissa) mantissa |= 1ull << (FromMantissa - 1);
        return sign | (to_top << ToMantissa) | (mantissa << gained);
    }
    const Bits64 bias = (to_top >> 1) - (from_top >> 1);
    if (exponent == 0) {
        if (mantissa == 0) return sign;
        if (FromExponent == ToExponent) return sign | (mantissa << gained);
        exponent = 1;
        while (!(mantissa >> FromMantissa)) {
            mantissa <<= 1;
            --exponent;  // may wrap below zero: the bias brings it back
        }
        mantissa &= (1ull << FromMantissa) - 1;
    }
    return sign | ((exponent + bias) << ToMantissa) | (mantissa << gained);
}

__device__ inline Float to_float(Half x) { return {(Bits32)widen<5, 10, 8, 23, false>(x.bits)}; }
__device__ inline Float to_float(BFloat x) { return {(Bits32)x.bits << 16}; }
__device__ inline Float to_float(Float x) { return x; }
__device__ inline Float to_float(Double x) { return {(Bits32)narrow<11, 52, 8, 23, true>(x.bits)}; }
template <class Int>
__device__ inline Float to_float(Int x) {
    return {reinterpret<Bits32>((float)x)};
}
__device__ inline Float to_float(Bool x) { return to_float((Bits8)(x.bits != 0)); }

template <class To>
struct Cast;  // Cast<To>::from(scalar)

template <class Int>
struct Cast {
    __device__ static Int from(Bool x) { return x.bits != 0; }
    // A subnormal's integer is zero with or without flushing.
    __device__ static Int from(Float x) { return (Int)reinterpret<float>(x.bits); }
    __device__ static Int from(Double x) { return (Int)reinterpret<double>(x.bits); }
    __device__ static Int from(Half x) { return from(to_float(x)); }
    __device__ static Int from(BFloat x) { return from(to_float(x)); }
    template <class T>
    __device__ static Int from(Complex<T> x) {
        return from(x.real);
    }
    template <class Other>
    __device__ static Int from(Other x) {
        return (Int)x;
    }
};

template <>
struct Cast<Bool> {
    __device__ static Bool from(Bool x) { return {(Bits8)(x.bits != 0)}; }
    __device__ static Bool from(Half x) { return {(Bits8)((x.bits & 0x7fff) != 0)}; }
    __device__ static Bool from(BFloat x) { return {(Bits8)((x.bits & 0x7fff) != 0)}; }
    __device__ static Bool from(Float x) { return {(Bits8)((x.bits << 1) != 0)}; }
    __device__ static Bool from(Double x) { return {(Bits8)((x.bits << 1) != 0)}; }
    template <class T>
    __device__ static Bool from(Complex<T> x) {
        return {(Bits8)(from(x.real).bits | from(x.imag).bits)};
    }
    template <class Int>
    __device__ static Bool from(Int x) {
        return {(Bits8)(x != 0)};
    }
};

template <>
struct Cast<Float> {
    template <class T>
    __device__ static Float from(Complex<T> x) {
        return from(x.real);
    }
    template <class T>
    __device__ static Float from(T x) {
        return to_float(x);
    }
};

template <>
struct Cast<Double> {
    __device__ static Double from(Double x) { return x; }
    __device__ static Double from(Float x) { return {widen<8, 23, 11, 52, true>(x.bits)}; }
    __device__ static Double from(Half x) { return {widen<5, 10, 11, 52, false>(x.bits)}; }
    __device__ static Double from(BFloat x) { return from(to_float(x)); }
    __device__ static Double from(Bool x) { return from((Bits8)(x.bits != 0)); }
    template <class T>
    __device__ static Double from(Complex<T> x) {
        return from(x.real);
    }
    template <class Int>
    __device__ static Double from(Int x) {
        return {reinterpret<Bits64>((double)x)};
    }
};

template <>
struct Cast<Half> {
    __device__ static Half from(Half x) { return x; }
    // Straight from double: by way of float it would be rounded twice.
    __device__ static Half from(Double x) { return {(Bits16)narrow<11, 52, 5, 10, false>(x.bits)}; }
    __device__ static Half from(Float x) { return {(Bits16)narrow<8, 23, 5, 10, false>(x.bits)}; }
    template <class T>
    __device__ static Half from(Complex<T> x) {
        return from(x.real);
    }
    template <class T>
    __device__ static Half from(T x) {
        return from(to_float(x));
    }
};

template <>
struct Cast<BFloat> {
    __device__ static BFloat from(BFloat x) { return x; }
    __device__ static BFloat from(Float x) { return {(Bits16)narrow<8, 23, 8, 7, true>(x.bits)}; }
    template <class T>
    __device__ static BFloat from(Complex<T> x) {
        return from(x.real);
    }
    __device__ static BFloat from(Double x) { return {(Bits16)narrow<11, 52, 8, 7, true>(x.bits)}; }
    // Integers by way of float, as ml_dtypes does.
    template <class T>
    __device__ static BFloat from(T x) {
        return from(to_float(x));
    }
};

template <class Part>
struct Cast<Complex<Part>> {
    template <class T>
    __device__ static Complex<Part> from(Complex<T> x) {
        return {Cast<Part>::from(x.real), Cast<Part>::from(x.imag)};
    }
    template <class T>
    __device__ static Complex<Part> from(T x) {
        return {Cast<Part>::from(x), Part{0}};
    }
};
