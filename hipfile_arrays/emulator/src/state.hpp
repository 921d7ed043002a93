// What every entry point shares: call counts, injected faults, the fork guard, the last error.
#pragma once

#include <atomic>
#include <cstdint>

#include "abi.hpp"

namespace hipemu {

// One entry point, or one counted event, by name. Lives as long as the process.
class Entry {
  public:
    explicit Entry(const char* name) : name_(name) {}
    const char* name() const { return name_; }

    // Counts a call. Returns the error to answer with: 0, an injected one, or "not initialised" in
    // a forked child, where no HIP runtime works.
    int enter();
    void add(std::uint64_t amount = 1) { count_.fetch_add(amount, std::memory_order_relaxed); }
    std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }
    void reset() { count_.store(0, std::memory_order_relaxed); }
    // From its `at`-th call from now on (1 is the next), answer `code`, `times` times.
    void inject(std::uint64_t at, int code, std::uint64_t times);

  private:
    const char* name_;
    std::atomic<std::uint64_t> count_{0};
    std::atomic<bool> armed_{false};
    std::atomic<std::int64_t> calls_until_fault_{0};
    std::atomic<std::int64_t> faults_left_{0};
    std::atomic<int> fault_code_{0};
};

// The entry of that name, made on first need.
Entry& entry(const char* name);

int device_count();
int current_device();
void set_current_device(int device);

// Records `code` as the thread's last error (hipErrorNotReady is no error) and returns it.
int fail(int code);
int last_error();
int take_last_error();

// A failure of work on a device, found after its call returned: the next synchronisation of that
// device reports it, once.
void set_device_error(int device, int code);
int take_device_error(int device);

// One line on standard error for calls that the emulator does not offer: loud, never wrong data.
int unavailable(const char* name);

std::uint64_t environment_number(const char* name, std::uint64_t fallback);
bool environment_flag(const char* name);

}  // namespace hipemu

// First line of every exported function that returns a hipError_t.
#define HIPEMU_ENTRY(name)                                         \
    do {                                                           \
        static ::hipemu::Entry& counted = ::hipemu::entry(name);   \
        if (const int injected = counted.enter(); injected != 0) { \
            return ::hipemu::fail(injected);                       \
        }                                                          \
    } while (false)
