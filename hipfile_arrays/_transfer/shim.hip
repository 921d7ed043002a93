// The device half of the shim: items from one layout, byte order and type to another, in one pass.
//
// One source for hiprtc, NVRTC, clang and the emulated device. It includes nothing, because not
// every hiprtc finds headers, and assumes no wave size. Only what is asked for is instantiated:
// kernels.py appends one `extern "C"` kernel that calls one of the three functions at the end.
//
// A *scalar* is what a byte order and a cast apply to (a complex item is two). A *group* is K
// scalars that lie together on both sides; one thread moves a group at a time. CuPy compiles with
// "flush denormals": so conversions that meet subnormal floats work on their bits.

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

// ---- Memory: groups of scalars, at addresses aligned to no more than is known.

__device__ inline Bits8 swapped(Bits8 x) { return x; }
__device__ inline Bits16 swapped(Bits16 x) { return (Bits16)((x >> 8) | (x << 8)); }
__device__ inline Bits32 swapped(Bits32 x) {
    return (x >> 24) | ((x >> 8) & 0xff00u) | ((x << 8) & 0xff0000u) | (x << 24);
}
__device__ inline Bits64 swapped(Bits64 x) {
    return ((Bits64)swapped((Bits32)x) << 32) | swapped((Bits32)(x >> 32));
}
__device__ inline Bits128 swapped(Bits128 x) { return {swapped(x.high), swapped(x.low)}; }

template <class T, int K>
struct Group {
    T scalars[K];
};

template <class To, class From, int K>
__device__ inline void convert(Group<To, K>& to, const Group<From, K>& from) {
#pragma unroll
    for (int k = 0; k < K; ++k) to.scalars[k] = Cast<To>::from(from.scalars[k]);
}
// The same type needs no cast: bits are moved, NaN payloads and odd bools included.
template <class Same, int K>
__device__ inline void convert(Group<Same, K>& to, const Group<Same, K>& from) {
    // Scalar by scalar: as one struct, clang kept groups of 16 bytes in scratch memory on CDNA.
#pragma unroll
    for (int k = 0; k < K; ++k) to.scalars[k] = from.scalars[k];
}

// Align is a power of two, at most 16 and at most the group's size.
template <class T, int K, int Align, bool Swap>
union Memory {
    static const int bytes = (int)sizeof(T) * K;
    static const int part_bytes = (int)sizeof(T) / Parts<T>::count;
    typedef typename BitsOf<part_bytes>::Type Part;
    typedef typename BitsOf<Align>::Type Word;

    Group<T, K> group;
    Part parts[bytes / part_bytes];
    Word words[bytes / Align];

    __device__ void swap() {
        if (!Swap) return;
#pragma unroll
        for (int i = 0; i < bytes / part_bytes; ++i) parts[i] = swapped(parts[i]);
    }
    __device__ void load(const char* address) {
        const Word* from = reinterpret_cast<const Word*>(address);
#pragma unroll
        for (int i = 0; i < bytes / Align; ++i) words[i] = from[i];
        swap();
    }
    __device__ void store(char* address) {
        swap();
        Word* to = reinterpret_cast<Word*>(address);
#pragma unroll
        for (int i = 0; i < bytes / Align; ++i) to[i] = words[i];
    }
};

// ---- Index -> addresses.

// Quotient by a number known at launch: a multiplication (Granlund and Montgomery; n < 2^31).
struct Divisor {
    Bits32 value, magic, shift;
    __device__ Bits32 quotient(Bits32 n) const {
        return ((Bits32)(((Bits64)n * magic) >> 32) + n) >> shift;
    }
};

// Strides in bytes per step of the axis; the last axis is the fastest.
template <int N>
struct Axes {
    Offset dst[N], src[N];
    Divisor size[N];
};

template <int N>
struct Place {
    Offset dst, src;
    Bits32 last, before_last;  // indices on the last two axes

    __device__ Place(Bits32 index, const Axes<N>& axes) : dst(0), src(0), last(0), before_last(0) {
#pragma unroll
        for (int axis = N - 1; axis >= 0; --axis) {
            Bits32 here = index;
            if (axis > 0) {
                const Bits32 rest = axes.size[axis].quotient(index);
                here = index - rest * axes.size[axis].value;
                index = rest;
            }
            if (axis == N - 1) last = here;
            if (axis == N - 2) before_last = here;
            dst += (Offset)here * axes.dst[axis];
            src += (Offset)here * axes.src[axis];
        }
    }
};

// ---- The three functions.

// Move `groups` groups, each from its place to its place. In place is fine: a thread stores only
// where it has loaded.
template <class Dst, class Src, int K, int DstAlign, int SrcAlign, bool DstSwap, bool SrcSwap,
          int N>
