#include "open_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "device.hpp"

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x00002000U
#endif

namespace hfa {
namespace {

constexpr int kPosixDescriptor = 1;
constexpr long kSysCachestat = 451;  // the same number on every architecture; absent in old headers

struct CachestatRange {
    std::uint64_t offset;
    std::uint64_t length;
};

struct Cachestat {
    std::uint64_t cached;
    std::uint64_t dirty;
    std::uint64_t writeback;
    std::uint64_t evicted;
    std::uint64_t recently_evicted;
};

// linux/stat.h's struct statx as of 6.1, of which libc headers may know a shorter form; only the
// two fields at the end matter here.
struct StatxWithAlignment {
    std::uint32_t mask;
    std::uint8_t skipped[148];
    std::uint32_t direct_memory_alignment;
    std::uint32_t direct_offset_alignment;
    std::uint64_t spare[12];
};
static_assert(sizeof(StatxWithAlignment) == 256);

std::optional<std::uint64_t> resident_by_mincore(int fd, std::int64_t offset, std::int64_t nbytes) {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    const std::int64_t first = offset / page * page;
    const auto length = static_cast<std::size_t>(offset + nbytes - first);
    void* map = mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, first);
    if (map == MAP_FAILED) return std::nullopt;
    std::vector<unsigned char> pages((length + static_cast<std::size_t>(page) - 1) /
                                     static_cast<std::size_t>(page));
    const int answer = mincore(map, length, pages.data());
    munmap(map, length);
    if (answer != 0) return std::nullopt;
    std::uint64_t count = 0;
    for (const unsigned char in_core : pages) count += in_core & 1U;
    return count * static_cast<std::uint64_t>(page);
}

}  // namespace

std::optional<std::int64_t> OpenFile::size() const {
    if (closed()) raise_state("the file is closed");
    struct stat status;
    if (fstat(fd_, &status) != 0) throw Error(errno_failure(errno, "fstat"));
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    return status.st_size;
}

int OpenFile::direct_fd() {
    const std::lock_guard lock(mutex_);
    if (!direct_fd_) {
        // A descriptor of its own: O_DIRECT set on the caller's would change the caller's I/O.
        const std::string link = "/proc/self/fd/" + std::to_string(fd_);
        direct_fd_ = ::open(link.c_str(), (writable_ ? O_RDWR : O_RDONLY) | O_DIRECT | O_CLOEXEC);
    }
    return *direct_fd_;
}

FileHandle OpenFile::handle(Platform platform) {
    const std::lock_guard lock(mutex_);
    if (handle_) return handle_;
    const FileLibrary& library = file_library(platform);
    FileDescriptor descriptor{};
    descriptor.type = kPosixDescriptor;
    descriptor.handle.fd = fd_;
    FileHandle handle = nullptr;
    check_file(platform, library.HandleRegister(&handle, &descriptor), library.HandleRegister.name);
    handle_ = handle;
    handle_platform_ = platform;
    return handle_;
}

void OpenFile::close() {
    // A child after fork has its descriptors, and no way to the GPU's libraries.
    const bool child = is_forked();
    if (!(child ? flight_.abandon() : flight_.close())) return;
    if (handle_ && !child) file_library(handle_platform_).HandleDeregister(handle_);
    if (direct_fd_ && *direct_fd_ >= 0) ::close(*direct_fd_);
    ::close(fd_);
}

std::optional<DirectAlignment> direct_alignment(int fd) {
    StatxWithAlignment answer{};
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &answer) != 0) {
        return std::nullopt;
    }
    if (!(answer.mask & STATX_DIOALIGN) || answer.direct_offset_alignment == 0) {
        return std::nullopt;
    }
    return DirectAlignment{answer.direct_memory_alignment, answer.direct_offset_alignment};
}

std::optional<std::uint64_t> resident_bytes(int fd, std::int64_t offset, std::int64_t nbytes) {
    if (nbytes <= 0) return 0;
    const CachestatRange range{static_cast<std::uint64_t>(offset),
                               static_cast<std::uint64_t>(nbytes)};
    Cachestat answer{};
    if (syscall(kSysCachestat, fd, &range, &answer, 0) == 0) {
        return answer.cached * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    }
    return resident_by_mincore(fd, offset, nbytes);
}

}  // namespace hfa
