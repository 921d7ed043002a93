// Atomic operations: of the whole host, hence of every scope.
#pragma once

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <class T>
using hipemu_word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

template <class T, class Change>
static inline T hipemu_update(T* address, Change change) {
    using Word = hipemu_word<T>;
    Word* word = (Word*)address;
    Word old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(word, &old,
                                        hipemu_bits<Word>((T)change(hipemu_bits<T>(old))), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return hipemu_bits<T>(old);
}

#define HIPEMU_ARITHMETIC(T)                                                                     \
    static inline T atomicAdd(T* p, T v) { return hipemu_update(p, [=](T o) { return o + v; }); } \
    static inline T atomicSub(T* p, T v) { return hipemu_update(p, [=](T o) { return o - v; }); } \
    static inline T atomicMin(T* p, T v) {                                                       \
        return hipemu_update(p, [=](T o) { return v < o ? v : o; });                             \
    }                                                                                            \
    static inline T atomicMax(T* p, T v) {                                                       \
        return hipemu_update(p, [=](T o) { return o < v ? v : o; });                             \
    }                                                                                            \
    static inline T atomicExch(T* p, T v) { return hipemu_update(p, [=](T) { return v; }); }     \
    static inline T unsafeAtomicAdd(T* p, T v) { return atomicAdd(p, v); }                       \
    static inline T atomicAdd_block(T* p, T v) { return atomicAdd(p, v); }                       \
    static inline T atomicAdd_system(T* p, T v) { return atomicAdd(p, v); }
#define HIPEMU_BITWISE(T)                                                                        \
    static inline T atomicAnd(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }   \
    static inline T atomicOr(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }     \
    static inline T atomicXor(T* p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); }
#define HIPEMU_CAS(T)                                                                            \
    static inline T atomicCAS(T* p, T expected, T v) {                                           \
        __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
        return expected;                                                                         \
    }
HIPEMU_ARITHMETIC(int)
HIPEMU_ARITHMETIC(unsigned)
HIPEMU_ARITHMETIC(unsigned long)
HIPEMU_ARITHMETIC(unsigned long long)
HIPEMU_ARITHMETIC(float)
HIPEMU_ARITHMETIC(double)
HIPEMU_BITWISE(int)
HIPEMU_BITWISE(unsigned)
HIPEMU_BITWISE(unsigned long)
HIPEMU_BITWISE(unsigned long long)
HIPEMU_CAS(int)
HIPEMU_CAS(unsigned)
HIPEMU_CAS(unsigned long)
HIPEMU_CAS(unsigned long long)
HIPEMU_CAS(unsigned short)
#undef HIPEMU_ARITHMETIC
#undef HIPEMU_BITWISE
#undef HIPEMU_CAS
static inline unsigned atomicInc(unsigned* p, unsigned limit) {
    return hipemu_update(p, [=](unsigned o) { return o >= limit ? 0u : o + 1; });
}
static inline unsigned atomicDec(unsigned* p, unsigned limit) {
    return hipemu_update(p, [=](unsigned o) { return o == 0 || o > limit ? limit : o - 1; });
}
