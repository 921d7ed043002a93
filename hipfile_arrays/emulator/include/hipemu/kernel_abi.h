// What a compiled kernel and the emulated runtime share. Plain C layout, no library.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hipemu_index {
    unsigned x, y, z;
};

// Where a kernel's thread is. The runtime switches the pointer with the thread.
struct hipemu_context {
    hipemu_index thread, block, block_dim, grid_dim;
    char* dynamic_shared;
};

// One kernel, or (with `run` null) one device variable named by an expression.
struct hipemu_kernel {
    void (*run)(void** arguments);
    void* address;
    const char* name;
    unsigned argument_count;
    const unsigned* sizes;
    const unsigned* alignments;
};

struct hipemu_module {
    unsigned wave;
    hipemu_kernel* const* begin;
    hipemu_kernel* const* end;
};

extern "C" {
extern __thread hipemu_context* hipemu_current __attribute__((tls_model("initial-exec")));
void hipemu_block_barrier(void);
// A barrier of the wave to which each lane brings 8 bytes: answers what every lane brought, and the
// mask of the lanes that came.
const uint64_t* hipemu_warp_exchange(uint64_t mine, uint64_t* present);
}
