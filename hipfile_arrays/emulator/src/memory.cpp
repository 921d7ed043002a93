#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "state.hpp"

namespace hipemu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr unsigned char kPoison = 0xA5;
// New memory is filled with a pattern up to here (the rest reads as zero): enough to show a missing
// write, and a sparse allocation of many GiB stays sparse.
constexpr std::size_t kPoisonedBytes = 1 << 20;
// Address space beyond the device's size, for guard pages and fragmentation.
constexpr std::size_t kAddressSlack = 4;

std::size_t round_up(std::size_t value, std::size_t step) {
    return (value + step - 1) / step * step;
}

// One device's two mappings and what is free in them.
struct Arena {
    char* device = nullptr;
    char* alias = nullptr;
    std::size_t span = 0;
    std::size_t used = 0;
    int fd = -1;
    std::map<std::size_t, std::size_t> taken;  // offset -> bytes, guard pages included

    explicit Arena(std::size_t bytes) : span(bytes * kAddressSlack) {
        fd = memfd_create("hipemu-device", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, static_cast<off_t>(span)) != 0) die("memfd_create");
        device = map(PROT_NONE);
        alias = map(PROT_READ | PROT_WRITE);
    }

    char* map(int protection) const {
        void* address = mmap(nullptr, span, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (address == MAP_FAILED) die("mmap");
        madvise(address, span, MADV_DONTFORK);
        return static_cast<char*>(address);
    }

    [[noreturn]] static void die(const char* call) {
        std::fprintf(stderr, "hipemu: no address space for the emulated device: %s failed\n", call);
        std::abort();
    }

    std::size_t first_fit(std::size_t bytes) const {
        std::size_t at = kPage;  // never the very first page: a guard below the first allocation
        for (const auto& [offset, length] : taken) {
            if (offset - at >= bytes) break;
            at = offset + length;
        }
        return at + bytes <= span ? at : 0;
    }
};

struct World {
    std::shared_mutex mutex;
    std::map<std::uintptr_t, Allocation> allocations;
    std::vector<std::unique_ptr<Arena>> arenas;
    int kernels = 0;
};

World& world() {
    static World* all = [] {
        auto* made = new World;
        for (int i = 0; i < device_count(); ++i) {
            made->arenas.push_back(std::make_unique<Arena>(device_bytes()));
        }
        return made;
    }();
    return *all;
}

bool strict_guard() {
    static const bool strict = environment_flag("HIPFILE_ARRAYS_EMULATOR_GUARD");
    return strict;
}

// The allocation holding `address`; the caller holds the lock.
const Allocation* find_locked(const World& all, std::uintptr_t address) {
    auto after = all.allocations.upper_bound(address);
    if (after == all.allocations.begin()) return nullptr;
    const Allocation& found = std::prev(after)->second;
    return address - found.base < std::max<std::size_t>(found.size, 1) ? &found : nullptr;
}

// Whether any allocation shares a byte with [start, start + size); the caller holds the lock.
bool overlaps_locked(const World& all, std::uintptr_t start, std::size_t size) {
    if (find_locked(all, start)) return true;
    const auto next = all.allocations.upper_bound(start);
    return next != all.allocations.end() && next->first - start < size;
}

bool is_writable(std::uintptr_t start, std::size_t size) {
    std::ifstream maps("/proc/self/maps");
    std::string line;
    std::uintptr_t reached = start;
    while (reached < start + size && std::getline(maps, line)) {
        std::uintptr_t first = 0;
        std::uintptr_t end = 0;
        char read = 0;
        char write = 0;
        if (std::sscanf(line.c_str(), "%lx-%lx %c%c", &first, &end, &read, &write) != 4) continue;
        if (end <= reached) continue;
        if (first > reached || write != 'w') return false;
        reached = end;
    }
    return reached >= start + size;
}

void protect(const Allocation& allocation, int protection) {
    const std::uintptr_t first = allocation.base / kPage * kPage;
    const std::uintptr_t end =
        round_up(allocation.base + std::max<std::size_t>(allocation.size, 1), kPage);
    mprotect(reinterpret_cast<void*>(first), end - first, protection);
}

// Makes an allocation of room that is reserved. The caller holds the lock.
std::uintptr_t record(World& all, Arena& arena, std::size_t at, std::size_t size, int device) {
    const auto base = reinterpret_cast<std::uintptr_t>(arena.device + at);
    const Allocation& made = all.allocations[base] =
        Allocation{base, size, kDevice, device, false, 0};
    arena.used += size;
    std::memset(arena.alias + at, kPoison, std::min(size, kPoisonedBytes));
    if (all.kernels > 0) protect(made, PROT_READ | PROT_WRITE);
    return base;
}

