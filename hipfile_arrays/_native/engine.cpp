#include "engine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include "chunk_runner.hpp"
#include "device.hpp"
#include "file_io.hpp"
#include "staging.hpp"
#include "workers.hpp"

namespace hfa {
namespace {

struct AtomicTotals {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes{0};
};
std::array<std::array<AtomicTotals, kPaths>, 2> all_totals;

void add_totals(const Request& request, const Outcome& outcome) {
    auto& mine = all_totals[static_cast<std::size_t>(request.direction)];
    for (std::size_t path = 0; path < kPaths; ++path) {
        if (outcome.moved[path] == 0) continue;
        mine[path].calls += 1;
        mine[path].bytes += static_cast<std::uint64_t>(outcome.moved[path]);
    }
}

void refuse_capture(const Request& request) {
    const Runtime& runtime = request.runtime;
    int status = 0;
    if (runtime.StreamIsCapturing.present) {
        check_runtime(runtime, runtime.StreamIsCapturing(request.stream, &status),
                      runtime.StreamIsCapturing.name);
    }
    if (status != 0) {
        raise_state(
            "the stream is being captured into a graph, and file transfers cannot be recorded; "
            "transfer before the capture begins, or on another stream");
    }
}

// One pread and one copy, on the caller's stream: its order is the stream's own.
Outcome run_small(const Request& request) {
    const Piece& piece = request.pieces.front();
    const Runtime& runtime = request.runtime;
    Outcome outcome;
    const auto lane = LanePool::instance().take(runtime, request.device, kSmall + kSlotSlack);
    void* const host = lane->slot(0).host;
    void* const device = reinterpret_cast<void*>(piece.pointer);
    Moved moved;
    auto copy = [&](void* to, const void* from, std::int64_t nbytes) {
        int code = runtime.MemcpyAsync(to, from, static_cast<std::size_t>(nbytes), kMemcpyDefault,
                                       request.stream);
        Failure failure = runtime_failure(runtime, code, runtime.MemcpyAsync.name);
        // Waited for in any case: the slot is used again.
        code = runtime.StreamSynchronize(request.stream);
        if (!failure) failure = runtime_failure(runtime, code, runtime.StreamSynchronize.name);
        return failure;
    };
    if (request.direction == Direction::Read) {
        moved = read_fully(request.file.fd(), host, piece.nbytes, piece.offset);
        outcome.failure = moved.failure;
        if (!moved.failure && moved.nbytes > 0) outcome.failure = copy(device, host, moved.nbytes);
    } else {
        outcome.failure = copy(host, device, piece.nbytes);
        if (!outcome.failure) {
            moved = write_fully(request.file.fd(), host, piece.nbytes, piece.offset);
            outcome.failure = moved.failure;
        }
    }
    outcome.moved[static_cast<std::size_t>(Path::Buffered)] = moved.nbytes;
    if (moved.nbytes < piece.nbytes) {
        outcome.missing = piece.nbytes - moved.nbytes;
        outcome.end_of_file = piece.offset + moved.nbytes;
    }
    return outcome;
}

bool is_small(const Request& request) {
    return request.pieces.size() == 1 && request.pieces.front().path == Path::Buffered &&
           request.pieces.front().nbytes <= kSmall;
}

Outcome run_large(const Request& request, const std::function<bool(std::int64_t)>& poll) {
    Job job(request);
    const Runtime& runtime = request.runtime;
    if (job.has_library_chunks()) {
        // hipFile knows no streams: whatever still uses this memory must be done before.
        check_runtime(runtime, runtime.StreamSynchronize(request.stream),
                      runtime.StreamSynchronize.name);
    }
    auto last = std::chrono::steady_clock::now();
    auto poll_now = [&] {
        if (!poll(job.progress())) job.stop({Channel::Interrupted, 0, 0, "", "", "interrupted"});
        last = std::chrono::steady_clock::now();
    };
    const auto caller = std::this_thread::get_id();
    const std::function<void()> body = [&] {
        const bool polls = std::this_thread::get_id() == caller;
        ChunkRunner runner(job);
        while (runner.step()) {
            if (polls && std::chrono::steady_clock::now() - last > std::chrono::milliseconds(50)) {
                poll_now();
            }
        }
    };
    Workers::instance().run(std::min(request.threads, job.chunk_count()) - 1, body, poll_now);
    return job.take_outcome();
}

}  // namespace

Outcome run(const Request& request, const std::function<bool(std::int64_t)>& poll) {
    refuse_after_fork();
    Outcome outcome;
    const Use file_use(request.file.flight());
    if (!file_use) raise_state("the file is closed");
    std::unique_ptr<Use> buffer_use;
    if (request.registration) {
        buffer_use = std::make_unique<Use>(request.registration->flight);
        if (!*buffer_use) raise_state("the registered buffer is closed");
        ++request.registration->hits;
    }
    const DeviceScope scope(request.runtime, request.device);
    refuse_capture(request);
    outcome = is_small(request) ? run_small(request) : run_large(request, poll);
    add_totals(request, outcome);
    return outcome;
}

Totals totals() {
    Totals result{};
    for (std::size_t direction = 0; direction < 2; ++direction) {
        for (std::size_t path = 0; path < kPaths; ++path) {
            result[direction][path] = {all_totals[direction][path].calls,
                                       all_totals[direction][path].bytes};
        }
    }
    return result;
}

void reset_totals() {
    for (auto& direction : all_totals) {
        for (auto& path : direction) {
            path.calls = 0;
            path.bytes = 0;
        }
    }
}

}  // namespace hfa
