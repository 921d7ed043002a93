#include "device.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <mutex>

namespace hfa {
namespace {

constexpr int kInvalidValue = 1;

std::atomic<bool> forked{false};

}  // namespace

Location locate(const Runtime& runtime, std::uintptr_t pointer) {
    Location location;
    void* const address = reinterpret_cast<void*>(pointer);
    PointerAttributes attributes{};
    const int code = runtime.PointerGetAttributes(&attributes, address);
    if (code != 0) {
        // Older runtimes answer invalid value for host memory. The code stays behind as the
        // thread's last error unless it is read.
        const Failure failure = runtime_failure(runtime, code, runtime.PointerGetAttributes.name);
        if (code != kInvalidValue) throw Error(failure);
        return location;
    }
    location.memory_type = attributes.type;
    location.device = attributes.device;
    if (attributes.type == static_cast<int>(MemoryType::Device)) {
        // The driver's range query wants a current context; a fresh thread has none.
        const DeviceScope scope(runtime, attributes.device);
        void* base = nullptr;
        std::size_t size = 0;
        const int answer = runtime.MemGetAddressRange(&base, &size, address);
        check_runtime(runtime, answer, runtime.MemGetAddressRange.name);
        location.base = reinterpret_cast<std::uintptr_t>(base);
        location.size = size;
    }
    return location;
}

DeviceScope::DeviceScope(const Runtime& runtime, int device) : runtime_(runtime) {
    int current = 0;
    check_runtime(runtime, runtime.GetDevice(&current), runtime.GetDevice.name);
    if (current == device) return;
    check_runtime(runtime, runtime.SetDevice(device), runtime.SetDevice.name);
    former_ = current;
}

DeviceScope::~DeviceScope() {
    if (former_ >= 0) runtime_.SetDevice(former_);
}

bool takes_file_mappings(const Runtime& runtime, int fd) {
    // 0: not tried, 1: yes, 2: no
    static std::array<std::atomic<int>, 2> answers{};
    auto& answer = answers[static_cast<std::size_t>(runtime.platform)];
    if (answer != 0) return answer == 1;
    constexpr std::size_t page = 4096;
    void* map = mmap(nullptr, page, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return false;  // says nothing of the runtime
    const int code = runtime.HostRegister(map, page, kRegisterReadOnly);
    if (code == 0) {
        runtime.HostUnregister(map);
    } else {
        runtime.GetLastError();
    }
    munmap(map, page);
    answer = code == 0 ? 1 : 2;
    return code == 0;
}

bool is_forked() { return forked.load(std::memory_order_relaxed); }

void refuse_after_fork() {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked = true; }); });
    if (is_forked()) {
        raise_state(
            "this process was forked after its parent had used the GPU, and GPU runtimes do not "
            "survive fork(); start worker processes by multiprocessing's \"spawn\" or "
            "\"forkserver\" method");
    }
}

}  // namespace hfa
