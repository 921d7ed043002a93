// Device memory of this library's own: allocated here, freed with the last who refers to it.
#pragma once

#include <cstdint>

#include "check.hpp"

namespace hfa {

class DeviceMemory {
  public:
    // Throws Error (Runtime) where there is not so much.
    DeviceMemory(Platform platform, int device, std::uint64_t nbytes);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    const Platform platform;
    const int device;
    std::uintptr_t pointer() const { return reinterpret_cast<std::uintptr_t>(address_); }

  private:
    void* address_ = nullptr;
};

}  // namespace hfa
