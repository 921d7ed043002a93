// Modules, functions and launches of kernels.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>

#include "code_object.hpp"
#include "fibers.hpp"
#include "memory.hpp"
#include "state.hpp"
#include "streams.hpp"

namespace hipemu {
namespace {

// hipError_t that only modules and launches give
constexpr int kInvalidConfiguration = 9;
constexpr int kInvalidImage = 200;
constexpr int kFileNotFound = 301;
constexpr int kSharedObjectInitFailed = 303;

constexpr std::uint64_t kMostThreads = 1024;
constexpr std::size_t kSharedBytes = 65536;

struct Function {
    std::string name;
    const hipemu_kernel* kernel;
};

class Module {
  public:
    // Null when the library cannot be loaded.
    static std::unique_ptr<Module> load(std::string_view elf);
    ~Module() { dlclose(handle_); }
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;

    Function* function(const std::string& name) {
        const auto found = functions_.find(name);
        return found == functions_.end() ? nullptr : &found->second;
    }
    void* variable(const std::string& name, std::size_t* size) const;

  private:
    explicit Module(void* handle) : handle_(handle) {}
    void* handle_;
    std::map<std::string, Function> functions_;
};

struct Modules {
    std::mutex mutex;
    std::map<Module*, std::unique_ptr<Module>> loaded;
    std::map<const void*, Module*> functions;  // handed out, with their module

