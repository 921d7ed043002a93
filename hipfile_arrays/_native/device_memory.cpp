#include "device_memory.hpp"

#include "device.hpp"

namespace hfa {

DeviceMemory::DeviceMemory(Platform platform, int device, std::uint64_t nbytes)
    : platform(platform), device(device) {
    refuse_after_fork();
    if (nbytes == 0) return;
    const Runtime& table = runtime(platform);
    const DeviceScope scope(table, device);
    check_runtime(table, table.Malloc(&address_, nbytes), table.Malloc.name);
}

DeviceMemory::~DeviceMemory() {
    if (!address_ || is_forked()) return;
    try {
        const Runtime& table = runtime(platform);
        const DeviceScope scope(table, device);
        table.Free(address_);
    } catch (const Error&) {
        // The device is lost, and its memory with it.
    }
}

}  // namespace hfa
