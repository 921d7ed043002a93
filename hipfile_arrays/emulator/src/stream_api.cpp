// Streams, events and host functions.
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <mutex>

#include "memory.hpp"
#include "state.hpp"
#include "streams.hpp"

using namespace hipemu;

namespace {

double milliseconds() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

int make_stream(void** handle, unsigned flags, int priority) {
    *handle = create_stream(current_device(), flags, priority).get();
    return kSuccess;
}

// One thread may record an event that another asks about.
std::mutex event_mutex;

Point recorded_point(const void* event) {
    const std::lock_guard lock(event_mutex);
    return static_cast<const Event*>(event)->point;
}

std::atomic<std::uint64_t> events{0};

constexpr unsigned kEventDisableTiming = 2;

// hipStreamWaitValueGte, Eq, And, Nor.
constexpr unsigned kWaitEqual = 1;
constexpr unsigned kWaitAnd = 2;
constexpr unsigned kWaitNor = 3;

bool is_met(std::uint32_t found, std::uint32_t value, unsigned flags, std::uint32_t mask) {
    if (flags == kWaitEqual) return (found & mask) == value;
    if (flags == kWaitAnd) return ((found & mask) & value) != 0;
    if (flags == kWaitNor) return ~((found & mask) | (value & mask)) != 0;
    return (found & mask) >= value;
}

int synchronized(const StreamPointer& stream) {
    synchronize(stream);
    return fail(take_device_error(stream->device));
}

}  // namespace

HIPEMU_API int hipStreamCreate(void** handle) {
    HIPEMU_ENTRY("hipStreamCreate");
    return make_stream(handle, 0, 0);
}

HIPEMU_API int hipStreamCreateWithFlags(void** handle, unsigned flags) {
    HIPEMU_ENTRY("hipStreamCreateWithFlags");
    return make_stream(handle, flags, 0);
}

HIPEMU_API int hipStreamCreateWithPriority(void** handle, unsigned flags, int priority) {
    HIPEMU_ENTRY("hipStreamCreateWithPriority");
    return make_stream(handle, flags, priority);
}

HIPEMU_API int hipStreamDestroy(void* handle) {
    HIPEMU_ENTRY("hipStreamDestroy");
    const StreamPointer stream = resolve(handle);
    if (!stream || reinterpret_cast<std::uintptr_t>(handle) <= 2) return fail(kInvalidHandle);
    destroy_stream(stream);
    return kSuccess;
}

HIPEMU_API int hipStreamSynchronize(void* handle) {
    HIPEMU_ENTRY("hipStreamSynchronize");
    const StreamPointer stream = resolve(handle);
    return stream ? synchronized(stream) : fail(kInvalidHandle);
}

HIPEMU_API int hipStreamQuery(void* handle) {
    HIPEMU_ENTRY("hipStreamQuery");
    const StreamPointer stream = resolve(handle);
    if (!stream) return fail(kInvalidHandle);
    return reached(now(stream)) ? kSuccess : kNotReady;
}

HIPEMU_API int hipStreamWaitEvent(void* handle, void* event, unsigned) {
    HIPEMU_ENTRY("hipStreamWaitEvent");
    const StreamPointer stream = resolve(handle);
    if (!stream || !event) return fail(kInvalidHandle);
    const Point point = recorded_point(event);
    if (point.stream) enqueue(stream, [] {}, {point});
    return kSuccess;
}

HIPEMU_API int hipStreamGetFlags(void* handle, unsigned* flags) {
    HIPEMU_ENTRY("hipStreamGetFlags");
    const StreamPointer stream = resolve(handle);
    if (!stream) return fail(kInvalidHandle);
    *flags = stream->flags;
    return kSuccess;
}

HIPEMU_API int hipStreamGetPriority(void* handle, int* priority) {
    HIPEMU_ENTRY("hipStreamGetPriority");
    const StreamPointer stream = resolve(handle);
    if (!stream) return fail(kInvalidHandle);
    *priority = stream->priority;
    return kSuccess;
}

HIPEMU_API int hipStreamGetDevice(void* handle, int* device) {
    HIPEMU_ENTRY("hipStreamGetDevice");
    const StreamPointer stream = resolve(handle);
    if (!stream) return fail(kInvalidHandle);
    *device = stream->device;
    return kSuccess;
}

HIPEMU_API int hipGetStreamDeviceId(void* handle) {
    static Entry& counted = entry("hipGetStreamDeviceId");
    if (counted.enter() != 0) return -1;
    const StreamPointer stream = resolve(handle);
    return stream ? stream->device : -1;
}

HIPEMU_API int hipStreamIsCapturing(void* handle, int* status) {
    HIPEMU_ENTRY("hipStreamIsCapturing");
    const StreamPointer stream = resolve(handle);
    if (!stream) return fail(kInvalidHandle);
    *status = stream->capturing ? 1 : 0;
    return kSuccess;
}

HIPEMU_API int hipStreamAddCallback(void* handle, void (*call)(void*, int, void*), void* data,
                                    unsigned) {
    HIPEMU_ENTRY("hipStreamAddCallback");
    const StreamPointer stream = resolve(handle);
    if (!stream) return fail(kInvalidHandle);
    enqueue(stream, [=] { call(handle, kSuccess, data); });
    return kSuccess;
}

