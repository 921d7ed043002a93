// Every entry point of the GPU runtimes and of hipFile/cuFile that this library calls, one row
// each.
//
// A row names the member by the C function without its prefix, so a call reads like the vendor's
// manual: `runtime.MemcpyAsync(...)` is hipMemcpyAsync or cudaMemcpyAsync. HIP and CUDA have the
// same shapes; where a CUDA name comes from the driver (cu...) instead of the runtime (cuda...),
// the signatures still agree at the ABI (CUDA's StreamWaitValue32 has no mask; the C calling
// conventions ignore an argument too many). Columns:
//
//   member, HIP name, CUDA name, HIP version it is known since, Needed or Optional, result,
//   arguments
//
// An Optional entry that a library lacks is a typed stand-in that answers "not supported"
// (tables.hpp), so callers need no null checks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace hfa {

// hipPointerAttribute_t (HIP 6 and 7) and cudaPointerAttributes (CUDA 11 to 13) share their first
// 32 bytes; CUDA 13 appends 64 reserved bytes.
struct PointerAttributes {
    int type;
    int device;
    void* device_pointer;
    void* host_pointer;
    int is_managed;
    unsigned allocation_flags;
    std::int64_t reserved[8];
};

struct FileError {
    int code;          // 0, or 5000 + something
    int runtime_code;  // set when code is 5011
};

struct FileDescriptor {  // hipFileDescr_t, CUfileDescr_t
    int type;            // 1: a POSIX file descriptor
    union {
        int fd;
        void* pointer;
    } handle;
    const void* fs_ops;
};
static_assert(sizeof(FileDescriptor) == 24);

using Stream = void*;
using Event = void*;
using FileHandle = void*;

}  // namespace hfa

