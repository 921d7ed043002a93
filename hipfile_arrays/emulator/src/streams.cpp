#include "streams.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "state.hpp"

namespace hipemu {

// The one lock over all queues; nothing that takes time runs under it.
struct Scheduler {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<StreamPointer> streams;  // live ones
    std::array<StreamPointer, 16> null_streams;

    static Scheduler& instance() {
        static Scheduler* scheduler = new Scheduler;
        return *scheduler;
    }

    bool is_reached(const Point& point) const {
        return !point.stream || point.stream->completed >= point.sequence;
    }

    StreamPointer null_stream(int device) {
        StreamPointer& stream = null_streams[static_cast<std::size_t>(device)];
        if (!stream) stream = start(device, 0, 0);
        return stream;
    }

    // The caller holds the lock.
    StreamPointer start(int device, unsigned flags, int priority) {
        auto stream = std::make_shared<Stream>(device, flags, priority);
        streams.push_back(stream);
        // The application's signals are not this thread's business.
        sigset_t all;
        sigset_t former;
        sigfillset(&all);
        sigdelset(&all, SIGSEGV);
        sigdelset(&all, SIGBUS);
        pthread_sigmask(SIG_SETMASK, &all, &former);
        std::thread([this, stream] { work(stream); }).detach();
        pthread_sigmask(SIG_SETMASK, &former, nullptr);
        return stream;
    }

    void work(const StreamPointer& stream);
    std::vector<Point> implicit_order(const StreamPointer& stream);
    std::atomic<std::uint64_t> delay{environment_number("HIPFILE_ARRAYS_EMULATOR_LATE_US", 0)};
    const bool synchronous = environment_flag("HIPFILE_ARRAYS_EMULATOR_SYNC");
};

void Scheduler::work(const StreamPointer& stream) {
    set_current_device(stream->device);
    std::unique_lock lock(mutex);
    for (;;) {
        changed.wait(lock, [&] { return !stream->queue.empty() || stream->ending; });
        if (stream->queue.empty()) {
            std::erase(streams, stream);
            return;
        }
        Stream::Operation operation = std::move(stream->queue.front());
        stream->queue.pop_front();
        changed.wait(lock, [&] {
            return std::all_of(operation.after.begin(), operation.after.end(),
                               [&](const Point& point) { return is_reached(point); });
        });
        lock.unlock();
        if (const std::uint64_t late = delay; late > 0) usleep(static_cast<useconds_t>(late));
        try {
            operation.run();
        } catch (int code) {
            set_device_error(stream->device, code);
        }
        operation = {};
        lock.lock();
        ++stream->completed;
        changed.notify_all();
    }
}

std::vector<Point> Scheduler::implicit_order(const StreamPointer& stream) {
    const StreamPointer null = null_stream(stream->device);
    std::vector<Point> after;
    auto pending = [&](const StreamPointer& other) {
        if (other->submitted > other->completed) after.push_back({other, other->submitted});
    };
    if (stream == null) {
        for (const StreamPointer& other : streams) {
            if (other != null && other->device == stream->device &&
                !(other->flags & kStreamNonBlocking)) {
                pending(other);
            }
        }
    } else if (!(stream->flags & kStreamNonBlocking)) {
        pending(null);
    }
    return after;
}

std::size_t stream_count() {
    Scheduler& scheduler = Scheduler::instance();
    const std::lock_guard lock(scheduler.mutex);
    const auto made = [&](const StreamPointer& stream) {
        const auto& nulls = scheduler.null_streams;
        return !stream->ending && std::find(nulls.begin(), nulls.end(), stream) == nulls.end();
    };
    return static_cast<std::size_t>(
        std::count_if(scheduler.streams.begin(), scheduler.streams.end(), made));
}

StreamPointer create_stream(int device, unsigned flags, int priority) {
    Scheduler& scheduler = Scheduler::instance();
    const std::lock_guard lock(scheduler.mutex);
    return scheduler.start(device, flags, priority);
}

void destroy_stream(const StreamPointer& stream) {
    Scheduler& scheduler = Scheduler::instance();
    const std::lock_guard lock(scheduler.mutex);
    stream->ending = true;
    scheduler.changed.notify_all();
}

StreamPointer resolve(void* handle) {
    Scheduler& scheduler = Scheduler::instance();
    const std::lock_guard lock(scheduler.mutex);
    // hipStreamLegacy is 1, hipStreamPerThread 2; here both are the null stream.
    if (reinterpret_cast<std::uintptr_t>(handle) <= 2) {
        return scheduler.null_stream(current_device());
    }
    for (const StreamPointer& stream : scheduler.streams) {
        if (stream.get() == handle && !stream->ending) return stream;
    }
    return nullptr;
}

StreamPointer resolve_here(void* handle) {
    StreamPointer stream = resolve(handle);
    if (stream && stream->device != current_device()) return nullptr;
    return stream;
}

Point enqueue(const StreamPointer& stream, std::function<void()> run, std::vector<Point> after) {
    Scheduler& scheduler = Scheduler::instance();
    std::unique_lock lock(scheduler.mutex);
    std::vector<Point> implicit = scheduler.implicit_order(stream);
    after.insert(after.end(), implicit.begin(), implicit.end());
    stream->queue.push_back({std::move(run), std::move(after)});
    const Point point{stream, ++stream->submitted};
    scheduler.changed.notify_all();
    if (scheduler.synchronous) {
        scheduler.changed.wait(lock, [&] { return scheduler.is_reached(point); });
    }
    return point;
}

Point now(const StreamPointer& stream) {
    Scheduler& scheduler = Scheduler::instance();
    const std::lock_guard lock(scheduler.mutex);
    return {stream, stream->submitted};
}

bool reached(const Point& point) {
    Scheduler& scheduler = Scheduler::instance();
    const std::lock_guard lock(scheduler.mutex);
    return scheduler.is_reached(point);
}

void wait(const Point& point) {
    Scheduler& scheduler = Scheduler::instance();
    std::unique_lock lock(scheduler.mutex);
    scheduler.changed.wait(lock, [&] { return scheduler.is_reached(point); });
}

void synchronize(const StreamPointer& stream) {
    Scheduler& scheduler = Scheduler::instance();
    std::unique_lock lock(scheduler.mutex);
    std::vector<Point> points;
    if (stream->submitted > stream->completed) points.push_back({stream, stream->submitted});
    // The null stream stands for the blocking ones too.
    if (stream == scheduler.null_streams[static_cast<std::size_t>(stream->device)]) {
        const auto implicit = scheduler.implicit_order(stream);
        points.insert(points.end(), implicit.begin(), implicit.end());
    }
    scheduler.changed.wait(lock, [&] {
        return std::all_of(points.begin(), points.end(),
                           [&](const Point& point) { return scheduler.is_reached(point); });
    });
}

void synchronize_device(int device) {
    Scheduler& scheduler = Scheduler::instance();
    std::unique_lock lock(scheduler.mutex);
    std::vector<Point> points;
    for (const StreamPointer& stream : scheduler.streams) {
        if (stream->device == device) points.push_back({stream, stream->submitted});
    }
    scheduler.changed.wait(lock, [&] {
        return std::all_of(points.begin(), points.end(),
                           [&](const Point& point) { return scheduler.is_reached(point); });
    });
}

void set_delay(std::uint64_t microseconds) { Scheduler::instance().delay = microseconds; }

}  // namespace hipemu

HIPEMU_API void hipemuSetDelay(std::uint64_t microseconds) { hipemu::set_delay(microseconds); }
