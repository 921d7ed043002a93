#include "tables.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "check.hpp"

namespace hfa {
namespace {

// ROCm 7 and 10 carry .so.7, ROCm 6 .so.6. CUDA's runtime has one SONAME a major version.
constexpr std::array kHipRuntime{"libamdhip64.so.7", "libamdhip64.so.6"};
constexpr std::array kCudaRuntime{"libcudart.so.13", "libcudart.so.12"};
constexpr std::array kCudaDriver{"libcuda.so.1"};
constexpr std::array kHipFile{"libhipfile.so.0"};
constexpr std::array kCuFile{"libcufile.so.0"};

// HIP versions are major * 10^7 + minor * 10^5 + patch. HIP 5 numbers its memory types otherwise
// (hipMemoryTypeDevice is 1 there, 2 since 6.0), so it is refused rather than misread.
constexpr int kOldestHip = 60000000;

struct Loaded {
    void* handle = nullptr;
    std::string path;
};

struct State {
    std::mutex mutex;
    SearchPath runtime_search;
    SearchPath file_search;
    std::unique_ptr<Runtime> runtime;
    std::unique_ptr<FileLibrary> file_library;
};

State& state(Platform platform) {
    // Never destroyed: worker threads and late destructors may still call through the tables.
    static std::array<State, 2>* states = new std::array<State, 2>;
    return (*states)[static_cast<std::size_t>(platform)];
}

std::string path_of(void* handle) {
    struct link_map* map = nullptr;
    if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map && map->l_name) {
        return map->l_name;
    }
    return "";
}

template <std::size_t N>
Loaded open_library(const char* what, const std::array<const char*, N>& sonames,
                    const SearchPath& search, const char* advice) {
    std::string tried;
    auto attempt = [&](const std::string& name, int flags) -> Loaded {
        if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | flags)) {
            return {handle, path_of(handle)};
        }
        const char* reason = dlerror();
        if (!(flags & RTLD_NOLOAD)) {
            tried += "\n  " + name;
            if (reason && !std::string_view(reason).starts_with(name + ": cannot open shared")) {
                tried += " (" + std::string(reason) + ")";
            }
        }
        return {};
    };
    if (!search.override_path.empty()) {
        if (Loaded found = attempt(search.override_path, 0); found.handle) return found;
    } else {
        for (const char* soname : sonames) {
            if (Loaded found = attempt(soname, RTLD_NOLOAD); found.handle) return found;
        }
        for (const char* soname : sonames) {
            if (Loaded found = attempt(soname, 0); found.handle) return found;
        }
        for (const std::string& folder : search.folders) {
            for (const char* soname : sonames) {
                if (Loaded found = attempt(folder + "/" + soname, 0); found.handle) return found;
            }
        }
    }
    throw Error(
        Failure{Channel::Library, 0, 0, "dlopen", what,
                std::string("no ") + what + " could be loaded. Tried:" + tried + "\n" + advice});
}

enum class Need : std::uint8_t { Needed, Optional };

template <class Row>
void fill(Row& row, const char* name, Need need, const std::vector<void*>& handles,
          const std::string& path) {
    row.name = name;
    for (void* handle : handles) {
        if (void* symbol = dlsym(handle, name)) {
            row.function = reinterpret_cast<typename Row::Function>(symbol);
            row.present = true;
            return;
        }
    }
    if (need == Need::Needed) {
        throw Error(Failure{Channel::Library, 0, 0, "dlsym", name,
                            path + " has no entry point " + name +
                                ": it is too old for this library, or is something else"});
    }
}

constexpr const char* kHipAdvice =
    "Install ROCm (or a package that carries its runtime), set ROCM_PATH, or work without an AMD "
    "GPU on the emulated device: HIPFILE_ARRAYS_EMULATE=1.";
constexpr const char* kCudaAdvice =
    "Install an NVIDIA driver and pip install \"hipfile-arrays[cuda13]\".";
constexpr const char* kHipFileAdvice =
    "Install hipFile (part of ROCm), or name the library by HIPFILE_ARRAYS_LIBHIPFILE.";
constexpr const char* kCuFileAdvice =
    "pip install nvidia-cufile, or name the library by HIPFILE_ARRAYS_LIBCUFILE.";

