// hipInit, devices, properties, versions, errors.
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "memory.hpp"
#include "state.hpp"
#include "streams.hpp"

using namespace hipemu;

namespace {

constexpr std::array<std::pair<int, const char*>, 62> kErrors{{
    {0, "hipSuccess|no error"},
    {1, "hipErrorInvalidValue|invalid argument"},
    {2, "hipErrorOutOfMemory|out of memory"},
    {3, "hipErrorNotInitialized|initialization error"},
    {4, "hipErrorDeinitialized|driver shutting down"},
    {5, "hipErrorProfilerDisabled|profiler disabled while using external profiling tool"},
    {9, "hipErrorInvalidConfiguration|invalid configuration argument"},
    {12, "hipErrorInvalidPitchValue|invalid pitch argument"},
    {13, "hipErrorInvalidSymbol|invalid device symbol"},
    {17, "hipErrorInvalidDevicePointer|invalid device pointer"},
    {21, "hipErrorInvalidMemcpyDirection|invalid copy direction for memcpy"},
    {35, "hipErrorInsufficientDriver|driver version is insufficient for runtime version"},
    {52, "hipErrorMissingConfiguration|__global__ function call is not configured"},
    {53, "hipErrorPriorLaunchFailure|unspecified launch failure in prior launch"},
    {98, "hipErrorInvalidDeviceFunction|invalid device function"},
    {100, "hipErrorNoDevice|no ROCm-capable device is detected"},
    {101, "hipErrorInvalidDevice|invalid device ordinal"},
    {200, "hipErrorInvalidImage|device kernel image is invalid"},
    {201, "hipErrorInvalidContext|invalid device context"},
    {205, "hipErrorMapFailed|mapping of buffer object failed"},
    {206, "hipErrorUnmapFailed|unmapping of buffer object failed"},
    {207, "hipErrorArrayIsMapped|array is mapped"},
    {208, "hipErrorAlreadyMapped|resource already mapped"},
    {209, "hipErrorNoBinaryForGpu|no kernel image is available for execution on the device"},
    {210, "hipErrorAlreadyAcquired|resource already acquired"},
    {211, "hipErrorNotMapped|resource not mapped"},
    {214, "hipErrorECCNotCorrectable|uncorrectable ECC error encountered"},
    {215, "hipErrorUnsupportedLimit|limit is not supported on this architecture"},
    {216,
     "hipErrorContextAlreadyInUse|exclusive-thread device already in use by a different thread"},
    {217, "hipErrorPeerAccessUnsupported|peer access is not supported between these two devices"},
    {300, "hipErrorInvalidSource|device kernel image is invalid"},
    {301, "hipErrorFileNotFound|file not found"},
    {302, "hipErrorSharedObjectSymbolNotFound|shared object symbol not found"},
    {303, "hipErrorSharedObjectInitFailed|shared object initialization failed"},
    {304, "hipErrorOperatingSystem|OS call failed or operation not supported on this OS"},
    {400, "hipErrorInvalidHandle|invalid resource handle"},
    {401, "hipErrorIllegalState|the operation cannot be performed in the present state"},
    {500, "hipErrorNotFound|named symbol not found"},
    {600, "hipErrorNotReady|device not ready"},
    {700, "hipErrorIllegalAddress|an illegal memory access was encountered"},
    {701, "hipErrorLaunchOutOfResources|too many resources requested for launch"},
    {702, "hipErrorLaunchTimeOut|the launch timed out and was terminated"},
    {704, "hipErrorPeerAccessAlreadyEnabled|peer access is already enabled"},
    {705, "hipErrorPeerAccessNotEnabled|peer access has not been enabled"},
    {708, "hipErrorSetOnActiveProcess|cannot set while device is active in this process"},
    {709, "hipErrorContextIsDestroyed|context is destroyed"},
    {710, "hipErrorAssert|device-side assert triggered"},
    {712,
     "hipErrorHostMemoryAlreadyRegistered|part or all of the requested memory range is already "
     "mapped"},
    {713,
     "hipErrorHostMemoryNotRegistered|pointer does not correspond to a registered memory region"},
    {719, "hipErrorLaunchFailure|unspecified launch failure"},
    {720, "hipErrorCooperativeLaunchTooLarge|too many blocks in cooperative launch"},
    {801, "hipErrorNotSupported|operation not supported"},
    {900, "hipErrorStreamCaptureUnsupported|operation not permitted when stream is capturing"},
    {901,
     "hipErrorStreamCaptureInvalidated|operation failed due to a previous error during capture"},
    {902,
     "hipErrorStreamCaptureMerge|operation would result in a merge of separate capture sequences"},
    {903, "hipErrorStreamCaptureUnmatched|capture was not ended in the same stream as it began"},
    {904, "hipErrorStreamCaptureUnjoined|capturing stream has unjoined work"},
    {905, "hipErrorStreamCaptureIsolation|dependency created on uncaptured work in another stream"},
    {906,
     "hipErrorStreamCaptureImplicit|operation would make the legacy stream depend on a capturing "
     "blocking stream"},
    {907,
     "hipErrorCapturedEvent|operation not permitted on an event last recorded in a capturing "
     "stream"},
    {908,
     "hipErrorStreamCaptureWrongThread|attempt to terminate a thread-local capture sequence from "
     "another thread"},
    {999, "hipErrorUnknown|unknown error"},
}};

// "name|text", split on first use into two NUL-ended strings.
std::pair<const char*, const char*> words_of(int code) {
    static const auto* table = [] {
        auto* made = new std::array<std::pair<std::string, std::string>, kErrors.size()>;
        for (std::size_t i = 0; i < kErrors.size(); ++i) {
            const std::string both = kErrors[i].second;
            (*made)[i] = {both.substr(0, both.find('|')), both.substr(both.find('|') + 1)};
        }
        return made;
    }();
    for (std::size_t i = 0; i < kErrors.size(); ++i) {
        if (kErrors[i].first == code)
            return {(*table)[i].first.c_str(), (*table)[i].second.c_str()};
    }
    return {"hipErrorUnknown", "unknown error"};
}

bool is_device(int device) { return device >= 0 && device < device_count(); }

}  // namespace

