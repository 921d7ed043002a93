// Registered buffers: which device memory hipFile (cuFile) knows, by interval.
//
// hipFile's own map is keyed by the exact base pointer: an I/O on a pointer inside a registered
// buffer misses it. So this map finds the registration that holds a range, and the I/O passes the
// registered base and an offset.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "check.hpp"
#include "inflight.hpp"

namespace hfa {

class Registration {
  public:
    Registration(Platform platform, std::uintptr_t base, std::uint64_t size, int device,
                 bool automatic)
        : platform(platform), base(base), size(size), device(device), automatic(automatic) {}

    const Platform platform;
    const std::uintptr_t base;
    const std::uint64_t size;
    const int device;
    // Nobody asked for it: it may be closed at any time, and enters the library at its first use
    // there, so that memory which is only staged does not make the library start.
    const bool automatic;
    std::atomic<std::uint64_t> hits{0};
    InFlight flight;

    // Makes the library know the buffer, once; true if it does.
    bool enter_library();
    bool in_library() const { return entered_.load(std::memory_order_acquire) && !refusal_; }
    // Why the library has no part in it (it could not be loaded, or refused the memory); such a
    // buffer still spares the pointer lookups.
    Failure refusal() const;
    // The library knew this base before us: somebody else's registration, used, not ended by us.
    bool foreign() const { return in_library() && foreign_; }
    bool holds(std::uintptr_t pointer, std::uint64_t nbytes) const {
        return pointer >= base && pointer - base <= size && nbytes <= size - (pointer - base);
    }

  private:
    std::once_flag once_;
    std::atomic<bool> entered_{false};
    Failure refusal_;
    bool foreign_ = false;
};

class Registry {
  public:
    static Registry& instance();

    // Registers [base, base + size). Throws Error (State) when a live registration overlaps the
    // range without being the same; the same range twice gives the one registration, shared.
    std::shared_ptr<Registration> add(Platform platform, std::uintptr_t base, std::uint64_t size,
                                      int device, bool automatic);
    // Waits for I/O under way, then deregisters. Harmless when repeated. Not with the GIL held.
    void remove(const std::shared_ptr<Registration>& registration);
    // The same if there is no I/O under way; false if there is.
    bool remove_if_idle(const std::shared_ptr<Registration>& registration);
    // The live registration that holds the range, or null.
    std::shared_ptr<Registration> find(std::uintptr_t pointer, std::uint64_t nbytes) const;
    std::vector<std::shared_ptr<Registration>> all() const;

  private:
    struct Held {
        std::shared_ptr<Registration> registration;
        int owners = 0;  // 0: being removed, the library may still know it
    };
    mutable std::shared_mutex mutex_;
    std::condition_variable_any ended_;
    void leave(const std::shared_ptr<Registration>& registration);
    std::map<std::uintptr_t, Held> by_base_;
};

}  // namespace hfa
