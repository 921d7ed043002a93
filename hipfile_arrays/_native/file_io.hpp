// preadv and pwritev until all is moved: EINTR and short counts are the kernel's right, not errors.
#pragma once

#include <cstdint>

#include "check.hpp"

namespace hfa {

struct Moved {
    std::int64_t nbytes = 0;  // less than asked for, without a failure: the file ended
    Failure failure;
};

Moved read_fully(int fd, void* buffer, std::int64_t nbytes, std::int64_t offset);
Moved write_fully(int fd, const void* buffer, std::int64_t nbytes, std::int64_t offset);

}  // namespace hfa
