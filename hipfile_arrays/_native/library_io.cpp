#include "library_io.hpp"

#include <algorithm>
#include <cerrno>

namespace hfa {
namespace {

// What one hipFileRead or cuFileRead moves at most.
constexpr std::int64_t kMost = 0x7ffff000;

}  // namespace

Moved move_by_library(OpenFile& file, Direction direction, Platform platform,
                      Registration* registration, const Piece& piece,
                      const std::function<bool(std::int64_t)>& step) {
    const FileLibrary& library = file_library(platform);
    const FileHandle handle = file.handle(platform);
    const bool reads = direction == Direction::Read;
    const char* const call = reads ? library.Read.name : library.Write.name;
    const bool known = registration && registration->enter_library();
    const std::uintptr_t base = known ? registration->base : piece.pointer;
    Moved moved;
    while (moved.nbytes < piece.nbytes) {
        const auto want = static_cast<std::size_t>(std::min(piece.nbytes - moved.nbytes, kMost));
        const off_t file_offset = piece.offset + moved.nbytes;
        const off_t buffer_offset = static_cast<off_t>(piece.pointer - base) + moved.nbytes;
        errno = 0;  // -1 means errno, but only if this call set it
        const ssize_t count = reads ? library.Read(handle, reinterpret_cast<void*>(base), want,
                                                   file_offset, buffer_offset)
                                    : library.Write(handle, reinterpret_cast<const void*>(base),
                                                    want, file_offset, buffer_offset);
        const int error_number = errno;
        if (count > 0) {
            moved.nbytes += count;
            if (!step(count)) break;
        } else if (count == 0) {
            if (!reads) moved.failure = errno_failure(EIO, call);
            break;
        } else if (count != -1 || error_number != EINTR) {
            moved.failure = bytes_failure(platform, count, error_number, call);
            break;
        }
    }
    return moved;
}

}  // namespace hfa