__device__ void copy_groups(char* dst, const char* src, Bits32 groups, const Axes<N>& axes) {
    // Several loads under way for each thread hide the memory's latency.
    const int batch = 4;
    const Bits32 block = batch * blockDim.x;
    for (Bits32 first = blockIdx.x * block + threadIdx.x; first < groups;
         first += gridDim.x * block) {
        Memory<Src, K, SrcAlign, SrcSwap> from[batch];
        Offset places[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            const Bits32 index = first + i * blockDim.x;
            if (index < groups) {
                const Place<N> place(index, axes);
                places[i] = place.dst;
                from[i].load(src + place.src);
            }
        }
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            if (first + i * blockDim.x < groups) {
                Memory<Dst, K, DstAlign, DstSwap> to;
                convert(to.group, from[i].group);
                to.store(dst + places[i]);
            }
        }
    }
}

// The two axes of a tile: how many items, and the strides in bytes.
struct TileAxis {
    Offset dst, src;
    Bits32 size;
};

// Transposing copies: `rows` is the axis on which dst lies together, `columns` the one on which src
// does. Tiles of Edge x Edge groups pass through shared memory, so that both sides are coalesced.
// The last two axes of `axes` count the tiles along columns and rows. Blocks have 256 threads.
template <class Dst, class Src, int K, int DstAlign, int SrcAlign, bool DstSwap, bool SrcSwap,
          int N, int Edge>
__device__ void copy_tiles(char* dst, const char* src, Bits32 tiles, const Axes<N>& axes,
                           TileAxis columns, TileAxis rows) {
    // A word more than a row, so that a column's items lie in different banks.
    const int row_groups = Edge + (sizeof(Group<Dst, K>) < 4 ? 4 / sizeof(Group<Dst, K>) : 1);
    __shared__ Group<Dst, K> tile[Edge][row_groups];
    const Bits32 x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (Bits32 index = blockIdx.x; index < tiles; index += gridDim.x) {
        const Place<N> place(index, axes);
        const Bits32 columns_left = columns.size - place.before_last * Edge;
        const Bits32 rows_left = rows.size - place.last * Edge;
#pragma unroll 4
        for (Bits32 row = y; row < Edge; row += 8) {
#pragma unroll
            for (Bits32 column = x; column < Edge; column += 32) {
                if (row < rows_left && column < columns_left) {
                    Memory<Src, K, SrcAlign, SrcSwap> from;
                    from.load(src + place.src + row * rows.src + column * columns.src);
                    convert(tile[row][column], from.group);
                }
            }
        }
        __syncthreads();
#pragma unroll 4
        for (Bits32 column = y; column < Edge; column += 8) {
#pragma unroll
            for (Bits32 row = x; row < Edge; row += 32) {
                if (row < rows_left && column < columns_left) {
                    Memory<Dst, K, DstAlign, DstSwap> to;
                    to.group = tile[row][column];
                    to.store(dst + place.dst + row * rows.dst + column * columns.dst);
                }
            }
        }
        __syncthreads();
    }
}

template <class Word>
__device__ inline void copy_row(char* dst, const char* src, Bits64 bytes, Bits64 first,
                                Bits64 step) {
    Word* to = reinterpret_cast<Word*>(dst);
    const Word* from = reinterpret_cast<const Word*>(src);
    for (Bits64 i = first; i < bytes / sizeof(Word); i += step) to[i] = from[i];
}

// Row i of dst, packed, is the `row_bytes` bytes at `offsets[i]` of src. The offsets are only known
// here, so each row finds its own alignment. threadIdx.y and blockIdx.x choose the row, threadIdx.x
// and blockIdx.y its words.
__device__ inline void copy_rows(char* dst, const char* src, const Offset* offsets, Bits64 rows,
                                 Bits64 row_bytes) {
    const Bits64 first = (Bits64)blockIdx.y * blockDim.x + threadIdx.x;
    const Bits64 step = (Bits64)gridDim.y * blockDim.x;
    for (Bits64 row = (Bits64)blockIdx.x * blockDim.y + threadIdx.y; row < rows;
         row += (Bits64)gridDim.x * blockDim.y) {
        char* to = dst + row * row_bytes;
        const char* from = src + offsets[row];
        const Bits64 together =
            reinterpret_cast<Bits64>(to) | reinterpret_cast<Bits64>(from) | row_bytes;
        if (together % 16 == 0)
            copy_row<Bits128>(to, from, row_bytes, first, step);
        else if (together % 4 == 0)
            copy_row<Bits32>(to, from, row_bytes, first, step);
        else
            copy_row<Bits8>(to, from, row_bytes, first, step);
    }
}
