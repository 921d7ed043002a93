// Streams that are really asynchronous: one worker thread each, work ordered by dependencies.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace hipemu {

struct Stream;
using StreamPointer = std::shared_ptr<Stream>;

// Everything that was queued on `stream` up to and including number `sequence`.
struct Point {
    StreamPointer stream;
    std::uint64_t sequence = 0;
};

struct Stream {
    struct Operation {
        std::function<void()> run;
        std::vector<Point> after;
    };

    Stream(int device, unsigned flags, int priority)
        : device(device), flags(flags), priority(priority) {}
    const int device;
    const unsigned flags;
    const int priority;
    bool capturing = false;
    // The scheduler's, under its lock.
    std::deque<Operation> queue;
    std::uint64_t submitted = 0;
    std::uint64_t completed = 0;
    bool ending = false;
};

struct Event {
    unsigned flags = 0;
    Point point;
    // When the recorded point was reached, in milliseconds; shared with the queued operation.
    std::shared_ptr<double> reached = std::make_shared<double>(0);
};

// Besides the null streams.
std::size_t stream_count();
StreamPointer create_stream(int device, unsigned flags, int priority);
// Work that is queued still runs; then the thread ends.
void destroy_stream(const StreamPointer& stream);
// 0, 1 and 2 name the null stream of the current device. Null for what is no live stream.
StreamPointer resolve(void* handle);
// As resolve(), and null as well when the stream belongs to another device than the current one.
StreamPointer resolve_here(void* handle);

// Queues work. Null and blocking streams of a device wait for each other, as HIP's do. An
// exception of type int from `run` becomes the device's error.
Point enqueue(const StreamPointer& stream, std::function<void()> run,
              std::vector<Point> after = {});
Point now(const StreamPointer& stream);
bool reached(const Point& point);
void wait(const Point& point);
void synchronize(const StreamPointer& stream);
void synchronize_device(int device);

// Every operation begins this many microseconds late.
void set_delay(std::uint64_t microseconds);

}  // namespace hipemu
