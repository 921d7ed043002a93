// One transfer's shared state (Job) and one thread's part in it (ChunkRunner).
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <span>

#include "device.hpp"
#include "engine.hpp"
#include "file_io.hpp"
#include "staging.hpp"

namespace hfa {

inline constexpr int kMemcpyDefault = 4;  // direction from the addresses, HIP and CUDA alike

// What one thread does at a time: a part of a piece, or several small staged pieces that fill one
// slot together.
using Chunk = std::span<const Piece>;

class Job {
  public:
    explicit Job(const Request& request);

    const Request& request;

    // The next chunk to do; empty when there is none or the job was stopped.
    Chunk next();
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
    void bundle(const Piece& piece);

    std::vector<Piece> parts_;
    struct Range {
        std::size_t first, count;  // of parts_
        std::int64_t room = 0;     // bytes that may still be bundled
    };
    std::vector<Range> chunks_;
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
    void run(Chunk chunk);
    void run_library(const Piece& chunk);
    void run_buffered(const Piece& piece);
    void read_staged(const Piece& piece);
    void read_bundle(Chunk pieces);
    bool read_mapped(const Piece& chunk);
    void write_staged(Chunk pieces);
    void finish_write();
    void copy(const void* to, const void* from, std::int64_t nbytes);
    Lane& lane();

    struct PendingWrite {
        Chunk pieces;
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
