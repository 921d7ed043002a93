// Allocation, pointer queries, copies and fills.
#include <cstring>
#include <string>

#include "memory.hpp"
#include "state.hpp"
#include "streams.hpp"

using namespace hipemu;

namespace {

int type_of(const void* address) {
    const auto found = find(address);
    return found ? found->type : kUnregistered;
}

// Runs on a stream's thread. Reads and writes at most what accessible() grants.
void copy_now(void* to, const void* from, std::size_t size) {
    void* const target = accessible(to, size);
    // A registered file mapping is recognised by its own address, so only device memory is
    // translated.
    const void* const source =
        type_of(from) == kDevice || !accessible(from, size) ? accessible(from, size) : from;
    if (!target || !source || !copy_bytes(target, source, size)) throw int{kIllegalAddress};
}

// For calls that return when their work is done: its error, if it failed.
int finished(const StreamPointer& stream, const Point& done) {
    wait(done);
    return fail(take_device_error(stream->device));
}

int copy_on(const StreamPointer& stream, void* to, const void* from, std::size_t size, bool waits) {
    if (size == 0) return kSuccess;
    if (!to || !from) return fail(kInvalidValue);
    const bool from_pageable = type_of(from) == kUnregistered;
    const bool to_pageable = type_of(to) == kUnregistered;
    if (!accessible(to, size) || !accessible(from, size)) return fail(kInvalidValue);
    if (from_pageable && !to_pageable) {
        // As the real runtime: the host's bytes are taken before the call returns.
        auto bytes = std::make_shared<std::string>(static_cast<const char*>(from), size);
        const Point done = enqueue(stream, [=] {
            void* const target = accessible(to, size);
            if (!target) throw int{kIllegalAddress};
            std::memcpy(target, bytes->data(), size);
        });
        return waits ? finished(stream, done) : kSuccess;
    }
    const Point done = enqueue(stream, [=] { copy_now(to, from, size); });
    // Into pageable memory the real runtime waits too.
    return waits || to_pageable ? finished(stream, done) : kSuccess;
}

int set_on(const StreamPointer& stream, void* to, int value, std::size_t size, bool waits) {
    if (size == 0) return kSuccess;
    if (!accessible(to, size)) return fail(kInvalidValue);
    const Point done = enqueue(stream, [=] {
        void* const target = accessible(to, size);
        if (!target) throw int{kIllegalAddress};
        std::memset(target, value, size);
    });
    return waits ? finished(stream, done) : kSuccess;
}

}  // namespace

HIPEMU_API int hipMalloc(void** address, std::size_t size) {
    HIPEMU_ENTRY("hipMalloc");
    *address = nullptr;
    if (size == 0) return kSuccess;
    return fail(allocate_device(size, current_device(), address));
}

HIPEMU_API int hipMallocManaged(void** address, std::size_t size, unsigned flags) {
    HIPEMU_ENTRY("hipMallocManaged");
    *address = nullptr;
    if (size == 0) return fail(kInvalidValue);
    return fail(allocate_host(size, kManaged, current_device(), flags, address));
}

// Signal memory is what streams wait for (hipStreamWaitValue32); it has one size, and the host may
// touch it.
HIPEMU_API int hipExtMallocWithFlags(void** address, std::size_t size, unsigned flags) {
    HIPEMU_ENTRY("hipExtMallocWithFlags");
    *address = nullptr;
    if (size == 0) return kSuccess;
    if (flags != kSignalMemory) return fail(allocate_device(size, current_device(), address));
    if (size != sizeof(std::uint64_t)) return fail(kInvalidValue);
    return fail(allocate_host(size, kManaged, current_device(), kSignalMemory, address));
}

HIPEMU_API int hipHostMalloc(void** address, std::size_t size, unsigned flags) {
    HIPEMU_ENTRY("hipHostMalloc");
    *address = nullptr;
    if (size == 0) return kSuccess;
    return fail(allocate_host(size, kHost, current_device(), flags, address));
}

HIPEMU_API int hipFree(void* address) {
    HIPEMU_ENTRY("hipFree");
    if (!address) return kSuccess;
    const auto found = find(address);
    if (!found) return fail(kInvalidValue);
    // As the real one: nothing of the device that owns the memory may still use it. A peer that
    // does was not waited for.
    synchronize_device(found->device);
    return fail(release(address, kDevice));
}

