// The part of HIP's C ABI (ROCm 7) that the emulated runtime speaks: codes, structs, constants.
#pragma once

#include <cstddef>
#include <cstdint>

#define HIPEMU_API extern "C" __attribute__((visibility("default")))

namespace hipemu {

// hipError_t
enum : int {
    kSuccess = 0,
    kInvalidValue = 1,
    kOutOfMemory = 2,
    kNotInitialized = 3,
    kInvalidDevice = 101,
    kNoBinaryForGpu = 209,
    kInvalidHandle = 400,
    kNotFound = 500,
    kNotReady = 600,
    kIllegalAddress = 700,
    kPeerAccessAlreadyEnabled = 704,
    kHostMemoryAlreadyRegistered = 712,
    kHostMemoryNotRegistered = 713,
    kLaunchFailure = 719,
    kNotSupported = 801,
    kStreamCaptureUnsupported = 900,
};

// hipMemoryType, HIP 6 and 7
enum : int { kUnregistered = 0, kHost = 1, kDevice = 2, kManaged = 3 };

struct PointerAttributes {  // hipPointerAttribute_t
    int type;
    int device;
    void* device_pointer;
    void* host_pointer;
    int is_managed;
    unsigned allocation_flags;
};
static_assert(sizeof(PointerAttributes) == 32);

// hipDeviceProp_tR0600 of HIP 7.1 is 1472 bytes; only the fields that CuPy reads are filled, at
// their offsets, so that no AMD header is needed to build.
inline constexpr std::size_t kPropertiesSize = 1472;

inline constexpr int kHipVersion = 70051831;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kHostRegisterReadOnly = 8;

}  // namespace hipemu
