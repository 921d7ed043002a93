#include "slot_io.hpp"

#include <algorithm>
#include <cerrno>

namespace hfa {
namespace {

// Reads a little more than the chunk on both sides, to aligned ends.
std::optional<Moved> read_o_direct(OpenFile& file, const Piece& chunk, char* slot) {
    const int fd = file.direct_fd();
    if (fd < 0) return std::nullopt;
    const std::int64_t first = round_down(chunk.offset);
    const std::int64_t want = round_up(chunk.offset + chunk.nbytes) - first;
    Moved moved = read_fully(fd, slot, want, first);
    if (moved.failure && moved.nbytes == 0) {
        const bool refused = moved.failure.code == EINVAL || moved.failure.code == EOPNOTSUPP;
        if (refused) return std::nullopt;
        return moved;
    }
    // O_DIRECT ends a read at the last full block before an unaligned end of file, and some file
    // systems then answer EINVAL to the next: the buffered read knows better.
    moved.nbytes = std::clamp<std::int64_t>(moved.nbytes - shift_in_slot(chunk), 0, chunk.nbytes);
    if (moved.nbytes < chunk.nbytes) return std::nullopt;
    moved.failure = {};
    return moved;
}

}  // namespace

Moved read_into_slot(OpenFile& file, const Piece& chunk, char* slot) {
    if (chunk.path == Path::ODirect) {
        if (const auto moved = read_o_direct(file, chunk, slot)) return *moved;
    }
    return read_fully(file.fd(), slot + shift_in_slot(chunk), chunk.nbytes, chunk.offset);
}

}  // namespace hfa
