#include "staging.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "device.hpp"

namespace hfa {
namespace {

constexpr unsigned kNonBlocking = 1;    // hipStreamNonBlocking: no implicit order with stream 0
constexpr unsigned kDisableTiming = 2;  // hipEventDisableTiming: cheaper events
constexpr unsigned kPortable = 1;       // hipHostMallocPortable: pinned for every device

std::atomic<std::uint64_t> pinned{0};

}  // namespace

void* allocate_pinned(const Runtime& runtime, std::int64_t nbytes) {
    void* memory = nullptr;
    check_runtime(runtime, runtime.HostMalloc(&memory, static_cast<std::size_t>(nbytes), kPortable),
                  runtime.HostMalloc.name);
    pinned += static_cast<std::uint64_t>(nbytes);
    return memory;
}

void free_pinned(const Runtime& runtime, void* memory, std::int64_t nbytes) noexcept {
    if (!memory) return;
    runtime.HostFree(memory);
    pinned -= static_cast<std::uint64_t>(nbytes);
}

std::uint64_t pinned_bytes() { return pinned; }

Lane::Lane(const Runtime& runtime, int device, std::int64_t capacity)
    : runtime_(runtime), device_(device), capacity_(capacity) {
    try {
        check_runtime(runtime, runtime.StreamCreateWithFlags(&stream_, kNonBlocking),
                      runtime.StreamCreateWithFlags.name);
        check_runtime(runtime, runtime.EventCreateWithFlags(&order_, kDisableTiming),
                      runtime.EventCreateWithFlags.name);
        for (Slot& slot : slots_) {
            check_runtime(runtime, runtime.EventCreateWithFlags(&slot.event, kDisableTiming),
                          runtime.EventCreateWithFlags.name);
            slot.host = allocate_pinned(runtime, capacity);
        }
    } catch (...) {
        release();
        throw;
    }
}

Lane::~Lane() { release(); }

void Lane::release() noexcept {
    drain();
    for (Slot& slot : slots_) {
        free_pinned(runtime_, slot.host, capacity_);
        if (slot.event) runtime_.EventDestroy(slot.event);
        slot = Slot{};
    }
    if (order_) runtime_.EventDestroy(order_);
    if (stream_) runtime_.StreamDestroy(stream_);
    order_ = nullptr;
    stream_ = nullptr;
}

void Lane::order_after(Stream stream) {
    check_runtime(runtime_, runtime_.EventRecord(order_, stream), runtime_.EventRecord.name);
    check_runtime(runtime_, runtime_.StreamWaitEvent(stream_, order_, 0),
                  runtime_.StreamWaitEvent.name);
}

void Lane::mark(Slot& slot) {
    // Until the event is recorded only the stream knows of the copy; a failure here must not leave
    // a slot that looks idle.
    slot.pending = true;
    check_runtime(runtime_, runtime_.EventRecord(slot.event, stream_), runtime_.EventRecord.name);
}

void Lane::wait(Slot& slot) {
    if (!slot.pending) return;
    const int code = runtime_.EventSynchronize(slot.event);
    slot.pending = false;
    unmap(slot);
    check_runtime(runtime_, code, runtime_.EventSynchronize.name);
}

Failure Lane::drain() noexcept {
    Failure first;
    bool busy = false;
    for (const Slot& slot : slots_) busy = busy || slot.pending || slot.mapping;
    if (busy && stream_) {
        // The stream, not the events: it also knows of a copy whose event could not be recorded.
        first = runtime_failure(runtime_, runtime_.StreamSynchronize(stream_),
                                runtime_.StreamSynchronize.name);
    }
    for (Slot& slot : slots_) {
        slot.pending = false;
        unmap(slot);
    }
    return first;
}

void Lane::unmap(Slot& slot) noexcept {
    if (!slot.mapping) return;
    runtime_.HostUnregister(slot.mapping);
    munmap(slot.mapping, slot.mapping_length);
    slot.mapping = nullptr;
    slot.mapping_length = 0;
}

LanePool& LanePool::instance() {
    static LanePool* pool = new LanePool;  // lanes are not freed while the process ends
    return *pool;
}

LanePool::Lease LanePool::take(const Runtime& runtime, int device, std::int64_t capacity) {
    std::unique_ptr<Lane> lane;
    {
        const std::lock_guard lock(mutex_);
        // The lane given back last: its slots are the likeliest to lie in a CPU cache.
        const auto found = std::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& idle) {
            return &idle->runtime() == &runtime && idle->device() == device &&
                   idle->capacity() >= capacity;
        });
        if (found != idle_.rend()) {
            lane = std::move(*found);
            idle_.erase(std::next(found).base());
        }
    }
    if (!lane) lane = std::make_unique<Lane>(runtime, device, capacity);
    return Lease(lane.release(), Release{this});
}

void LanePool::give_back(Lane* lane) noexcept {
    std::unique_ptr<Lane> owned(lane);
    owned->drain();
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(owned));
}

void LanePool::trim() {
    std::vector<std::unique_ptr<Lane>> idle;
    {
        const std::lock_guard lock(mutex_);
        idle.swap(idle_);
    }
    for (auto& lane : idle) {
        const DeviceScope scope(lane->runtime(), lane->device());
        lane.reset();
    }
}

}  // namespace hfa
