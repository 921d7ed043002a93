// The emulated hipFile below its entries: an open file, scoring, fast path and fallback.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hipemu {

class OpenFile {
  public:
    // Null for what is neither a regular file nor a block device.
    static std::shared_ptr<OpenFile> open(int fd);
    ~OpenFile();
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;

    int fd() const { return fd_; }
    // Reopened with O_DIRECT by the library itself; -1 where refused.
    int direct_fd() const { return direct_fd_; }
    bool eligible_file_system() const { return eligible_; }
    std::uint32_t memory_alignment() const { return memory_alignment_; }
    std::uint32_t offset_alignment() const { return offset_alignment_; }

  private:
    explicit OpenFile(int fd) : fd_(fd) {}
    int fd_;
    int direct_fd_ = -1;
    bool eligible_ = false;
    std::uint32_t memory_alignment_ = 4096;
    std::uint32_t offset_alignment_ = 4096;
};

// Who runs a transfer: the thread that called hipFileRead, or a stream that got to it.
enum class Caller { kThread, kStream };

// Bytes moved, or a negative result as hipFileRead gives it (errno set for -1).
ssize_t transfer(const OpenFile& file, bool reads, const void* address, std::size_t size,
                 off_t offset, Caller caller);

}  // namespace hipemu
