#include "registry.hpp"

#include <algorithm>
#include <mutex>
#include <optional>

#include "device.hpp"

namespace hfa {
namespace {

constexpr int kMemoryAlreadyRegistered = 5023;

void leave_library(const Registration& registration) {
    std::optional<DeviceScope> scope;
    try {
        scope.emplace(runtime(registration.platform), registration.device);
    } catch (const Error&) {
        // hipFile finds a buffer by its address, whatever device is current; and one that cannot be
        // made current any more is no reason to keep the registration.
    }
    // Its answer changes nothing: 5024 means that somebody else deregistered it already.
    file_library(registration.platform)
        .BufDeregister(reinterpret_cast<const void*>(registration.base));
}

}  // namespace

bool Registration::enter_library() {
    std::call_once(once_, [this] {
        try {
            const FileLibrary& library = file_library(platform);
            const DeviceScope scope(runtime(platform), device);
            const FileError error =
                library.BufRegister(reinterpret_cast<const void*>(base), size, 0);
            foreign_ = error.code == kMemoryAlreadyRegistered;
            if (!foreign_) refusal_ = file_failure(platform, error, library.BufRegister.name);
        } catch (const Error& error) {
            refusal_ = error.failure();
        }
        entered_.store(true, std::memory_order_release);
    });
    return in_library();
}

Failure Registration::refusal() const {
    return entered_.load(std::memory_order_acquire) ? refusal_ : Failure{};
}

Registry& Registry::instance() {
    static Registry* registry = new Registry;  // outlives every destructor that may use it
    return *registry;
}

std::shared_ptr<Registration> Registry::add(Platform platform, std::uintptr_t base,
                                            std::uint64_t size, int device, bool automatic) {
    std::unique_lock lock(mutex_);
    // A registration of these addresses that is just ending must have left the library first.
    ended_.wait(lock, [&] {
        return std::none_of(by_base_.begin(), by_base_.end(), [&](const auto& entry) {
            const Held& held = entry.second;
            return held.owners == 0 && held.registration->base < base + size &&
                   base < held.registration->base + held.registration->size;
        });
    });
    auto after = by_base_.lower_bound(base);
    if (after != by_base_.end() && after->first == base &&
        after->second.registration->size == size) {
        ++after->second.owners;
        return after->second.registration;
    }
    const bool hits_next = after != by_base_.end() && after->first < base + size;
    const bool hits_former = after != by_base_.begin() && [&] {
        const Registration& former = *std::prev(after)->second.registration;
        return former.base + former.size > base;
    }();
    if (hits_next || hits_former) {
        raise_state(
            "this memory overlaps a buffer that is registered already; close that one first, or "
            "use it: every slice of a registered buffer profits from its registration");
    }
    auto registration = std::make_shared<Registration>(platform, base, size, device, automatic);
    if (!automatic) registration->enter_library();
    by_base_[base] = Held{registration, 1};
    return registration;
}

void Registry::remove(const std::shared_ptr<Registration>& registration) {
    if (is_forked()) return;  // the parent's; GPU libraries do not survive a fork
    {
        const std::lock_guard lock(mutex_);
        const auto found = by_base_.find(registration->base);
        if (found == by_base_.end() || found->second.registration != registration) return;
        if (--found->second.owners > 0) return;
        // Out of the map first: no new I/O can find it while the present one is waited for, and
        // the address may be registered anew only after the library let go of it.
    }
    registration->flight.close();
    leave(registration);
}

bool Registry::remove_if_idle(const std::shared_ptr<Registration>& registration) {
    if (is_forked()) return true;
    {
        const std::lock_guard lock(mutex_);
        const auto found = by_base_.find(registration->base);
        if (found == by_base_.end() || found->second.registration != registration) return true;
        if (found->second.owners > 1 || !registration->flight.close_if_idle()) return false;
        found->second.owners = 0;
    }
    leave(registration);
    return true;
}

void Registry::leave(const std::shared_ptr<Registration>& registration) {
    if (registration->in_library() && !registration->foreign()) leave_library(*registration);
    const std::lock_guard lock(mutex_);
    const auto found = by_base_.find(registration->base);
    if (found != by_base_.end() && found->second.registration == registration) {
        by_base_.erase(found);
    }
    ended_.notify_all();
}

std::shared_ptr<Registration> Registry::find(std::uintptr_t pointer, std::uint64_t nbytes) const {
    const std::shared_lock lock(mutex_);
    auto after = by_base_.upper_bound(pointer);
    if (after == by_base_.begin()) return nullptr;
    const auto& registration = std::prev(after)->second.registration;
    return registration->holds(pointer, nbytes) ? registration : nullptr;
}

std::vector<std::shared_ptr<Registration>> Registry::all() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::shared_ptr<Registration>> result;
    for (const auto& [base, held] : by_base_) result.push_back(held.registration);
    return result;
}

}  // namespace hfa
