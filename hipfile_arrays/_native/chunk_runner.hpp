// One transfer's shared state (Job) and one thread's part in it (ChunkRunner).
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "device.hpp"
#include "engine.hpp"
#include "file_io.hpp"
#include "staging.hpp"

namespace hfa {

inline constexpr int kMemcpyDefault = 4;  // direction from the addresses, HIP and CUDA alike

class Job {
  public:
    explicit Job(const Request& request);

    const Request& request;

    // The next chunk to do, or null when there is none or the job was stopped.
    const Piece* next();
    int chunk_count() const { return static_cast<int>(chunks_.size()); }
    bool has_library_chunks() const { return library_chunks_; }

    void stop(Failure failure);
    bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
    void moved(Path path, std::int64_t nbytes);
    // The file ended at `end`, with `missing` of a chunk's bytes still wanted.
    void ended(std::int64_t end, std::int64_t missing);
    std::int64_t progress() const { return progress_.load(std::memory_order_relaxed); }
    Outcome take_outcome();

  private:
    void cut(const Piece& piece);

    std::vector<Piece> chunks_;
    bool library_chunks_ = false;
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> stopped_{false};
    std::atomic<std::int64_t> progress_{0};
    std::mutex mutex_;
    Outcome outcome_;
};

class ChunkRunner {
  public:
    explicit ChunkRunner(Job& job);
    // Everything this thread began has ended afterwards, whatever happened.
    ~ChunkRunner();
    ChunkRunner(const ChunkRunner&) = delete;
    ChunkRunner& operator=(const ChunkRunner&) = delete;

    // Does one chunk. False when there is nothing left to do for this thread. Never throws.
    bool step();

  private:
    void run(const Piece& chunk);
    void run_library(const Piece& chunk);
    void run_buffered(const Piece& piece);
    void read_staged(const Piece& chunk);
    bool read_mapped(const Piece& chunk);
    void write_staged(const Piece& chunk);
    void finish_write();
    Moved read_o_direct(const Piece& chunk, void* host, std::int64_t& shift);
    Lane& lane();

    struct PendingWrite {
        Piece chunk;
        Slot* slot;
    };

    Job& job_;
    const Request& request_;
    std::optional<DeviceScope> scope_;
    LanePool::Lease lane_;
    unsigned turn_ = 0;
    std::optional<PendingWrite> pending_write_;
};

}  // namespace hfa
