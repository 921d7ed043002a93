// Pinned slots that a stream and the host hand to each other by counters in memory, and the pool
// that keeps them between transfers.
//
// A slot is used once a round. The host counts `turn` up when it has done its part of a round (a
// read: the slot is filled; a write: it was written out), and the stream waits for that count; the
// stream counts `done` up when its copy of the round is through, and the host waits for that.
// Waiting so, neither needs the GPU runtime for the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "check.hpp"

namespace hfa {

class Ring {
  public:
    using Count = std::uint32_t;
    // Lets a stream pass every wait of the ring.
    static constexpr Count kAll = 0x7fffffff;

    // `device` must be current. Throws Error.
    Ring(const Runtime& runtime, int device, std::int64_t capacity, int slots);
    ~Ring() { release(); }
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    const Runtime& runtime() const { return runtime_; }
    int device() const { return device_; }
    std::int64_t capacity() const { return capacity_; }
    int slots() const { return static_cast<int>(slots_.size()); }

    char* host(int slot) const { return slots_[index(slot)].host; }
    Count* turn_address(int slot) const { return slots_[index(slot)].turn; }
    Count* done_address(int slot) const { return slots_[index(slot)].done; }
    Count* started_address() const { return started_; }

    Count turn(int slot) const { return load(turn_address(slot)); }
    Count done(int slot) const { return load(done_address(slot)); }
    bool started() const { return load(started_) != 0; }
    void set_turn(int slot, Count value) { store(turn_address(slot), value); }
    // For the next transfer; no stream may still use the ring.
    void reset();

  private:
    struct Slot {
        char* host = nullptr;
        Count* turn = nullptr;
        Count* done = nullptr;
    };
    static std::size_t index(int slot) { return static_cast<std::size_t>(slot); }
    static Count load(Count* from) {
        return std::atomic_ref<Count>(*from).load(std::memory_order_acquire);
    }
    static void store(Count* to, Count value) {
        std::atomic_ref<Count>(*to).store(value, std::memory_order_release);
    }
    void release() noexcept;

    const Runtime& runtime_;
    int device_;
    std::int64_t capacity_;
    char* counters_ = nullptr;
    Count* started_ = nullptr;
    std::vector<void*> signals_;
    std::vector<Slot> slots_;
};

class RingPool {
  public:
    static RingPool& instance();
    // `device` must be current. Throws Error.
    std::unique_ptr<Ring> take(const Runtime& runtime, int device, std::int64_t capacity,
                               int slots);
    void give_back(std::unique_ptr<Ring> ring);
    // Frees every idle ring.
    void trim();

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Ring>> idle_;
};

// Whether streams of this device wait for and write to host memory; tried once. Throws Error.
bool takes_stream_waits(const Runtime& runtime, int device);
// The runtime's lasting error, if the device has failed; 0 if not. Waits for nothing.
int device_failure(const Runtime& runtime, int device);
// Waits for all that is on the stream. False if `poll` said no or the device has failed.
bool wait_until_idle(const Runtime& runtime, Stream stream, const std::function<bool()>& poll);

// What a stream is told.
void queue_wait(const Runtime& runtime, Stream stream, Ring::Count* address, Ring::Count least);
void queue_count(const Runtime& runtime, Stream stream, Ring::Count* address, Ring::Count value);

}  // namespace hfa