// clang-format off
#define HFA_RUNTIME_ENTRY_POINTS(ROW) \
    ROW(RuntimeGetVersion,     "hipRuntimeGetVersion",     "cudaRuntimeGetVersion",     "3.0", Needed,   int, int*) \
    ROW(GetErrorName,          "hipGetErrorName",          "cudaGetErrorName",          "3.0", Needed,   const char*, int) \
    ROW(GetErrorString,        "hipGetErrorString",        "cudaGetErrorString",        "3.0", Needed,   const char*, int) \
    ROW(GetLastError,          "hipGetLastError",          "cudaGetLastError",          "3.0", Needed,   int) \
    ROW(GetDeviceCount,        "hipGetDeviceCount",        "cudaGetDeviceCount",        "3.0", Needed,   int, int*) \
    ROW(GetDevice,             "hipGetDevice",             "cudaGetDevice",             "3.0", Needed,   int, int*) \
    ROW(SetDevice,             "hipSetDevice",             "cudaSetDevice",             "3.0", Needed,   int, int) \
    ROW(DeviceGetPCIBusId,     "hipDeviceGetPCIBusId",     "cudaDeviceGetPCIBusId",     "3.0", Optional, int, char*, int, int) \
    ROW(PointerGetAttributes,  "hipPointerGetAttributes",  "cudaPointerGetAttributes",  "3.0", Needed,   int, hfa::PointerAttributes*, const void*) \
    ROW(MemGetAddressRange,    "hipMemGetAddressRange",    "cuMemGetAddressRange_v2",   "3.0", Needed,   int, void**, std::size_t*, void*) \
    ROW(Malloc,                "hipMalloc",                "cudaMalloc",                "3.0", Needed,   int, void**, std::size_t) \
    ROW(Free,                  "hipFree",                  "cudaFree",                  "3.0", Needed,   int, void*) \
    ROW(HostMalloc,            "hipHostMalloc",            "cudaHostAlloc",             "3.0", Needed,   int, void**, std::size_t, unsigned) \
    ROW(HostFree,              "hipHostFree",              "cudaFreeHost",              "3.0", Needed,   int, void*) \
    ROW(HostRegister,          "hipHostRegister",          "cudaHostRegister",          "3.0", Optional, int, void*, std::size_t, unsigned) \
    ROW(HostUnregister,        "hipHostUnregister",        "cudaHostUnregister",        "3.0", Optional, int, void*) \
    ROW(Memcpy,                "hipMemcpy",                "cudaMemcpy",                "3.0", Needed,   int, void*, const void*, std::size_t, int) \
    ROW(MemcpyAsync,           "hipMemcpyAsync",           "cudaMemcpyAsync",           "3.0", Needed,   int, void*, const void*, std::size_t, int, hfa::Stream) \
    ROW(StreamCreateWithFlags, "hipStreamCreateWithFlags", "cudaStreamCreateWithFlags", "3.0", Needed,   int, hfa::Stream*, unsigned) \
    ROW(StreamDestroy,         "hipStreamDestroy",         "cudaStreamDestroy",         "3.0", Needed,   int, hfa::Stream) \
    ROW(StreamSynchronize,     "hipStreamSynchronize",     "cudaStreamSynchronize",     "3.0", Needed,   int, hfa::Stream) \
    ROW(StreamWaitEvent,       "hipStreamWaitEvent",       "cudaStreamWaitEvent",       "3.0", Needed,   int, hfa::Stream, hfa::Event, unsigned) \
    ROW(StreamIsCapturing,     "hipStreamIsCapturing",     "cudaStreamIsCapturing",     "4.3", Optional, int, hfa::Stream, int*) \
    ROW(StreamQuery,           "hipStreamQuery",           "cudaStreamQuery",           "3.0", Needed,   int, hfa::Stream) \
    ROW(StreamWaitValue32,     "hipStreamWaitValue32",     "cuStreamWaitValue32_v2",    "4.2", Optional, int, hfa::Stream, void*, std::uint32_t, unsigned, std::uint32_t) \
    ROW(StreamWriteValue32,    "hipStreamWriteValue32",    "cuStreamWriteValue32_v2",   "4.2", Optional, int, hfa::Stream, void*, std::uint32_t, unsigned) \
    ROW(ExtMallocWithFlags,    "hipExtMallocWithFlags",    "",                          "3.0", Optional, int, void**, std::size_t, unsigned) \
    ROW(EventCreateWithFlags,  "hipEventCreateWithFlags",  "cudaEventCreateWithFlags",  "3.0", Needed,   int, hfa::Event*, unsigned) \
    ROW(EventRecord,           "hipEventRecord",           "cudaEventRecord",           "3.0", Needed,   int, hfa::Event, hfa::Stream) \
    ROW(EventSynchronize,      "hipEventSynchronize",      "cudaEventSynchronize",      "3.0", Needed,   int, hfa::Event) \
    ROW(EventDestroy,          "hipEventDestroy",          "cudaEventDestroy",          "3.0", Needed,   int, hfa::Event)

#define HFA_FILE_ENTRY_POINTS(ROW) \
    ROW(DriverOpen,            "hipFileDriverOpen",        "cuFileDriverOpen",          "0.2", Needed,   hfa::FileError) \
    ROW(DriverClose,           "hipFileDriverClose",       "cuFileDriverClose_v2",      "0.2", Optional, hfa::FileError) \
    ROW(UseCount,              "hipFileUseCount",          "cuFileUseCount",            "0.2", Optional, long) \
    ROW(GetOpErrorString,      "hipFileGetOpErrorString",  "",                          "0.2", Optional, const char*, int) \
    ROW(HandleRegister,        "hipFileHandleRegister",    "cuFileHandleRegister",      "0.2", Needed,   hfa::FileError, hfa::FileHandle*, hfa::FileDescriptor*) \
    ROW(HandleDeregister,      "hipFileHandleDeregister",  "cuFileHandleDeregister",    "0.2", Needed,   void, hfa::FileHandle) \
    ROW(BufRegister,           "hipFileBufRegister",       "cuFileBufRegister",         "0.2", Needed,   hfa::FileError, const void*, std::size_t, int) \
    ROW(BufDeregister,         "hipFileBufDeregister",     "cuFileBufDeregister",       "0.2", Needed,   hfa::FileError, const void*) \
    ROW(Read,                  "hipFileRead",              "cuFileRead",                "0.2", Needed,   ssize_t, hfa::FileHandle, void*, std::size_t, off_t, off_t) \
    ROW(Write,                 "hipFileWrite",             "cuFileWrite",               "0.2", Needed,   ssize_t, hfa::FileHandle, const void*, std::size_t, off_t, off_t)
// clang-format on