// Reserves room in the arena for an allocation and a guard page. The caller holds the lock.
std::uintptr_t place(World& all, Arena& arena, std::size_t size, int device) {
    const std::size_t body = round_up(std::max<std::size_t>(size, 1), kPage);
    const std::size_t offset = arena.first_fit(body + kPage);
    if (offset == 0) return 0;
    arena.taken[offset] = body + kPage;
    std::size_t at = offset;
    if (strict_guard()) at += body - round_up(std::max<std::size_t>(size, 1), 16);
    return record(all, arena, at, size, device);
}

void give_back_device(World& all, const Allocation& allocation) {
    Arena& arena = *all.arenas[static_cast<std::size_t>(allocation.device)];
    const auto at =
        static_cast<std::size_t>(reinterpret_cast<char*>(allocation.base) - arena.device) / kPage *
        kPage;
    protect(allocation, PROT_NONE);
    const std::size_t body = round_up(std::max<std::size_t>(allocation.size, 1), kPage);
    fallocate(arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
              static_cast<off_t>(body));
    arena.taken.erase(at);
    arena.used -= allocation.size;
}

}  // namespace

std::size_t device_bytes() {
    static const std::size_t bytes =
        round_up(environment_number("HIPFILE_ARRAYS_EMULATOR_MEMORY", std::size_t{8} << 30), kPage);
    return bytes;
}

std::size_t used_bytes(int device) {
    World& all = world();
    const std::shared_lock lock(all.mutex);
    return all.arenas[static_cast<std::size_t>(device)]->used;
}

int allocate_device(std::size_t size, int device, void** address) {
    World& all = world();
    const std::unique_lock lock(all.mutex);
    Arena& arena = *all.arenas[static_cast<std::size_t>(device)];
    if (size > device_bytes() - arena.used) return kOutOfMemory;
    const std::uintptr_t base = place(all, arena, size, device);
    if (base == 0) return kOutOfMemory;
    *address = reinterpret_cast<void*>(base);
    return kSuccess;
}

int allocate_segments(std::size_t size, int count, int device, void** address) {
    World& all = world();
    const std::unique_lock lock(all.mutex);
    Arena& arena = *all.arenas[static_cast<std::size_t>(device)];
    size = round_up(size, kPage);
    const std::size_t whole = size * static_cast<std::size_t>(count);
    if (whole > device_bytes() - arena.used) return kOutOfMemory;
    const std::size_t offset = arena.first_fit(whole + kPage);
    if (offset == 0) return kOutOfMemory;
    for (int i = 0; i < count; ++i) {
        const std::size_t at = offset + static_cast<std::size_t>(i) * size;
        arena.taken[at] = size + (i + 1 == count ? kPage : 0);
        record(all, arena, at, size, device);
    }
    *address = arena.device + offset;
    return kSuccess;
}

int allocate_host(std::size_t size, int type, int device, unsigned flags, void** address) {
    const std::size_t bytes = round_up(std::max<std::size_t>(size, 1), kPage);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return kOutOfMemory;
    World& all = world();
    const std::unique_lock lock(all.mutex);
    const auto base = reinterpret_cast<std::uintptr_t>(memory);
    all.allocations[base] = Allocation{base, size, type, device, false, flags};
    *address = memory;
    return kSuccess;
}

int release(void* address, int expected_type) {
    World& all = world();
    const std::unique_lock lock(all.mutex);
    const auto found = all.allocations.find(reinterpret_cast<std::uintptr_t>(address));
    if (found == all.allocations.end()) return kInvalidValue;
    const Allocation allocation = found->second;
    const bool fits = expected_type == kHost
                          ? allocation.type == kHost && !allocation.registered
                          : allocation.type == kDevice || allocation.type == kManaged;
    if (!fits) return kInvalidValue;
    all.allocations.erase(found);
    if (allocation.type == kDevice) {
        give_back_device(all, allocation);
    } else {
        munmap(address, round_up(std::max<std::size_t>(allocation.size, 1), kPage));
    }
    return kSuccess;
}

