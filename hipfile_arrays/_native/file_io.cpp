#include "file_io.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace hfa {
namespace {

// Linux moves at most this many bytes in one call.
constexpr std::int64_t kMost = 0x7ffff000;

template <class Call>
Moved fully(Call call, const char* name, char* buffer, std::int64_t nbytes, std::int64_t offset) {
    Moved moved;
    while (moved.nbytes < nbytes) {
        iovec part{buffer + moved.nbytes,
                   static_cast<std::size_t>(std::min(nbytes - moved.nbytes, kMost))};
        const ssize_t count = call(&part, offset + moved.nbytes);
        if (count > 0) {
            moved.nbytes += count;
        } else if (count == 0) {
            return moved;
        } else if (errno != EINTR) {
            moved.failure = errno_failure(errno, name);
            return moved;
        }
    }
    return moved;
}

}  // namespace

Moved read_fully(int fd, void* buffer, std::int64_t nbytes, std::int64_t offset) {
    return fully([fd](iovec* part, std::int64_t at) { return preadv(fd, part, 1, at); }, "preadv",
                 static_cast<char*>(buffer), nbytes, offset);
}

Moved write_fully(int fd, const void* buffer, std::int64_t nbytes, std::int64_t offset) {
    // iovec has no const form; pwritev only reads.
    Moved moved = fully([fd](iovec* part, std::int64_t at) { return pwritev(fd, part, 1, at); },
                        "pwritev", static_cast<char*>(const_cast<void*>(buffer)), nbytes, offset);
    if (moved.nbytes < nbytes && !moved.failure) moved.failure = errno_failure(EIO, "pwritev");
    return moved;
}

}  // namespace hfa