    static Modules& instance() {
        static auto* all = new Modules;
        return *all;
    }
};

// The loader knows libraries by their file: each needs one of its own, gone once loaded.
void* load_library(std::string_view elf) {
    std::error_code error;
    std::string path = std::filesystem::temp_directory_path(error).string();
    path = (error ? "/tmp" : path) + "/hipfile-arrays-module-XXXXXX";
    const int fd = mkstemp(path.data());
    if (fd < 0) return nullptr;
    bool written = true;
    while (!elf.empty() && written) {
        const ssize_t moved = write(fd, elf.data(), elf.size());
        written = moved > 0;
        if (written) elf.remove_prefix(static_cast<std::size_t>(moved));
    }
    close(fd);
    void* handle = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!handle) std::fprintf(stderr, "hipemu: a module cannot be loaded: %s\n", dlerror());
    unlink(path.c_str());
    return handle;
}

std::unique_ptr<Module> Module::load(std::string_view elf) {
    void* handle = load_library(elf);
    if (!handle) return nullptr;
    std::unique_ptr<Module> module(new Module(handle));
    const auto* table = static_cast<const hipemu_module*>(dlsym(handle, "hipemu_module_table"));
    if (!table) return nullptr;
    if (table->wave != wave_size()) {
        std::fprintf(stderr, "hipemu: a module compiled for waves of %u runs on waves of %u\n",
                     table->wave, wave_size());
        return nullptr;
    }
    for (auto entry = table->begin; entry != table->end; ++entry) {
        const hipemu_kernel* kernel = *entry;
        if (!kernel->run) continue;
        for (const std::string& name : {std::string(kernel->name), linker_name(*kernel)}) {
            module->functions_.emplace(name, Function{name, kernel});
        }
    }
    return module;
}

void* Module::variable(const std::string& name, std::size_t* size) const {
    void* address = dlsym(handle_, name.c_str());
    Dl_info info{};
    ElfW(Sym)* symbol = nullptr;
    if (!address || !dladdr1(address, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT)) {
        return nullptr;
    }
    *size = symbol ? symbol->st_size : 0;
    return address;
}

int load_module(void** out, std::string_view elf) {
    auto made = Module::load(elf);
    if (!made) return kSharedObjectInitFailed;
    Modules& all = Modules::instance();
    const std::lock_guard lock(all.mutex);
    *out = made.get();
    all.loaded.emplace(made.get(), std::move(made));
    return kSuccess;
}

// The live module of that handle; the caller holds the lock.
Module* live(void* handle) {
    auto& loaded = Modules::instance().loaded;
    const auto found = loaded.find(static_cast<Module*>(handle));
    return found == loaded.end() ? nullptr : found->second.get();
}

// Copies the arguments, so that the caller may change its own as soon as the launch is queued.
// `extra` is a list of (1, buffer), (2, size) that ends with 3.
int copy_arguments(Launch& launch, void** parameters, void** extra) {
    const hipemu_kernel& kernel = *launch.kernel;
    std::size_t total = 0;
    for (unsigned i = 0; i < kernel.argument_count; ++i) {
        const std::size_t alignment = kernel.alignments[i];
        total = (total + alignment - 1) / alignment * alignment;
        launch.offsets.push_back(total);
        total += kernel.sizes[i];
    }
    const std::size_t bytes = (total / 64 + 1) * 64;
    launch.arguments.reset(static_cast<char*>(std::aligned_alloc(64, bytes)), std::free);
    if (!launch.arguments) return kOutOfMemory;
    if (extra) {
        const void* buffer = nullptr;
        std::size_t size = 0;
        for (; reinterpret_cast<std::uintptr_t>(*extra) != 3; extra += 2) {
            const auto kind = reinterpret_cast<std::uintptr_t>(*extra);
            if (kind == 1) buffer = extra[1];
            if (kind == 2) size = *static_cast<const std::size_t*>(extra[1]);
            if (kind != 1 && kind != 2) return kInvalidValue;
        }
        if (total > 0 && (!buffer || size < total)) return kInvalidValue;
        if (total > 0) std::memcpy(launch.arguments.get(), buffer, total);
        return kSuccess;
    }
    if (!parameters && kernel.argument_count > 0) return kInvalidValue;
    for (unsigned i = 0; i < kernel.argument_count; ++i) {
        std::memcpy(launch.arguments.get() + launch.offsets[i], parameters[i], kernel.sizes[i]);
    }
    return kSuccess;
}

int check_dimensions(const hipemu_index& grid, const hipemu_index& block, std::size_t shared) {
    for (const unsigned size : {grid.x, grid.y, grid.z, block.x, block.y, block.z}) {
        if (size == 0) return kInvalidValue;
    }
    if (std::uint64_t{block.x} * block.y > kMostThreads ||
        std::uint64_t{block.x} * block.y * block.z > kMostThreads || shared > kSharedBytes) {
        return kInvalidValue;
    }
    // HIP counts the threads of each dimension of the grid in 32 bits.
    for (const std::uint64_t threads :
         {std::uint64_t{grid.x} * block.x, std::uint64_t{grid.y} * block.y,
          std::uint64_t{grid.z} * block.z}) {
        if (threads > UINT32_MAX) return kInvalidConfiguration;
    }
    return kSuccess;
}

const Function* live_function(void* handle) {
    Modules& all = Modules::instance();
    const std::lock_guard lock(all.mutex);
    return all.functions.count(handle) ? static_cast<const Function*>(handle) : nullptr;
}

}  // namespace
}  // namespace hipemu

using namespace hipemu;

HIPEMU_API int hipModuleLoadData(void** module, const void* image) {
    HIPEMU_ENTRY("hipModuleLoadData");
    if (!module || !image) return fail(kInvalidValue);
    const std::string_view elf = unpack_code_object(image);
    if (elf.empty()) return fail(kNoBinaryForGpu);
    return fail(load_module(module, elf));
}

HIPEMU_API int hipModuleLoad(void** module, const char* path) {
    HIPEMU_ENTRY("hipModuleLoad");
    if (!module || !path) return fail(kInvalidValue);
    const std::ifstream file(path, std::ios::binary);
    if (!file) return fail(kFileNotFound);
    std::ostringstream text;
    text << file.rdbuf();
    const std::string image = text.str();
    if (image.size() < 16) return fail(kInvalidImage);
    const std::string_view elf = unpack_code_object(image.data());
    if (elf.empty() || elf.size() > image.size() - 16) return fail(kInvalidImage);
    return fail(load_module(module, elf));
}