int register_host(void* address, std::size_t size, unsigned flags, int device) {
    if (!address || size == 0) return kInvalidValue;
    // What the kernel would refuse to pin must not be registered either. A read-only mapping may
    // be registered read-only, and no other way.
    unsigned char in_core = 0;
    const auto first = reinterpret_cast<std::uintptr_t>(address) / kPage * kPage;
    if (mincore(reinterpret_cast<void*>(first), kPage, &in_core) != 0) return kInvalidValue;
    unsigned char probe = 0;
    if (!copy_bytes(&probe, address, 1) ||
        !copy_bytes(&probe, static_cast<char*>(address) + size - 1, 1)) {
        return kInvalidValue;
    }
    const auto base = reinterpret_cast<std::uintptr_t>(address);
    if (!(flags & kHostRegisterReadOnly) && !is_writable(base, size)) return kInvalidValue;
    World& all = world();
    const std::unique_lock lock(all.mutex);
    if (overlaps_locked(all, base, size)) return kHostMemoryAlreadyRegistered;
    all.allocations[base] = Allocation{base, size, kHost, device, true, flags};
    return kSuccess;
}

int unregister_host(void* address) {
    World& all = world();
    const std::unique_lock lock(all.mutex);
    const auto found = all.allocations.find(reinterpret_cast<std::uintptr_t>(address));
    if (found == all.allocations.end() || !found->second.registered) {
        return kHostMemoryNotRegistered;
    }
    all.allocations.erase(found);
    return kSuccess;
}

std::optional<Allocation> find(const void* address) {
    World& all = world();
    const std::shared_lock lock(all.mutex);
    const Allocation* found = find_locked(all, reinterpret_cast<std::uintptr_t>(address));
    if (!found) return std::nullopt;
    return *found;
}

void visit_allocations(const std::function<void(const Allocation&)>& visit) {
    World& all = world();
    const std::shared_lock lock(all.mutex);
    for (const auto& [base, allocation] : all.allocations) visit(allocation);
}

void* accessible(const void* address, std::size_t size) {
    World& all = world();
    const std::shared_lock lock(all.mutex);
    const auto start = reinterpret_cast<std::uintptr_t>(address);
    const Allocation* found = find_locked(all, start);
    if (!found || found->type != kDevice) {
        for (const auto& arena : all.arenas) {
            const auto base = reinterpret_cast<std::uintptr_t>(arena->device);
            if (start >= base && start < base + arena->span) return nullptr;  // freed, or a guard
        }
        // The runtime refuses to reach beyond host memory that it knows.
        if (found && size > found->base + found->size - start) return nullptr;
        return const_cast<void*>(address);
    }
    Arena& arena = *all.arenas[static_cast<std::size_t>(found->device)];
    // Neighbouring segments continue one another.
    std::uintptr_t end = found->base + found->size;
    while (end < start + size) {
        const Allocation* next = find_locked(all, end);
        if (!next || next->type != kDevice) return nullptr;
        end = next->base + next->size;
    }
    return arena.alias + (reinterpret_cast<const char*>(address) - arena.device);
}

namespace {

// Memory of the emulator's own never does; what the application owns may be a file's.
bool may_lose_pages(const void* address) {
    World& all = world();
    const auto at = static_cast<const char*>(address);
    for (const auto& arena : all.arenas) {
        if (at >= arena->alias && at < arena->alias + arena->span) return false;
    }
    const std::optional<Allocation> found = find(address);
    return !found || found->registered;
}

}  // namespace

bool copy_bytes(void* to, const void* from, std::size_t size) {
    if (!may_lose_pages(from)) {
        std::memmove(to, from, size);
        return true;
    }
    // The kernel copies: pages that are gone are an error to it, not a signal to us.
    iovec local{to, size};
    iovec remote{const_cast<void*>(from), size};
    std::size_t done = 0;
    while (done < size) {
        const ssize_t moved = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (moved <= 0) return false;
        done += static_cast<std::size_t>(moved);
        local = {static_cast<char*>(to) + done, size - done};
        remote = {static_cast<char*>(const_cast<void*>(from)) + done, size - done};
    }
    return true;
}

KernelAccess::KernelAccess() {
    World& all = world();
    const std::unique_lock lock(all.mutex);
    if (all.kernels++ > 0) return;
    for (const auto& [base, allocation] : all.allocations) {
        if (allocation.type == kDevice) protect(allocation, PROT_READ | PROT_WRITE);
    }
}

KernelAccess::~KernelAccess() {
    World& all = world();
    const std::unique_lock lock(all.mutex);
    if (--all.kernels > 0) return;
    for (const auto& arena : all.arenas) mprotect(arena->device, arena->span, PROT_NONE);
}

std::string describe(const void* address) {
    World& all = world();
    const std::shared_lock lock(all.mutex);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    auto after = all.allocations.upper_bound(at);
    if (after == all.allocations.begin()) return "no allocation lies below it";
    const Allocation& below = std::prev(after)->second;
    return "nearest allocation: " + std::to_string(below.size) + " bytes, offset " +
           std::to_string(at - below.base);
}

}  // namespace hipemu
