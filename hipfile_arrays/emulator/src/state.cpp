#include "state.hpp"

#include <pthread.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace hipemu {
namespace {

constexpr int kMostDevices = 16;

thread_local int current = 0;
thread_local int last = kSuccess;
std::array<std::atomic<int>, kMostDevices> device_errors{};
std::atomic<bool> forked{false};

struct Entries {
    std::mutex mutex;
    std::map<std::string, Entry*> by_name;
};

Entries& entries() {
    static Entries* all = new Entries;
    return *all;
}

// "name@n=code" in HIPFILE_ARRAYS_EMULATOR_FAULTS, separated by ';'. Other words of that variable
// belong to faults.cpp.
void inject_from_environment(Entry& made) {
    const char* text = std::getenv("HIPFILE_ARRAYS_EMULATOR_FAULTS");
    if (!text) return;
    const std::string all = std::string(text) + ";";
    std::size_t start = 0;
    for (std::size_t end = all.find(';'); end != std::string::npos; end = all.find(';', start)) {
        const std::string word = all.substr(start, end - start);
        start = end + 1;
        const auto at = word.find('@');
        const auto equals = word.find('=', at == std::string::npos ? 0 : at);
        if (at == std::string::npos || equals == std::string::npos) continue;
        if (word.substr(0, at) != made.name()) continue;
        made.inject(std::strtoull(word.c_str() + at + 1, nullptr, 10),
                    std::atoi(word.c_str() + equals + 1), 1);
    }
}

}  // namespace

int Entry::enter() {
    add();
    if (forked.load(std::memory_order_relaxed)) {
        static std::once_flag once;
        std::call_once(once, [this] {
            std::fprintf(stderr,
                         "hipemu: %s called in a forked child: a HIP runtime does not survive "
                         "fork(), use spawn\n",
                         name_);
        });
        return kNotInitialized;
    }
    if (!armed_.load(std::memory_order_relaxed)) return kSuccess;
    if (calls_until_fault_.fetch_sub(1) > 1) return kSuccess;
    if (faults_left_.fetch_sub(1) <= 0) {
        armed_ = false;
        return kSuccess;
    }
    return fault_code_;
}

void Entry::inject(std::uint64_t at, int code, std::uint64_t times) {
    fault_code_ = code;
    calls_until_fault_ = static_cast<std::int64_t>(at);
    faults_left_ = static_cast<std::int64_t>(times);
    armed_ = times > 0;
}

Entry& entry(const char* name) {
    Entries& all = entries();
    const std::lock_guard lock(all.mutex);
    auto [found, is_new] = all.by_name.try_emplace(name, nullptr);
    if (is_new) {
        static std::once_flag once;
        std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked = true; }); });
        found->second = new Entry(found->first.c_str());
        inject_from_environment(*found->second);
    }
    return *found->second;
}

int device_count() {
    static const int count = static_cast<int>(std::min<std::uint64_t>(
        environment_number("HIPFILE_ARRAYS_EMULATOR_DEVICES", 2), kMostDevices));
    return count;
}

int current_device() { return current; }
void set_current_device(int device) { current = device; }

int fail(int code) {
    if (code != kSuccess && code != kNotReady) last = code;
    return code;
}

int last_error() { return last; }

int take_last_error() {
    const int code = last;
    last = kSuccess;
    return code;
}

void set_device_error(int device, int code) {
    int none = kSuccess;  // the first cause is the one worth telling
    device_errors[static_cast<std::size_t>(device)].compare_exchange_strong(none, code);
}

int take_device_error(int device) {
    return device_errors[static_cast<std::size_t>(device)].exchange(kSuccess);
}

int unavailable(const char* name) {
    std::fprintf(stderr, "hipemu: %s is not part of the emulated device\n", name);
    return fail(kNotSupported);
}

std::uint64_t environment_number(const char* name, std::uint64_t fallback) {
    const char* text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 0) : fallback;
}

bool environment_flag(const char* name) {
    const char* text = std::getenv(name);
    if (!text) return false;
    const std::string value(text);
    return value == "1" || value == "true" || value == "TRUE" || value == "yes" || value == "on";
}

}  // namespace hipemu

// Read by hipfile_arrays.emulator (Python).
HIPEMU_API std::uint64_t hipemuCount(const char* name) { return hipemu::entry(name).count(); }

HIPEMU_API void hipemuResetCounts() {
    auto& all = hipemu::entries();
    const std::lock_guard lock(all.mutex);
    for (auto& [name, entry] : all.by_name) entry->reset();
}

// Calls `visit` for every name counted so far.
HIPEMU_API void hipemuVisitCounts(void (*visit)(const char*, std::uint64_t)) {
    auto& all = hipemu::entries();
    const std::lock_guard lock(all.mutex);
    for (auto& [name, entry] : all.by_name) visit(name.c_str(), entry->count());
}

HIPEMU_API void hipemuInject(const char* name, std::uint64_t at, int code, std::uint64_t times) {
    hipemu::entry(name).inject(at, code, times);
}