HIPEMU_API int hipLaunchHostFunc(void* handle, void (*call)(void*), void* data) {
    HIPEMU_ENTRY("hipLaunchHostFunc");
    const StreamPointer stream = resolve(handle);
    if (!stream) return fail(kInvalidHandle);
    enqueue(stream, [=] { call(data); });
    return kSuccess;
}

HIPEMU_API int hipStreamWaitValue32(void* handle, void* address, std::uint32_t value,
                                    unsigned flags, std::uint32_t mask) {
    HIPEMU_ENTRY("hipStreamWaitValue32");
    const StreamPointer stream = resolve(handle);
    if (!stream) return fail(kInvalidHandle);
    const auto found = find(address);
    if (!found || found->flags != kSignalMemory || flags > kWaitNor) return fail(kInvalidValue);
    auto* const word = static_cast<std::uint32_t*>(address);
    enqueue(stream, [=] {
        while (
            !is_met(std::atomic_ref(*word).load(std::memory_order_acquire), value, flags, mask)) {
            usleep(20);
        }
    });
    return kSuccess;
}

HIPEMU_API int hipStreamWriteValue32(void* handle, void* address, std::uint32_t value, unsigned) {
    HIPEMU_ENTRY("hipStreamWriteValue32");
    const StreamPointer stream = resolve(handle);
    if (!stream) return fail(kInvalidHandle);
    if (!find(address)) return fail(kInvalidValue);
    enqueue(stream, [=] {
        void* const target = accessible(address, sizeof(value));
        if (!target) throw int{kIllegalAddress};
        std::atomic_ref(*static_cast<std::uint32_t*>(target))
            .store(value, std::memory_order_release);
    });
    return kSuccess;
}

HIPEMU_API int hipEventCreateWithFlags(void** event, unsigned flags) {
    HIPEMU_ENTRY("hipEventCreateWithFlags");
    auto* made = new Event;
    made->flags = flags;
    *event = made;
    ++events;
    return kSuccess;
}

HIPEMU_API int hipEventCreate(void** event) {
    HIPEMU_ENTRY("hipEventCreate");
    *event = new Event;
    ++events;
    return kSuccess;
}

HIPEMU_API int hipEventDestroy(void* event) {
    HIPEMU_ENTRY("hipEventDestroy");
    if (!event) return fail(kInvalidHandle);
    delete static_cast<Event*>(event);
    --events;
    return kSuccess;
}

HIPEMU_API int hipEventRecord(void* event, void* handle) {
    HIPEMU_ENTRY("hipEventRecord");
    const StreamPointer stream = resolve(handle);
    if (!stream || !event) return fail(kInvalidHandle);
    auto* recorded = static_cast<Event*>(event);
    auto reached_at = std::make_shared<double>(0);
    const Point point = enqueue(stream, [reached_at] { *reached_at = milliseconds(); });
    const std::lock_guard lock(event_mutex);
    recorded->reached = reached_at;
    recorded->point = point;
    return kSuccess;
}

HIPEMU_API int hipEventSynchronize(void* event) {
    HIPEMU_ENTRY("hipEventSynchronize");
    if (!event) return fail(kInvalidHandle);
    const Point point = recorded_point(event);
    wait(point);
    return point.stream ? fail(take_device_error(point.stream->device)) : kSuccess;
}

HIPEMU_API int hipEventQuery(void* event) {
    HIPEMU_ENTRY("hipEventQuery");
    if (!event) return fail(kInvalidHandle);
    return reached(recorded_point(event)) ? kSuccess : kNotReady;
}

HIPEMU_API int hipEventElapsedTime(float* elapsed, void* start, void* end) {
    HIPEMU_ENTRY("hipEventElapsedTime");
    const auto* first = static_cast<Event*>(start);
    const auto* last = static_cast<Event*>(end);
    if (!first || !last || ((first->flags | last->flags) & kEventDisableTiming)) {
        return fail(kInvalidHandle);
    }
    const std::lock_guard lock(event_mutex);
    if (!first->point.stream || !last->point.stream) return fail(kInvalidHandle);
    if (!reached(first->point) || !reached(last->point)) return kNotReady;
    *elapsed = static_cast<float>(*last->reached - *first->reached);
    return kSuccess;
}

// For tests, through hipfile_arrays.emulator: makes a stream answer that it is being captured.
HIPEMU_API int hipemuSetCapturing(void* handle, int capturing) {
    const StreamPointer stream = resolve(handle);
    if (!stream) return kInvalidHandle;
    stream->capturing = capturing != 0;
    return kSuccess;
}

// For tests, through hipfile_arrays.emulator: what was made and not given back.
HIPEMU_API void hipemuVisitLive(void (*visit)(const char*, std::uint64_t)) {
    std::uint64_t device = 0, host = 0, registered = 0;
    visit_allocations([&](const Allocation& one) {
        if (one.type == kDevice) {
            ++device;
        } else if (one.registered) {
            ++registered;
        } else {
            ++host;
        }
    });
    visit("device allocations", device);
    visit("host allocations", host);
    visit("registered host ranges", registered);
    visit("streams", stream_count());
    visit("events", events);
}
