// Lanes: what one thread needs to move file bytes to or from a device asynchronously, and the pool
// that keeps them between transfers.
//
// A lane is a stream and two page-aligned pinned slots, each with an event. While the bus empties
// one slot, the thread fills the other; the event says when a slot may be touched again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "check.hpp"

namespace hfa {

// O_DIRECT reads a little more than was asked for, on both sides; a slot has room for that.
inline constexpr std::int64_t kSlotSlack = 2 * 4096;

struct Slot {
    void* host = nullptr;  // pinned, page-aligned, Lane::capacity() bytes
    Event event = nullptr;
    bool pending = false;  // the event was recorded and not yet waited for
    // A file mapping registered with the runtime instead of `host` (zero-copy reads).
    void* mapping = nullptr;
    std::size_t mapping_length = 0;
};

// Pinned for every device, page-aligned, and counted. Throws Error.
void* allocate_pinned(const Runtime& runtime, std::int64_t nbytes);
void free_pinned(const Runtime& runtime, void* memory, std::int64_t nbytes) noexcept;
std::uint64_t pinned_bytes();

class Lane {
  public:
    // `device` must be current.
    Lane(const Runtime& runtime, int device, std::int64_t capacity);
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    const Runtime& runtime() const { return runtime_; }
    Stream stream() const { return stream_; }
    int device() const { return device_; }
    std::int64_t capacity() const { return capacity_; }
    Slot& slot(unsigned index) { return slots_[index % kSlots]; }
    static constexpr unsigned kSlots = 2;

    // The lane's later work waits for everything queued on `stream` so far.
    void order_after(Stream stream);
    // Marks `slot` busy with the copy just queued on the lane's stream.
    void mark(Slot& slot);
    // Waits until the slot's last copy is done and gives its mapping back.
    void wait(Slot& slot);
    // Waits for both slots; the first failure, if any, after all have ended.
    Failure drain() noexcept;

  private:
    void unmap(Slot& slot) noexcept;
    void release() noexcept;

    const Runtime& runtime_;
    int device_;
    std::int64_t capacity_;
    Stream stream_ = nullptr;
    Event order_ = nullptr;
    Slot slots_[kSlots];
};

class LanePool {
  public:
    static LanePool& instance();

    struct Release {
        LanePool* pool;
        void operator()(Lane* lane) const { pool->give_back(lane); }
    };
    using Lease = std::unique_ptr<Lane, Release>;

    // `device` must be current.
    Lease take(const Runtime& runtime, int device, std::int64_t capacity);
    // Frees every idle lane.
    void trim();

  private:
    void give_back(Lane* lane) noexcept;

    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Lane>> idle_;
};

}  // namespace hfa
