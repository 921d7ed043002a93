// Device memory that the host cannot touch, and the truth about every pointer.
//
// Each device is one sparse memory file, mapped twice: at the addresses that hipMalloc hands out,
// without any access, and again (the alias) readable and writable, for the emulator's own use. So
// host code that touches device memory faults as it would on a GPU (a system call gets EFAULT),
// while copies and emulated DMA work on the alias. Kernels run on the device addresses themselves:
// KernelAccess opens them while one runs; a host access at that moment goes unnoticed.
//
// Every allocation is page-aligned and followed by an unmapped guard page. Freed addresses are
// given out again, lowest first: code that keeps a stale pointer meets somebody else's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace hipemu {

struct Allocation {
    std::uintptr_t base = 0;
    std::size_t size = 0;  // as asked for
    int type = 0;          // kHost, kDevice, kManaged
    int device = 0;
    bool registered = false;  // host memory that hipHostRegister was given
    unsigned flags = 0;
};

inline constexpr unsigned kSignalMemory = 2;  // hipMallocSignalMemory

// hipMalloc and kin: a hipError_t, and the address.
int allocate_device(std::size_t size, int device, void** address);
int allocate_host(std::size_t size, int type, int device, unsigned flags, void** address);
int release(void* address, int expected_type);
int register_host(void* address, std::size_t size, unsigned flags, int device);
int unregister_host(void* address);
// Several allocations side by side in one address range, as the virtual memory API (and PyTorch's
// expandable segments) make them: each answers for itself only.
int allocate_segments(std::size_t size, int count, int device, void** address);

// The allocation that holds `address`, if any.
std::optional<Allocation> find(const void* address);
// Calls `visit` for everything allocated or registered.
void visit_allocations(const std::function<void(const Allocation&)>& visit);
std::size_t used_bytes(int device);
std::size_t device_bytes();

// Where the emulator itself may touch [address, address + size): the alias for device memory, the
// address itself for any other. Null when the range reaches out of device memory.
void* accessible(const void* address, std::size_t size);

// memcpy between accessible() ranges; false instead of SIGBUS when a registered file mapping has
// lost its pages.
bool copy_bytes(void* to, const void* from, std::size_t size);

class KernelAccess {
  public:
    KernelAccess();
    ~KernelAccess();
    KernelAccess(const KernelAccess&) = delete;
    KernelAccess& operator=(const KernelAccess&) = delete;
};

// For fault messages: the nearest allocation and the offset into it.
std::string describe(const void* address);

}  // namespace hipemu
