// Transfers that the calling thread does alone, as one piece: small ones (one pread and one copy:
// nothing that needs a second thread or stream is quicker), and those that are handed to the file
// library whole.
#pragma once

#include "engine.hpp"

namespace hfa {

// Small: up to this many bytes.
inline constexpr std::int64_t kSmall = 64 * 1024;

struct OneRequest {
    OpenFile& file;
    Direction direction;
    const Runtime& runtime;
    int device;
    Stream stream;
    Piece piece;                 // Library, or Buffered with at most kSmall bytes
    Registration* registration;  // holds the memory, or null
    bool exact;                  // a file that has less leaves the device memory as it is
};

// Bytes of the range that the file did not have. Throws Error. The caller's stream comes first, and
// the bytes have arrived on return.
std::int64_t run_one(const OneRequest& request);

}  // namespace hfa
