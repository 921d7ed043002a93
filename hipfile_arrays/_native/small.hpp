// Small transfers: one pread and one copy. Nothing that needs a second thread, a second stream or a
// call of the file library is quicker.
#pragma once

#include "engine.hpp"

namespace hfa {

// Up to this many bytes.
inline constexpr std::int64_t kSmall = 64 * 1024;

struct SmallRequest {
    OpenFile& file;
    Direction direction;
    const Runtime& runtime;
    int device;
    Stream stream;
    std::int64_t offset;
    std::uintptr_t pointer;
    std::int64_t nbytes;         // at most kSmall
    Registration* registration;  // holds the memory, or null
    bool exact;                  // a file that has less leaves the device memory as it is
};

// Bytes of the range that the file did not have. Throws Error. The caller's stream comes first, and
// the bytes have arrived on return.
std::int64_t run_small(const SmallRequest& request);

}  // namespace hfa
