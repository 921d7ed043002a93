// The device half of the shim: items from one layout, byte order and type to another, in one pass.
//
// One source for hiprtc, NVRTC, clang and the emulated device, after scalars.hip. It includes
// nothing, because not every hiprtc finds headers, and assumes no wave size. Only what is asked for
// is instantiated: kernels.py appends one `extern "C"` kernel that calls one of the functions here.
//
// A *group* is K scalars that lie together on both sides; one thread moves a group at a time.

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

// ---- The functions that kernels call.

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

// As copy_tiles, for items of 1 or 2 bytes: both sides are accessed by words of 4 bytes, of Per
// items each, and a thread turns blocks of Per x Per items in its registers. src lies together on
// `columns`, dst on `rows`; all other strides and both addresses are multiples of 4. Tiles have
// 32 x 32 words.
template <class Item, int N>
__device__ void copy_word_tiles(char* dst, const char* src, Bits32 tiles, const Axes<N>& axes,
                                TileAxis columns, TileAxis rows) {
    const int Per = 4 / sizeof(Item);
    const int Bits = 8 * sizeof(Item);
    const Bits32 Edge = 32 * Per;
    __shared__ Bits32 tile[Edge][33];
    const Bits32 x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (Bits32 index = blockIdx.x; index < tiles; index += gridDim.x) {
        const Place<N> place(index, axes);
        const Bits32 columns_left = columns.size - place.before_last * Edge;
        const Bits32 rows_left = rows.size - place.last * Edge;
        for (Bits32 word = y; word < 32; word += 8) {
            Bits32 from[Per];
#pragma unroll
            for (int i = 0; i < Per; ++i) {
                const Bits32 row = word * Per + i, column = x * Per;
                const char* at = src + place.src + row * rows.src + column * sizeof(Item);
                from[i] = 0;
                if (row >= rows_left) continue;
                if (column + Per <= columns_left) {
                    from[i] = *reinterpret_cast<const Bits32*>(at);
                } else {
                    for (int j = 0; j < Per; ++j) {
                        if (column + j >= columns_left) break;
                        from[i] |= (Bits32) reinterpret_cast<const Item*>(at)[j] << (Bits * j);
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < Per; ++j) {
                Bits32 turned = 0;
#pragma unroll
                for (int i = 0; i < Per; ++i)
                    turned |= (Bits32)(Item)(from[i] >> (Bits * j)) << (Bits * i);
                tile[x * Per + j][word] = turned;
            }
        }
        __syncthreads();
#pragma unroll 4
        for (Bits32 column = y; column < Edge; column += 8) {
            const Bits32 row = x * Per;
            char* at = dst + place.dst + row * sizeof(Item) + column * columns.dst;
            if (column >= columns_left) break;
            if (row + Per <= rows_left) {
                *reinterpret_cast<Bits32*>(at) = tile[column][x];
            } else {
                for (int i = 0; i < Per; ++i) {
                    if (row + i >= rows_left) break;
                    reinterpret_cast<Item*>(at)[i] = (Item)(tile[column][x] >> (Bits * i));
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