HIPEMU_API int hipHostFree(void* address) {
    HIPEMU_ENTRY("hipHostFree");
    if (!address) return kSuccess;
    // Pinned memory is every device's.
    for (int device = 0; device < device_count(); ++device) synchronize_device(device);
    return fail(release(address, kHost));
}

HIPEMU_API int hipHostRegister(void* address, std::size_t size, unsigned flags) {
    HIPEMU_ENTRY("hipHostRegister");
    return fail(register_host(address, size, flags, current_device()));
}

HIPEMU_API int hipHostUnregister(void* address) {
    HIPEMU_ENTRY("hipHostUnregister");
    return fail(unregister_host(address));
}

HIPEMU_API int hipHostGetDevicePointer(void** device_address, void* address, unsigned) {
    HIPEMU_ENTRY("hipHostGetDevicePointer");
    if (type_of(address) != kHost) return fail(kInvalidValue);
    *device_address = address;
    return kSuccess;
}

HIPEMU_API int hipPointerGetAttributes(PointerAttributes* attributes, const void* address) {
    HIPEMU_ENTRY("hipPointerGetAttributes");
    if (!attributes || !address) return fail(kInvalidValue);
    *attributes = PointerAttributes{};
    const auto found = find(address);
    // HIP 6 and 7: unknown memory is an answer, not an error.
    if (!found) return kSuccess;
    attributes->type = found->type;
    attributes->device = found->device;
    attributes->device_pointer = const_cast<void*>(address);
    attributes->host_pointer = found->type == kDevice ? nullptr : const_cast<void*>(address);
    attributes->is_managed = found->type == kManaged ? 1 : 0;
    attributes->allocation_flags = found->flags;
    return kSuccess;
}

HIPEMU_API int hipMemGetAddressRange(void** base, std::size_t* size, void* address) {
    HIPEMU_ENTRY("hipMemGetAddressRange");
    const auto found = find(address);
    if (!found) return fail(kNotFound);
    if (base) *base = reinterpret_cast<void*>(found->base);
    if (size) *size = found->size;
    return kSuccess;
}

HIPEMU_API int hipMemcpyAsync(void* to, const void* from, std::size_t size, int, void* handle) {
    HIPEMU_ENTRY("hipMemcpyAsync");
    const StreamPointer stream = resolve_here(handle);
    if (!stream) return fail(kInvalidHandle);
    if (stream->capturing) return fail(kStreamCaptureUnsupported);
    return copy_on(stream, to, from, size, false);
}

HIPEMU_API int hipMemcpy(void* to, const void* from, std::size_t size, int) {
    HIPEMU_ENTRY("hipMemcpy");
    return copy_on(resolve(nullptr), to, from, size, true);
}

HIPEMU_API int hipMemcpyPeer(void* to, int, const void* from, int, std::size_t size) {
    HIPEMU_ENTRY("hipMemcpyPeer");
    return copy_on(resolve(nullptr), to, from, size, true);
}

HIPEMU_API int hipMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t size,
                                  void* handle) {
    HIPEMU_ENTRY("hipMemcpyPeerAsync");
    const StreamPointer stream = resolve(handle);
    if (!stream) return fail(kInvalidHandle);
    return copy_on(stream, to, from, size, false);
}

HIPEMU_API int hipMemset(void* to, int value, std::size_t size) {
    HIPEMU_ENTRY("hipMemset");
    return set_on(resolve(nullptr), to, value, size, true);
}

HIPEMU_API int hipMemsetAsync(void* to, int value, std::size_t size, void* handle) {
    HIPEMU_ENTRY("hipMemsetAsync");
    const StreamPointer stream = resolve_here(handle);
    return stream ? set_on(stream, to, value, size, false) : fail(kInvalidHandle);
}

HIPEMU_API int hipMemPrefetchAsync(const void*, std::size_t, int, void*) {
    HIPEMU_ENTRY("hipMemPrefetchAsync");
    return kSuccess;  // a hint
}

HIPEMU_API int hipMemAdvise(const void*, std::size_t, int, int) {
    HIPEMU_ENTRY("hipMemAdvise");
    return kSuccess;  // a hint
}

// For tests, through hipfile_arrays.emulator.
HIPEMU_API int hipemuAllocateSegments(void** base, std::size_t size, int count) {
    return allocate_segments(size, count, current_device(), base);
}
