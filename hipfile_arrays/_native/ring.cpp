#include "ring.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "device.hpp"
#include "staging.hpp"

namespace hfa {
namespace {

constexpr unsigned kNonBlocking = 1;
constexpr unsigned kSignalMemory = 2;    // hipMallocSignalMemory
constexpr std::size_t kSignalBytes = 8;  // the only size it has
constexpr unsigned kAtLeast = 0;         // hipStreamWaitValueGte, CU_STREAM_WAIT_VALUE_GEQ
constexpr Ring::Count kAllBits = 0xffffffff;
constexpr int kNotReady = 600;  // hipErrorNotReady, cudaErrorNotReady
constexpr std::int64_t kLine = 64;
constexpr std::chrono::microseconds kPause{200};

// A stream of ours for each device, with nothing on it but the trial of `takes_stream_waits`.
struct Known {
    Stream stream = nullptr;
    bool takes_waits = false;
};

bool try_waits(const Runtime& runtime, int device, Stream stream) {
    if (!runtime.StreamWaitValue32.present || !runtime.StreamWriteValue32.present) return false;
    try {
        auto ring = std::make_unique<Ring>(runtime, device, kSlotSlack, 1);
        ring->set_turn(0, 1);
        queue_wait(runtime, stream, ring->turn_address(0), 1);
        queue_count(runtime, stream, ring->done_address(0), 1);
        check_runtime(runtime, runtime.StreamSynchronize(stream), runtime.StreamSynchronize.name);
        const bool done = ring->done(0) == 1;
        // Freeing it would wait for every stream.
        RingPool::instance().give_back(std::move(ring));
        return done;
    } catch (const Error&) {
        runtime.GetLastError();
        return false;
    }
}

const Known& known(const Runtime& runtime, int device) {
    static std::mutex mutex;
    static auto* all = new std::map<std::pair<const Runtime*, int>, Known>;
    const std::lock_guard lock(mutex);
    const auto found = all->find({&runtime, device});
    if (found != all->end()) return found->second;
    const DeviceScope scope(runtime, device);
    Known made;
    check_runtime(runtime, runtime.StreamCreateWithFlags(&made.stream, kNonBlocking),
                  runtime.StreamCreateWithFlags.name);
    made.takes_waits = try_waits(runtime, device, made.stream);
    return all->emplace(std::make_pair(&runtime, device), made).first->second;
}

}  // namespace

Ring::Ring(const Runtime& runtime, int device, std::int64_t capacity, int slots)
    : runtime_(runtime), device_(device), capacity_(capacity) {
    try {
        slots_.resize(index(slots));
        counters_ = static_cast<char*>(allocate_pinned(runtime, (2 * slots + 1) * kLine));
        const auto counter = [this](int line) {
            return reinterpret_cast<Count*>(counters_ + line * kLine);
        };
        started_ = counter(2 * slots);
        for (int i = 0; i < slots; ++i) {
            Slot& slot = slots_[index(i)];
            slot.host = static_cast<char*>(allocate_pinned(runtime, capacity));
            slot.done = counter(2 * i);
            slot.turn = counter(2 * i + 1);
            // HIP's streams wait for memory of a kind of its own.
            if (runtime.ExtMallocWithFlags.present) {
                void* signal = nullptr;
                check_runtime(runtime,
                              runtime.ExtMallocWithFlags(&signal, kSignalBytes, kSignalMemory),
                              runtime.ExtMallocWithFlags.name);
                signals_.push_back(signal);
                slot.turn = static_cast<Count*>(signal);
            }
        }
        reset();
    } catch (...) {
        release();
        throw;
    }
}

void Ring::release() noexcept {
    for (const Slot& slot : slots_) free_pinned(runtime_, slot.host, capacity_);
    free_pinned(runtime_, counters_, (2 * slots() + 1) * kLine);
    for (void* signal : signals_) runtime_.Free(signal);
}

void Ring::reset() {
    store(started_, 0);
    for (const Slot& slot : slots_) {
        store(slot.turn, 0);
        store(slot.done, 0);
    }
}

RingPool& RingPool::instance() {
    static RingPool* pool = new RingPool;  // rings are not freed while the process ends
    return *pool;
}

std::unique_ptr<Ring> RingPool::take(const Runtime& runtime, int device, std::int64_t capacity,
                                     int slots) {
    {
        const std::lock_guard lock(mutex_);
        const auto fits = [&](const auto& idle) {
            return &idle->runtime() == &runtime && idle->device() == device &&
                   idle->capacity() >= capacity && idle->slots() >= slots;
        };
        const auto found = std::find_if(idle_.begin(), idle_.end(), fits);
        if (found != idle_.end()) {
            std::unique_ptr<Ring> ring = std::move(*found);
            idle_.erase(found);
            ring->reset();
            return ring;
        }
    }
    return std::make_unique<Ring>(runtime, device, capacity, slots);
}

void RingPool::give_back(std::unique_ptr<Ring> ring) {
    const std::lock_guard lock(mutex_);
    // The smallest first: that is the one that is taken.
    const auto smaller = [](const auto& a, const auto& b) {
        return a->capacity() * a->slots() < b->capacity() * b->slots();
    };
    idle_.insert(std::upper_bound(idle_.begin(), idle_.end(), ring, smaller), std::move(ring));
}

void RingPool::trim() {
    std::vector<std::unique_ptr<Ring>> idle;
    {
        const std::lock_guard lock(mutex_);
        idle.swap(idle_);
    }
    for (auto& ring : idle) {
        const DeviceScope scope(ring->runtime(), ring->device());
        ring.reset();
    }
}

bool takes_stream_waits(const Runtime& runtime, int device) {
    return known(runtime, device).takes_waits;
}

int device_failure(const Runtime& runtime, int device) {
    const int code = runtime.StreamQuery(known(runtime, device).stream);
    return code == kNotReady ? 0 : code;
}

bool wait_until_idle(const Runtime& runtime, Stream stream, const std::function<bool()>& poll) {
    for (;;) {
        const int code = runtime.StreamQuery(stream);
        if (code != kNotReady) return code == 0;
        if (!poll()) return false;
        std::this_thread::sleep_for(kPause);
    }
}

void queue_wait(const Runtime& runtime, Stream stream, Ring::Count* address, Ring::Count least) {
    check_runtime(runtime, runtime.StreamWaitValue32(stream, address, least, kAtLeast, kAllBits),
                  runtime.StreamWaitValue32.name);
}

void queue_count(const Runtime& runtime, Stream stream, Ring::Count* address, Ring::Count value) {
    check_runtime(runtime, runtime.StreamWriteValue32(stream, address, value, 0),
                  runtime.StreamWriteValue32.name);
}

}  // namespace hfa
