// One open file: its descriptor, a second one for O_DIRECT where the file system takes it, and its
// handle in hipFile or cuFile, each made on first need and each closed once.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "check.hpp"
#include "inflight.hpp"

namespace hfa {

struct DirectAlignment {  // bytes
    std::uint32_t memory;
    std::uint32_t offset;
};

class OpenFile {
  public:
    // Takes over `fd`.
    OpenFile(int fd, bool writable) : fd_(fd), writable_(writable) {}
    ~OpenFile() { close(); }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;

    int fd() const { return fd_; }
    bool writable() const { return writable_; }
    InFlight& flight() { return flight_; }

    // Bytes of a regular file, as of now; nothing for other kinds. Throws Error (errno).
    std::optional<std::int64_t> size() const;
    // Opened through /proc/self/fd with O_DIRECT; -1 where the file system refuses.
    int direct_fd();
    // Registers with the library on first use; throws Error when it refuses (every time).
    FileHandle handle(Platform platform);

    // Waits for I/O under way, gives the handle and the descriptors back. Harmless when repeated.
    // Not with the GIL held.
    void close();
    bool closed() const { return flight_.closed(); }

  private:
    int fd_;
    bool writable_;
    InFlight flight_;
    std::mutex mutex_;
    std::optional<int> direct_fd_;
    FileHandle handle_ = nullptr;
    Platform handle_platform_{};
};

// statx's O_DIRECT alignment of an open file; nothing where the kernel or file system has none.
std::optional<DirectAlignment> direct_alignment(int fd);

// How many bytes of the range lie in the page cache: cachestat(2) (Linux 6.5), else mincore(2),
// else nothing.
std::optional<std::uint64_t> resident_bytes(int fd, std::int64_t offset, std::int64_t nbytes);

}  // namespace hfa