HIPEMU_API int hipInit(unsigned) {
    HIPEMU_ENTRY("hipInit");
    return kSuccess;
}

HIPEMU_API int hipGetDeviceCount(int* count) {
    HIPEMU_ENTRY("hipGetDeviceCount");
    *count = device_count();
    return *count > 0 ? kSuccess : fail(100);
}

HIPEMU_API int hipGetDevice(int* device) {
    HIPEMU_ENTRY("hipGetDevice");
    *device = current_device();
    return kSuccess;
}

HIPEMU_API int hipSetDevice(int device) {
    HIPEMU_ENTRY("hipSetDevice");
    if (!is_device(device)) return fail(kInvalidDevice);
    set_current_device(device);
    return kSuccess;
}

HIPEMU_API int hipDeviceSynchronize() {
    HIPEMU_ENTRY("hipDeviceSynchronize");
    synchronize_device(current_device());
    return fail(take_device_error(current_device()));
}

HIPEMU_API int hipDeviceCanAccessPeer(int* answer, int device, int peer) {
    HIPEMU_ENTRY("hipDeviceCanAccessPeer");
    if (!is_device(device) || !is_device(peer)) return fail(kInvalidDevice);
    *answer = device != peer ? 1 : 0;
    return kSuccess;
}

HIPEMU_API int hipDeviceEnablePeerAccess(int peer, unsigned) {
    HIPEMU_ENTRY("hipDeviceEnablePeerAccess");
    static std::array<std::array<std::atomic<bool>, 16>, 16> enabled{};
    if (!is_device(peer) || peer == current_device()) return fail(kInvalidDevice);
    auto& pair =
        enabled[static_cast<std::size_t>(current_device())][static_cast<std::size_t>(peer)];
    return pair.exchange(true) ? fail(kPeerAccessAlreadyEnabled) : kSuccess;
}

HIPEMU_API int hipDeviceDisablePeerAccess(int peer) {
    HIPEMU_ENTRY("hipDeviceDisablePeerAccess");
    return is_device(peer) ? kSuccess : fail(kInvalidDevice);
}

HIPEMU_API int hipDriverGetVersion(int* version) {
    HIPEMU_ENTRY("hipDriverGetVersion");
    *version = kHipVersion;
    return kSuccess;
}

HIPEMU_API int hipRuntimeGetVersion(int* version) {
    HIPEMU_ENTRY("hipRuntimeGetVersion");
    *version = kHipVersion;
    return kSuccess;
}

