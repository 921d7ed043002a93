// Compiled programs on disk, so that a second process compiles nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace hiprtc {

struct Compiled {
    std::string code;
    std::map<std::string, std::string> lowered_names;  // by name expression
};

std::uint64_t hash(const std::string& text, std::uint64_t seed = 14695981039346656037ull);

// The key is everything that the result depends on; it is kept in the entry and compared, so two
// keys of one hash cannot be mistaken for each other. A damaged entry is none. A folder that cannot
// be written only costs time.
std::optional<Compiled> load_cached(const std::string& key);
void store_cached(const std::string& key, const Compiled& compiled);

}  // namespace hiprtc
