// Entry points that CuPy's wheel links and the emulated device does not offer. Each says so by name
// on standard error and fails; none returns wrong data.
#include "state.hpp"

#define HIPEMU_UNAVAILABLE(name) \
    HIPEMU_API int name() { return hipemu::unavailable(#name); }

HIPEMU_UNAVAILABLE(hipCreateSurfaceObject)
HIPEMU_UNAVAILABLE(hipDestroySurfaceObject)
HIPEMU_UNAVAILABLE(hipIpcCloseMemHandle)
HIPEMU_UNAVAILABLE(hipIpcGetMemHandle)
HIPEMU_UNAVAILABLE(hipIpcOpenMemHandle)
HIPEMU_UNAVAILABLE(hipGraphDebugDotPrint)
HIPEMU_UNAVAILABLE(hipGraphDestroy)
HIPEMU_UNAVAILABLE(hipGraphExecDestroy)
HIPEMU_UNAVAILABLE(hipGraphInstantiate)
HIPEMU_UNAVAILABLE(hipGraphLaunch)
HIPEMU_UNAVAILABLE(hipStreamBeginCapture)
HIPEMU_UNAVAILABLE(hipStreamEndCapture)
HIPEMU_UNAVAILABLE(hipStreamGetCaptureInfo)
HIPEMU_UNAVAILABLE(hipStreamGetCaptureInfo_v2)

// Kernels precompiled for AMD processors inside the wheel (sort, unique, default_rng). Registering
// them at load time is harmless. Launching one must not pass silently, and the code that launches
// looks at no return code: so the device's next synchronisation fails as well.
namespace {

int refuse_precompiled(const char* name) {
    hipemu::set_device_error(hipemu::current_device(), hipemu::kNoBinaryForGpu);
    hipemu::unavailable(name);
    return hipemu::fail(hipemu::kNoBinaryForGpu);
}

}  // namespace

HIPEMU_API int hipLaunchKernel() { return refuse_precompiled("hipLaunchKernel"); }
HIPEMU_API int __hipPushCallConfiguration() {
    return refuse_precompiled("a kernel precompiled for AMD processors");
}
HIPEMU_API int __hipPopCallConfiguration() { return hipemu::fail(hipemu::kNoBinaryForGpu); }
HIPEMU_API void** __hipRegisterFatBinary(const void*) {
    static void* handle = nullptr;
    return &handle;
}
HIPEMU_API void __hipRegisterFunction() {}
HIPEMU_API void __hipUnregisterFatBinary(void**) {}
