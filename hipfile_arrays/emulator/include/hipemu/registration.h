// Kernels tell the runtime their argument sizes: deduced by the compiler, no type is ever parsed.
#pragma once

#include <type_traits>
#include <utility>

#include "kernel_abi.h"

template <class Pointer, Pointer value>
struct hipemu_registration;

template <class... Arguments, void (*kernel)(Arguments...)>
struct hipemu_registration<void (*)(Arguments...), kernel> {
    template <size_t... Index>
    static void call(void** arguments, std::index_sequence<Index...>) {
        kernel(*static_cast<std::remove_reference_t<Arguments>*>(arguments[Index])...);
    }
    static void run(void** arguments) { call(arguments, std::index_sequence_for<Arguments...>{}); }
    static constexpr unsigned sizes[] = {(unsigned)sizeof(Arguments)..., 0};
    static constexpr unsigned alignments[] = {(unsigned)alignof(Arguments)..., 0};
    static constexpr hipemu_kernel make(const char* name) {
        return {&run, (void*)kernel, name, sizeof...(Arguments), sizes, alignments};
    }
};

template <class Variable, Variable* variable>
struct hipemu_registration<Variable*, variable> {
    static hipemu_kernel make(const char* name) {
        return {nullptr, (void*)variable, name, 0, nullptr, nullptr};
    }
};

extern "C" {
extern hipemu_kernel* __start_hipemu_kernels[] __attribute__((weak, visibility("hidden")));
extern hipemu_kernel* __stop_hipemu_kernels[] __attribute__((weak, visibility("hidden")));
}

// `extern __shared__ T name[];` outside of a function: where it lies depends on the launch.
template <class T>
struct hipemu_dynamic_shared {
    T* get() const { return reinterpret_cast<T*>(hipemu_current->dynamic_shared); }
    operator T*() const { return get(); }
    template <class U>
    explicit operator U*() const {
        return reinterpret_cast<U*>(get());
    }
    T& operator[](size_t index) const { return get()[index]; }
};
