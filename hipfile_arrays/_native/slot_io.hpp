// Between a file and a pinned slot: with O_DIRECT or through the page cache.
#pragma once

#include "engine.hpp"
#include "file_io.hpp"

namespace hfa {

inline constexpr std::int64_t kPage = 4096;
inline std::int64_t round_down(std::int64_t value) { return value / kPage * kPage; }
inline std::int64_t round_up(std::int64_t value) { return round_down(value + kPage - 1); }

// Where in a slot the chunk's first byte lies: O_DIRECT reads begin at a page of the file.
inline std::int64_t shift_in_slot(const Piece& chunk) {
    return chunk.path == Path::ODirect ? chunk.offset - round_down(chunk.offset) : 0;
}

// `slot` has room for kSlotSlack more bytes. The count is of the chunk's own bytes.
Moved read_into_slot(OpenFile& file, const Piece& chunk, char* slot);

}  // namespace hfa
