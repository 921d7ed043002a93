// Faults of emulated file I/O, asked for by HIPFILE_ARRAYS_EMULATOR_FAULTS or through Python:
//
//   short_io=k       every transfer of more than k bytes moves only k (rounded to whole blocks on
//   the
//                    fast path)
//   eintr=k          every k-th transfer is interrupted: -1 with errno EINTR
//   errno=e@n        the n-th transfer from now fails with errno e
//   limit=b          a call moves at most b bytes (hipFile: 2 GiB - 4 KiB)
//   eligible=1       every file system counts as one that the fast path takes
//
// Words are separated by ';'. A word "hipName@n=code" belongs to that entry point (state.cpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace hipemu {

struct IoFaults {
    std::atomic<std::int64_t> short_io{0};
    std::atomic<std::int64_t> eintr_every{0};
    std::atomic<std::int64_t> calls{0};
    std::atomic<int> error_number{0};
    std::atomic<std::int64_t> error_at{0};
    std::atomic<std::int64_t> limit{0x7ffff000};
    std::atomic<bool> eligible{false};

    static IoFaults& instance();
    void set(const std::string& word);
    void clear();
    // Counts a transfer; an errno to fail with, or 0.
    int enter();
    // How much of `size` bytes may move now, in multiples of `block`.
    std::int64_t allowed(std::int64_t size, std::int64_t block) const;
};

}  // namespace hipemu
