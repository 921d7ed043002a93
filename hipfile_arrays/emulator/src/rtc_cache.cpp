#include "rtc_cache.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "rtc_process.hpp"

namespace hiprtc {
namespace {

const std::string kMagic = "HFARTC01";

std::string folder() {
    auto variable = [](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value ? value : "");
    };
    if (auto chosen = variable("HIPFILE_ARRAYS_EMULATOR_CACHE"); !chosen.empty()) return chosen;
    std::string base = variable("XDG_CACHE_HOME");
    if (base.empty()) base = variable("HOME") + "/.cache";
    return base + "/hipfile_arrays/kernels";
}

std::string entry_path(const std::string& key) {
    char name[40];
    std::snprintf(name, sizeof name, "%016lx%016lx", hash(key), hash(key, 0x9e3779b97f4a7c15ull));
    return folder() + "/" + name;
}

void append(std::string& out, const std::string& field) {
    const std::uint64_t size = field.size();
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    out += field;
}

class Reader {
  public:
    explicit Reader(const std::string& text) : text_(text) {}
    bool at_end() const { return at_ == text_.size(); }
    std::optional<std::string> next() {
        std::uint64_t size = 0;
        if (text_.size() - at_ < sizeof size) return std::nullopt;
        std::memcpy(&size, text_.data() + at_, sizeof size);
        at_ += sizeof size;
        if (text_.size() - at_ < size) return std::nullopt;
        at_ += size;
        return text_.substr(at_ - size, size);
    }

  private:
    const std::string& text_;
    std::size_t at_ = 0;
};

}  // namespace

std::uint64_t hash(const std::string& text, std::uint64_t seed) {
    for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211ull;
    return seed;
}

std::optional<Compiled> load_cached(const std::string& key) {
    const auto text = read_file(entry_path(key));
    if (!text || text->rfind(kMagic, 0) != 0) return std::nullopt;
    const std::string rest = text->substr(kMagic.size());
    Reader outer(rest);
    const auto body = outer.next();
    const auto sum = outer.next();
    if (!body || !sum || *sum != std::to_string(hash(*body))) return std::nullopt;
    Reader fields(*body);
    if (fields.next() != key) return std::nullopt;
    auto code = fields.next();
    if (!code) return std::nullopt;
    Compiled found{std::move(*code), {}};
    while (!fields.at_end()) {
        auto expression = fields.next();
        auto name = fields.next();
        if (!expression || !name) return std::nullopt;
        found.lowered_names[*expression] = *name;
    }
    return found;
}

void store_cached(const std::string& key, const Compiled& compiled) {
    std::error_code error;
    std::filesystem::create_directories(folder(), error);
    std::string body;
    append(body, key);
    append(body, compiled.code);
    for (const auto& [expression, name] : compiled.lowered_names) {
        append(body, expression);
        append(body, name);
    }
    std::string text = kMagic;
    append(text, body);
    append(text, std::to_string(hash(body)));
    // Written aside and renamed: other processes see all of it or nothing.
    static std::atomic<unsigned> serial{0};
    const std::string path = entry_path(key);
    const std::string aside =
        path + "." + std::to_string(getpid()) + "." + std::to_string(serial++);
    if (write_file(aside, text)) std::filesystem::rename(aside, path, error);
    std::filesystem::remove(aside, error);
}

}  // namespace hiprtc
