#include "engine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include "chunk_runner.hpp"
#include "device.hpp"
#include "workers.hpp"

namespace hfa {
namespace {

struct AtomicTotals {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes{0};
};
std::array<std::array<AtomicTotals, kPaths>, 2> all_totals;

Outcome run_chunks(const Request& request, const std::function<bool(std::int64_t)>& poll) {
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

void refuse_capture(const Runtime& runtime, Stream stream) {
    int status = 0;
    if (runtime.StreamIsCapturing.present) {
        check_runtime(runtime, runtime.StreamIsCapturing(stream, &status),
                      runtime.StreamIsCapturing.name);
    }
    if (status != 0) {
        raise_state(
            "the stream is being captured into a graph, and file transfers cannot be recorded; "
            "transfer before the capture begins, or on another stream");
    }
}

Held::Held(OpenFile& file, Registration* registration) {
    if (!file_.emplace(file.flight())) raise_state("the file is closed");
    if (!registration) return;
    if (buffer_.emplace(registration->flight)) {
        registration_ = registration;
        ++registration->hits;
    } else if (!registration->automatic) {
        raise_state("the registered buffer is closed");
    }
}

Outcome run(const Request& request, const std::function<bool(std::int64_t)>& poll) {
    refuse_after_fork();
    const Held held(request.file, request.registration.get());
    const DeviceScope scope(request.runtime, request.device);
    refuse_capture(request.runtime, request.stream);
    Outcome outcome;
    if (held.registration() == request.registration.get()) {
        outcome = run_chunks(request, poll);
    } else {
        Request on_the_fly = request;
        on_the_fly.registration.reset();
        outcome = run_chunks(on_the_fly, poll);
    }
    for (std::size_t path = 0; path < kPaths; ++path) {
        add_total(request.direction, static_cast<Path>(path), outcome.moved[path]);
    }
    return outcome;
}

void add_total(Direction direction, Path path, std::int64_t nbytes) {
    if (nbytes == 0) return;
    auto& totals = all_totals[static_cast<std::size_t>(direction)][static_cast<std::size_t>(path)];
    totals.calls.fetch_add(1, std::memory_order_relaxed);
    totals.bytes.fetch_add(static_cast<std::uint64_t>(nbytes), std::memory_order_relaxed);
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
