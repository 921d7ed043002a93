#include "io_faults.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "abi.hpp"

namespace hipemu {
namespace {

constexpr std::int64_t kHipFileLimit = 0x7ffff000;

void set_all(IoFaults& faults, const std::string& text) {
    std::size_t start = 0;
    while (start < text.size()) {
        std::size_t end = text.find(';', start);
        if (end == std::string::npos) end = text.size();
        faults.set(text.substr(start, end - start));
        start = end + 1;
    }
}

}  // namespace

IoFaults& IoFaults::instance() {
    static IoFaults* faults = [] {
        auto* made = new IoFaults;
        made->clear();
        return made;
    }();
    return *faults;
}

void IoFaults::set(const std::string& word) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) return;
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    const std::int64_t number = std::strtoll(value.c_str(), nullptr, 0);
    if (name == "short_io") short_io = number;
    if (name == "eintr") eintr_every = number;
    if (name == "limit") limit = number;
    if (name == "eligible") eligible = number != 0;
    if (name == "errno") {
        const auto at = value.find('@');
        error_at = calls + (at == std::string::npos ? 1 : std::strtoll(&value[at + 1], nullptr, 0));
        error_number = static_cast<int>(number);
    }
}

void IoFaults::clear() {
    short_io = 0;
    eintr_every = 0;
    limit = kHipFileLimit;
    eligible = false;
    error_number = 0;
    error_at = 0;
    // What the environment asked for is there for the whole process.
    if (const char* text = std::getenv("HIPFILE_ARRAYS_EMULATOR_FAULTS")) set_all(*this, text);
}

int IoFaults::enter() {
    const std::int64_t call = ++calls;
    if (error_number != 0 && call == error_at) return error_number;
    const std::int64_t every = eintr_every;
    return every > 0 && call % every == 0 ? EINTR : 0;
}

std::int64_t IoFaults::allowed(std::int64_t size, std::int64_t block) const {
    std::int64_t most = limit;
    if (const std::int64_t part = short_io; part > 0) most = std::min(most, part);
    if (size <= most) return size;
    return std::max(most / block * block, block);
}

}  // namespace hipemu

HIPEMU_API void hipemuSetIoFault(const char* word) { hipemu::IoFaults::instance().set(word); }
HIPEMU_API void hipemuClearIoFaults() { hipemu::IoFaults::instance().clear(); }