HIPEMU_API const char* hipGetErrorName(int code) { return words_of(code).first; }
HIPEMU_API const char* hipGetErrorString(int code) { return words_of(code).second; }
HIPEMU_API int hipGetLastError() { return take_last_error(); }
HIPEMU_API int hipPeekAtLastError() { return last_error(); }

HIPEMU_API int hipMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
    HIPEMU_ENTRY("hipMemGetInfo");
    *total = device_bytes();
    *free_bytes = *total - used_bytes(current_device());
    return kSuccess;
}

// Numbers of hipDeviceAttribute_t (HIP 6 and 7); the ones that CuPy and libhipfile ask for.
HIPEMU_API int hipDeviceGetAttribute(int* value, int attribute, int device) {
    HIPEMU_ENTRY("hipDeviceGetAttribute");
    if (!is_device(device)) return fail(kInvalidDevice);
    switch (attribute) {
        case 10:  // cooperative launch
        case 61:  // compute capability minor
        case 88:
            *value = 0;
            break;
        case 23:  // compute capability major
            *value = 9;
            break;
        case 26:
        case 27:
        case 28:  // block dimensions
        case 56:  // threads per block
            *value = 1024;
            break;
        case 29:
        case 30:
        case 31:  // grid dimensions
            *value = 2147483647;
            break;
        case 63:  // multiprocessors
            *value = 4;
            break;
        case 74:  // shared memory per block
            *value = 65536;
            break;
        case 87:  // warp size
            *value = static_cast<int>(environment_number("HIPFILE_ARRAYS_EMULATOR_WAVE", 64));
            break;
        default:
            *value = 1;
    }
    return kSuccess;
}

HIPEMU_API int hipDeviceGetLimit(std::size_t* value, int) {
    HIPEMU_ENTRY("hipDeviceGetLimit");
    *value = 65536;
    return kSuccess;
}

HIPEMU_API int hipDeviceGetPCIBusId(char* text, int length, int device) {
    HIPEMU_ENTRY("hipDeviceGetPCIBusId");
    if (!is_device(device)) return fail(kInvalidDevice);
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
    return kSuccess;
}

HIPEMU_API int hipDeviceGetByPCIBusId(int* device, const char* text) {
    HIPEMU_ENTRY("hipDeviceGetByPCIBusId");
    unsigned bus = 0;
    if (std::sscanf(text, "0000:%02x:00.0", &bus) != 1 || !is_device(static_cast<int>(bus) - 1)) {
        return fail(kInvalidValue);
    }
    *device = static_cast<int>(bus) - 1;
    return kSuccess;
}

HIPEMU_API int hipGetDevicePropertiesR0600(char* properties, int device) {
    HIPEMU_ENTRY("hipGetDeviceProperties");
    if (!is_device(device)) return fail(kInvalidDevice);
    std::memset(properties, 0, kPropertiesSize);
    auto put = [properties](std::size_t offset, auto value) {
        std::memcpy(properties + offset, &value, sizeof value);
    };
    const int wave = static_cast<int>(environment_number("HIPFILE_ARRAYS_EMULATOR_WAVE", 64));
    std::strcpy(properties, "Emulated HIP device");
    put(288, device_bytes());      // totalGlobalMem
    put(296, std::size_t{65536});  // sharedMemPerBlock
    put(304, 65536);               // regsPerBlock
    put(308, wave);                // warpSize
    put(320, 1024);                // maxThreadsPerBlock
    for (std::size_t axis = 0; axis < 3; ++axis) {
        put(324 + 4 * axis, 1024);        // maxThreadsDim
        put(336 + 4 * axis, 2147483647);  // maxGridSize
    }
    put(348, 1000000);             // clockRate
    put(352, std::size_t{65536});  // totalConstMem
    put(360, 9);                   // major
    put(364, 0);                   // minor
    put(388, 4);                   // multiProcessorCount
    put(616, 8 << 20);             // l2CacheSize
    put(624, 2048);                // maxThreadsPerMultiProcessor
    put(652, 1);                   // managedMemory
    put(676, 1);                   // concurrentManagedAccess
    std::strcpy(properties + 1160, wave == 32 ? "gfx1100" : "gfx90a:sramecc+:xnack-");
    put(1416, std::size_t{65536});  // maxSharedMemoryPerMultiProcessor
    return kSuccess;
}
