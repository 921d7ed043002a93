// The emulated code object: a magic, the length, an ELF library, and a NUL (CuPy drops the last
// byte, and hipModuleLoadData is told no length).
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "../include/hipemu/kernel_abi.h"

namespace hipemu {

inline constexpr std::string_view kCodeMagic = "HIPEMU02";

inline std::string pack_code_object(const std::string& elf) {
    const std::uint64_t size = elf.size();
    std::string packed(kCodeMagic);
    packed.append(reinterpret_cast<const char*>(&size), sizeof size);
    packed += elf;
    packed.push_back('\0');
    return packed;
}

// Empty when it is none of ours.
inline std::string_view unpack_code_object(const void* image) {
    const char* bytes = static_cast<const char*>(image);
    if (!bytes || std::memcmp(bytes, kCodeMagic.data(), kCodeMagic.size()) != 0) return {};
    std::uint64_t size = 0;
    std::memcpy(&size, bytes + kCodeMagic.size(), sizeof size);
    return {bytes + kCodeMagic.size() + sizeof size, size};
}

// The (mangled) name by which the linker knows it; its plain name where there is none.
inline std::string linker_name(const hipemu_kernel& kernel) {
    Dl_info info{};
    if (dladdr(kernel.address, &info) && info.dli_saddr == kernel.address && info.dli_sname) {
        return info.dli_sname;
    }
    return kernel.name;
}

}  // namespace hipemu
