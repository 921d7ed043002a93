#include "chunk_runner.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "file_io.hpp"
#include "library_io.hpp"

namespace hfa {
namespace {

constexpr std::int64_t kPage = 4096;
// Direct pieces are cut so that several threads can ask the library at once.
constexpr std::int64_t kDirectChunk = 16 << 20;
// Registering pages costs the same per page whatever the length, but each call costs some on top;
// nothing is copied by the CPU, so no cache asks for small chunks.
constexpr std::int64_t kMappedChunks = 4;

constexpr std::int64_t kRampDivisor = 8;

std::int64_t round_down(std::int64_t value) { return value / kPage * kPage; }
std::int64_t round_up(std::int64_t value) { return round_down(value + kPage - 1); }

std::int64_t chunk_size(const Request& request, Path path) {
    switch (path) {
        case Path::Library:
            return std::numeric_limits<std::int64_t>::max();  // whole: that is what it is for
        case Path::Direct:
            return std::max(kDirectChunk, request.chunk);
        case Path::Mapped:
            return kMappedChunks * request.chunk;
        default:
            return request.chunk;
    }
}

}  // namespace

Job::Job(const Request& request) : request(request) {
    for (const Piece& piece : request.pieces) {
        library_chunks_ |= piece.path == Path::Library || piece.path == Path::Direct;
        cut(piece);
    }
}

// Cuts a piece into chunks. Later chunks begin at multiples of their size in the file, which keeps
// O_DIRECT and page boundaries aligned. Staged pieces begin and end with smaller chunks: until the
// first one is filled the bus has nothing to do, and at the end nothing is left to fill while it
// works (5 % of 1 GiB with 4 MiB chunks on an H200).
void Job::cut(const Piece& piece) {
    const std::int64_t size = chunk_size(request, piece.path);
    const bool staged = piece.path == Path::Buffered || piece.path == Path::ODirect;
    const std::int64_t small = std::max<std::int64_t>(size / kRampDivisor / kPage * kPage, kPage);
    const std::int64_t ramp = staged ? request.threads * small : 0;
    std::int64_t done = 0;
    while (done < piece.nbytes) {
        const std::int64_t left = piece.nbytes - done;
        const bool at_an_end = done < ramp || left <= ramp;
        const std::int64_t step = staged && at_an_end ? small : size;
        std::int64_t part = left;
        if (part > step) part = step - (piece.offset + done) % step;
        if (!at_an_end && left - part < ramp) part = left - ramp;
        chunks_.push_back({piece.offset + done, piece.pointer + static_cast<std::uintptr_t>(done),
                           part, piece.path});
        done += part;
    }
}

const Piece* Job::next() {
    if (stopped()) return nullptr;
    const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
    return index < chunks_.size() ? &chunks_[index] : nullptr;
}

void Job::stop(Failure failure) {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (!outcome_.failure) {
        outcome_.failure = std::move(failure);
    } else {
        outcome_.others.push_back(std::move(failure));
    }
}

void Job::moved(Path path, std::int64_t nbytes) {
    progress_.fetch_add(nbytes, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    outcome_.moved[static_cast<std::size_t>(path)] += nbytes;
}

void Job::ended(std::int64_t end, std::int64_t missing) {
    const std::lock_guard lock(mutex_);
    outcome_.end_of_file = std::min(outcome_.end_of_file, end);
    outcome_.missing += missing;
}

Outcome Job::take_outcome() {
    const std::lock_guard lock(mutex_);
    return std::move(outcome_);
}

ChunkRunner::ChunkRunner(Job& job) : job_(job), request_(job.request) {}

ChunkRunner::~ChunkRunner() {
    if (!lane_) return;
    if (Failure failure = lane_->drain()) job_.stop(std::move(failure));
}

Lane& ChunkRunner::lane() {
    if (!lane_) {
        lane_ = LanePool::instance().take(request_.runtime, request_.device,
                                          request_.chunk + kSlotSlack);
        lane_->order_after(request_.stream);
    }
    return *lane_;
}

bool ChunkRunner::step() {
    try {
        if (!scope_) scope_.emplace(request_.runtime, request_.device);
        const Piece* chunk = job_.next();
        if (chunk) {
            run(*chunk);
            return true;
        }
        if (pending_write_) finish_write();
        if (lane_) {
            Failure failure = lane_->drain();
            if (failure) job_.stop(std::move(failure));
        }
    } catch (const Error& error) {
        pending_write_.reset();
        job_.stop(error.failure());
    } catch (const std::exception& error) {
        pending_write_.reset();
        job_.stop({Channel::State, 0, 0, "", "", error.what()});
    }
    return false;
}

void ChunkRunner::run(const Piece& chunk) {
    switch (chunk.path) {
        case Path::Library:
        case Path::Direct:
            run_library(chunk);
            break;
        case Path::Mapped:
            if (!read_mapped(chunk)) run_buffered(chunk);
            break;
        case Path::Buffered:
        case Path::ODirect:
            request_.direction == Direction::Read ? read_staged(chunk) : write_staged(chunk);
            break;
    }
}

void ChunkRunner::run_library(const Piece& chunk) {
    Moved moved;
    try {
        moved = move_by_library(request_.file, request_.direction, request_.runtime.platform,
                                request_.registration.get(), chunk, [&](std::int64_t count) {
                                    job_.moved(chunk.path, count);
                                    return !job_.stopped();
                                });
    } catch (const Error& error) {
        moved.failure = error.failure();
    }
    const std::int64_t rest = chunk.nbytes - moved.nbytes;
    if (moved.failure) {
        if (!request_.may_fall_back) throw Error(moved.failure);
        run_buffered({chunk.offset + moved.nbytes,
                      chunk.pointer + static_cast<std::uintptr_t>(moved.nbytes), rest,
                      Path::Buffered});
    } else if (rest > 0 && !job_.stopped()) {
        job_.ended(chunk.offset + moved.nbytes, rest);
    }
}

// In parts that fit a slot, through the page cache: what could not go another way.
void ChunkRunner::run_buffered(const Piece& piece) {
    for (std::int64_t at = 0; at < piece.nbytes && !job_.stopped(); at += request_.chunk) {
        run({piece.offset + at, piece.pointer + static_cast<std::uintptr_t>(at),
             std::min(request_.chunk, piece.nbytes - at), Path::Buffered});
    }
}

// Reads a little more than the chunk on both sides, to aligned ends. `shift` is where the chunk's
// first byte lies in `host`; the count is of the chunk's own bytes.
Moved ChunkRunner::read_o_direct(const Piece& chunk, void* host, std::int64_t& shift) {
    shift = 0;
    const int fd = request_.file.direct_fd();
    if (fd >= 0) {
        const std::int64_t first = round_down(chunk.offset);
        const std::int64_t want = round_up(chunk.offset + chunk.nbytes) - first;
        Moved moved = read_fully(fd, host, want, first);
        if (!moved.failure || moved.nbytes > 0) {
            shift = chunk.offset - first;
            moved.nbytes = std::clamp<std::int64_t>(moved.nbytes - shift, 0, chunk.nbytes);
            // O_DIRECT ends a read at the last full block before an unaligned end of file, and
            // some file systems then answer EINVAL to the next: the buffered read knows better.
            if (moved.nbytes == chunk.nbytes) {
                moved.failure = {};
                return moved;
            }
        } else if (moved.failure.code != EINVAL && moved.failure.code != EOPNOTSUPP) {
            return moved;
        }
    }
    shift = 0;
    return read_fully(request_.file.fd(), host, chunk.nbytes, chunk.offset);
}

void ChunkRunner::read_staged(const Piece& chunk) {
    const Runtime& runtime = request_.runtime;
    Lane& lane = this->lane();
    Slot& slot = lane.slot(turn_++);
    lane.wait(slot);
    std::int64_t shift = 0;
    const Moved moved = chunk.path == Path::ODirect
                            ? read_o_direct(chunk, slot.host, shift)
                            : read_fully(request_.file.fd(), slot.host, chunk.nbytes, chunk.offset);
    if (moved.failure) throw Error(moved.failure);
    if (moved.nbytes > 0) {
        const int code = runtime.MemcpyAsync(
            reinterpret_cast<void*>(chunk.pointer), static_cast<char*>(slot.host) + shift,
            static_cast<std::size_t>(moved.nbytes), kMemcpyDefault, lane.stream());
        check_runtime(runtime, code, runtime.MemcpyAsync.name);
        lane.mark(slot);
        job_.moved(chunk.path, moved.nbytes);
    }
    if (moved.nbytes < chunk.nbytes) {
        job_.ended(chunk.offset + moved.nbytes, chunk.nbytes - moved.nbytes);
    }
}

// False: the runtime does not take these pages; nothing was done.
bool ChunkRunner::read_mapped(const Piece& chunk) {
    const Runtime& runtime = request_.runtime;
    Lane& lane = this->lane();
    Slot& slot = lane.slot(turn_);
    lane.wait(slot);
    const std::int64_t first = round_down(chunk.offset);
    const auto length = static_cast<std::size_t>(round_up(chunk.offset + chunk.nbytes) - first);
    void* map = mmap(nullptr, length, PROT_READ, MAP_SHARED, request_.file.fd(), first);
    if (map == MAP_FAILED) return false;
    const int code = runtime.HostRegister(map, length, kRegisterReadOnly);
    if (code != 0) {
        runtime.GetLastError();
        munmap(map, length);
        return false;
    }
    ++turn_;
    slot.mapping = map;  // the slot owns it from here
    slot.mapping_length = length;
    const int copied = runtime.MemcpyAsync(
        reinterpret_cast<void*>(chunk.pointer), static_cast<char*>(map) + (chunk.offset - first),
        static_cast<std::size_t>(chunk.nbytes), kMemcpyDefault, lane.stream());
    check_runtime(runtime, copied, runtime.MemcpyAsync.name);
    lane.mark(slot);
    job_.moved(Path::Mapped, chunk.nbytes);
    return true;
}

// Queues the device's copy of this chunk, then writes the chunk before it: the bus works while the
// file system does.
void ChunkRunner::write_staged(const Piece& chunk) {
    const Runtime& runtime = request_.runtime;
    Lane& lane = this->lane();
    Slot& slot = lane.slot(turn_++);
    lane.wait(slot);
    const int code =
        runtime.MemcpyAsync(slot.host, reinterpret_cast<const void*>(chunk.pointer),
                            static_cast<std::size_t>(chunk.nbytes), kMemcpyDefault, lane.stream());
    check_runtime(runtime, code, runtime.MemcpyAsync.name);
    lane.mark(slot);
    if (pending_write_) finish_write();
    pending_write_ = PendingWrite{chunk, &slot};
}

void ChunkRunner::finish_write() {
    const PendingWrite write = *pending_write_;
    pending_write_.reset();
    lane().wait(*write.slot);
    int fd = write.chunk.path == Path::ODirect ? request_.file.direct_fd() : -1;
    if (fd < 0) fd = request_.file.fd();
    const Moved moved = write_fully(fd, write.slot->host, write.chunk.nbytes, write.chunk.offset);
    if (moved.failure) throw Error(moved.failure);
    job_.moved(write.chunk.path, moved.nbytes);
}

}  // namespace hfa
