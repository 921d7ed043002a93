#include "hipfile_transfer.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "io_faults.hpp"
#include "memory.hpp"
#include "state.hpp"

extern "C" int hipMemcpy(void*, const void*, std::size_t, int);

namespace hipemu {
namespace {

constexpr int kIONotSupported = 5008;
constexpr std::size_t kFallbackBuffer = 16 << 20;
constexpr int kHostToDevice = 1;
constexpr int kDeviceToHost = 2;
#ifndef STATX_DIOALIGN
constexpr unsigned STATX_DIOALIGN = 0x2000;
#endif
#ifndef XFS_SUPER_MAGIC
constexpr long XFS_SUPER_MAGIC = 0x58465342;
#endif

bool environment_is(const char* name, bool wanted) {
    const char* text = std::getenv(name);
    if (!text) return false;
    const std::string value(text);
    const bool truth = value == "true" || value == "1" || value == "TRUE";
    const bool lie = value == "false" || value == "0" || value == "FALSE";
    return wanted ? truth : lie;
}

bool takes_fast_path(const OpenFile& file, const void* address, std::size_t size, off_t offset) {
    if (environment_is("HIPFILE_FORCE_COMPAT_MODE", true)) return false;
    if (IoFaults::instance().eligible) return true;  // asked for by a test: any file, any alignment
    if (!file.eligible_file_system() && !environment_is("HIPFILE_UNSUPPORTED_FILE_SYSTEMS", true)) {
        return false;
    }
    if (file.direct_fd() < 0) return false;
    return static_cast<std::uint64_t>(offset) % file.offset_alignment() == 0 &&
           size % file.offset_alignment() == 0 &&
           reinterpret_cast<std::uintptr_t>(address) % file.memory_alignment() == 0;
}

ssize_t fast_path(const OpenFile& file, bool reads, const void* address, std::size_t size,
                  off_t offset) {
    static Entry& counted = entry("hipfile.fast");
    counted.add();
    void* const memory = accessible(address, size);
    if (!memory) return -kIllegalAddress;
    const int fd =
        file.direct_fd() >= 0 && !IoFaults::instance().eligible ? file.direct_fd() : file.fd();
    return reads ? pread(fd, memory, size, offset) : pwrite(fd, memory, size, offset);
}

// In stream order already: a copy queued on the null stream would wait for the very operation that
// asks for it.
int copy_in_place(void* to, const void* from, std::size_t size) {
    void* const target = accessible(to, size);
    const void* const source = accessible(from, size);
    return target && source && copy_bytes(target, source, size) ? kSuccess : kIllegalAddress;
}

ssize_t fallback(const OpenFile& file, bool reads, const void* address, std::size_t size,
                 off_t offset, Caller caller) {
    if (environment_is("HIPFILE_ALLOW_COMPAT_MODE", false)) return -kIONotSupported;
    static Entry& counted = entry("hipfile.fallback");
    counted.add();
    const auto copy = [&](void* to, const void* from, std::size_t bytes, int kind) {
        return caller == Caller::kStream ? copy_in_place(to, from, bytes)
                                         : hipMemcpy(to, from, bytes, kind);
    };
    std::vector<char> host(std::min(size, kFallbackBuffer));
    std::size_t done = 0;
    while (done < size) {
        const std::size_t part = std::min(size - done, host.size());
        char* const device = static_cast<char*>(const_cast<void*>(address)) + done;
        const off_t at = offset + static_cast<off_t>(done);
        ssize_t moved = 0;
        if (reads) {
            moved = pread(file.fd(), host.data(), part, at);
            if (moved < 0) return done > 0 ? static_cast<ssize_t>(done) : -1;
            if (moved == 0) break;
            const int code =
                copy(device, host.data(), static_cast<std::size_t>(moved), kHostToDevice);
            if (code != 0) return -code;
        } else {
            if (const int code = copy(host.data(), device, part, kDeviceToHost); code != 0) {
                return -code;
            }
            moved = pwrite(file.fd(), host.data(), part, at);
            if (moved < 0) return done > 0 ? static_cast<ssize_t>(done) : -1;
            fdatasync(file.fd());
        }
        done += static_cast<std::size_t>(moved);
    }
    return static_cast<ssize_t>(done);
}

}  // namespace

std::shared_ptr<OpenFile> OpenFile::open(int fd) {
    struct stat status{};
    if (fstat(fd, &status) != 0 || (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))) {
        return nullptr;
    }
    std::shared_ptr<OpenFile> file(new OpenFile(fd));
    const int access = fcntl(fd, F_GETFL) & O_ACCMODE;
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    file->direct_fd_ = ::open(link.c_str(), access | O_DIRECT | O_CLOEXEC);
    struct statfs system{};
    if (fstatfs(fd, &system) == 0) {
        file->eligible_ = system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_SUPER_MAGIC;
    }
    file->eligible_ |= S_ISBLK(status.st_mode);
    struct statx extended{};
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &extended) == 0 &&
        (extended.stx_mask & STATX_DIOALIGN) && extended.stx_dio_offset_align > 0) {
        file->memory_alignment_ = std::max(1U, extended.stx_dio_mem_align);
        file->offset_alignment_ = extended.stx_dio_offset_align;
    }
    return file;
}

OpenFile::~OpenFile() {
    if (direct_fd_ >= 0) ::close(direct_fd_);
}

ssize_t transfer(const OpenFile& file, bool reads, const void* address, std::size_t size,
                 off_t offset, Caller caller) {
    IoFaults& faults = IoFaults::instance();
    if (const int error_number = faults.enter(); error_number != 0) {
        errno = error_number;
        return -1;
    }
    const bool fast = takes_fast_path(file, address, size, offset);
    const auto part = static_cast<std::size_t>(
        faults.allowed(static_cast<std::int64_t>(size), fast ? file.offset_alignment() : 1));
    static Entry& bytes = entry("hipfile.bytes");
    const ssize_t moved = fast ? fast_path(file, reads, address, part, offset)
                               : fallback(file, reads, address, part, offset, caller);
    if (moved > 0) bytes.add(static_cast<std::uint64_t>(moved));
    return moved;
}

}  // namespace hipemu