HIPEMU_API int hipModuleUnload(void* module) {
    HIPEMU_ENTRY("hipModuleUnload");
    // Its kernels may still be queued, on any device.
    for (int device = 0; device < device_count(); ++device) synchronize_device(device);
    Modules& all = Modules::instance();
    const std::lock_guard lock(all.mutex);
    Module* found = live(module);
    if (!found) return fail(kInvalidHandle);
    std::erase_if(all.functions, [&](const auto& entry) { return entry.second == found; });
    all.loaded.erase(found);
    return kSuccess;
}

HIPEMU_API int hipModuleGetFunction(void** function, void* module, const char* name) {
    HIPEMU_ENTRY("hipModuleGetFunction");
    if (!function || !name) return fail(kInvalidValue);
    Modules& all = Modules::instance();
    const std::lock_guard lock(all.mutex);
    Module* found = live(module);
    if (!found) return fail(kInvalidHandle);
    Function* known = found->function(name);
    if (!known) return fail(kNotFound);
    all.functions[known] = found;
    *function = known;
    return kSuccess;
}

HIPEMU_API int hipModuleGetGlobal(void** address, std::size_t* size, void* module,
                                  const char* name) {
    HIPEMU_ENTRY("hipModuleGetGlobal");
    if (!name) return fail(kInvalidValue);
    Modules& all = Modules::instance();
    const std::lock_guard lock(all.mutex);
    Module* found = live(module);
    if (!found) return fail(kInvalidHandle);
    std::size_t bytes = 0;
    void* variable = found->variable(name, &bytes);
    if (!variable) return fail(kNotFound);
    if (address) *address = variable;
    if (size) *size = bytes;
    return kSuccess;
}

HIPEMU_API int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared, void* handle,
                                     void** parameters, void** extra) {
    HIPEMU_ENTRY("hipModuleLaunchKernel");
    const Function* known = live_function(function);
    if (!known) return fail(kInvalidHandle);
    auto launch = std::make_shared<Launch>();
    launch->name = known->name;
    launch->kernel = known->kernel;
    launch->grid = {grid_x, grid_y, grid_z};
    launch->block = {block_x, block_y, block_z};
    launch->dynamic_shared = shared;
    if (const int code = check_dimensions(launch->grid, launch->block, shared)) return fail(code);
    const StreamPointer stream = resolve_here(handle);
    if (!stream) return fail(kInvalidHandle);
    if (const int code = copy_arguments(*launch, parameters, extra)) return fail(code);
    enqueue(stream, [launch] {
        if (const int code = run_grid(*launch)) throw code;
    });
    return kSuccess;
}

HIPEMU_API int hipFuncGetAttribute(int* value, int attribute, void* function) {
    HIPEMU_ENTRY("hipFuncGetAttribute");
    if (!value) return fail(kInvalidValue);
    if (!live_function(function)) return fail(kInvalidHandle);
    // Threads per block; shared, constant and local bytes and registers are not known here.
    *value = attribute == 0 ? static_cast<int>(kMostThreads) : 0;
    return kSuccess;
}

HIPEMU_API int hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                            std::size_t) {
    HIPEMU_ENTRY("hipOccupancyMaxActiveBlocksPerMultiprocessor");
    if (!blocks || threads <= 0) return fail(kInvalidValue);
    *blocks = std::max(1, 2048 / threads);
    return kSuccess;
}

HIPEMU_API int hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void*, std::size_t,
                                                 int limit) {
    HIPEMU_ENTRY("hipOccupancyMaxPotentialBlockSize");
    if (!grid || !block) return fail(kInvalidValue);
    *block = limit > 0 ? std::min(limit, 256) : 256;
    *grid = 8;
    return kSuccess;
}