std::unique_ptr<Runtime> open_runtime(Platform platform, const SearchPath& search) {
    const bool hip = platform == Platform::Hip;
    auto table = std::make_unique<Runtime>();
    table->platform = platform;
    std::vector<void*> handles;
    Loaded main = hip ? open_library("HIP runtime", kHipRuntime, search, kHipAdvice)
                      : open_library("CUDA runtime", kCudaRuntime, search, kCudaAdvice);
    handles.push_back(main.handle);
    table->path = main.path;
    if (!hip) {
        handles.push_back(open_library("CUDA driver", kCudaDriver, {}, kCudaAdvice).handle);
    }
#define HFA_FILL(member, hip_name, cuda_name, since, need, ...) \
    fill(table->member, hip ? hip_name : cuda_name, Need::need, handles, table->path);
    HFA_RUNTIME_ENTRY_POINTS(HFA_FILL)
    check_runtime(*table, table->RuntimeGetVersion(&table->version), table->RuntimeGetVersion.name);
    if (hip && table->version < kOldestHip) {
        throw Error(Failure{Channel::Library, 0, 0, "hipRuntimeGetVersion", "HIP runtime",
                            table->path + " is HIP " + std::to_string(table->version / 10000000) +
                                ", which numbers its memory types otherwise; HIP 6 or newer is "
                                "needed"});
    }
    return table;
}

std::unique_ptr<FileLibrary> open_file_library(Platform platform, const SearchPath& search) {
    const bool hip = platform == Platform::Hip;
    auto table = std::make_unique<FileLibrary>();
    table->platform = platform;
    Loaded main = hip ? open_library("hipFile", kHipFile, search, kHipFileAdvice)
                      : open_library("cuFile", kCuFile, search, kCuFileAdvice);
    table->path = main.path;
    const std::vector<void*> handles{main.handle};
    HFA_FILE_ENTRY_POINTS(HFA_FILL)
#undef HFA_FILL
    return table;
}

}  // namespace

const char* name_of(Platform platform) { return platform == Platform::Hip ? "hip" : "cuda"; }

void set_search_path(Platform platform, SearchPath runtime_search, SearchPath file_search) {
    State& s = state(platform);
    const std::lock_guard lock(s.mutex);
    s.runtime_search = std::move(runtime_search);
    s.file_search = std::move(file_search);
}

// The tables are read on every call of the hot path: one atomic load once they are open.
const Runtime& runtime(Platform platform) {
    static std::array<std::atomic<const Runtime*>, 2> open{};
    auto& slot = open[static_cast<std::size_t>(platform)];
    if (const Runtime* table = slot.load(std::memory_order_acquire)) return *table;
    State& s = state(platform);
    const std::lock_guard lock(s.mutex);
    if (!s.runtime) {
        s.runtime = open_runtime(platform, s.runtime_search);
        const auto mapped = mapped_runtimes(platform);
        if (mapped.size() > 1) {
            std::string list;
            for (const std::string& path : mapped) list += "\n  " + path;
            s.runtime.reset();
            raise_state(
                std::string("two ") + (platform == Platform::Hip ? "HIP" : "CUDA") +
                " runtimes are loaded in this process, so device pointers of one are foreign to "
                "the other:" +
                list +
                "\nUse libraries built on one runtime (PyTorch wheels bring their own copy), each "
                "in its own process.");
        }
    }
    slot.store(s.runtime.get(), std::memory_order_release);
    return *s.runtime;
}

const FileLibrary& file_library(Platform platform) {
    if (const FileLibrary* table = file_library_if_open(platform)) return *table;
    runtime(platform);  // its absence is the better message
    State& s = state(platform);
    const std::lock_guard lock(s.mutex);
    if (!s.file_library) s.file_library = open_file_library(platform, s.file_search);
    return *s.file_library;
}

const FileLibrary* file_library_if_open(Platform platform) noexcept {
    State& s = state(platform);
    const std::lock_guard lock(s.mutex);
    return s.file_library.get();
}

std::vector<std::string> mapped_runtimes(Platform platform) {
    // Several CUDA runtimes in a process share the driver's primary context, so only HIP's count.
    if (platform == Platform::Cuda) return {};
    std::vector<std::string> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        const auto slash = line.find('/');
        if (slash == std::string::npos) continue;
        const std::string path = line.substr(slash);
        const auto base = path.substr(path.rfind('/') + 1);
        if (!base.starts_with("libamdhip64")) continue;
        if (std::find(found.begin(), found.end(), path) == found.end()) found.push_back(path);
    }
    return found;
}

}  // namespace hfa
