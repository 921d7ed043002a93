// Modules and kernel launches, as long as the emulated device has no kernels.
#include "state.hpp"

#define HIPEMU_UNAVAILABLE(name) \
    HIPEMU_API int name() { return hipemu::unavailable(#name); }

HIPEMU_UNAVAILABLE(hipFuncGetAttribute)
HIPEMU_UNAVAILABLE(hipModuleGetFunction)
HIPEMU_UNAVAILABLE(hipModuleGetGlobal)
HIPEMU_UNAVAILABLE(hipModuleLaunchKernel)
HIPEMU_UNAVAILABLE(hipModuleLoad)
HIPEMU_UNAVAILABLE(hipModuleLoadData)
HIPEMU_UNAVAILABLE(hipModuleUnload)
HIPEMU_UNAVAILABLE(hipOccupancyMaxActiveBlocksPerMultiprocessor)
HIPEMU_UNAVAILABLE(hipOccupancyMaxPotentialBlockSize)
