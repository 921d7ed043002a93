#include "chunk_runner.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "library_io.hpp"
#include "slot_io.hpp"

namespace hfa {
namespace {

// Direct pieces are cut so that several threads can ask the library at once.
constexpr std::int64_t kDirectChunk = 16 << 20;
// Registering pages costs the same per page whatever the length, but each call costs some on top;
// nothing is copied by the CPU, so no cache asks for small chunks.
constexpr std::int64_t kMappedChunks = 4;

constexpr std::int64_t kRampDivisor = 8;

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

// Small enough to be bundled, and the size of the chunks at a long piece's ends.
std::int64_t small_part(std::int64_t chunk) {
    return std::max<std::int64_t>(chunk / kRampDivisor / kPage * kPage, kPage);
}

// The length of the run that begins at pieces[first]: pieces that adjoin by `adjoin`.
template <class Adjoin>
std::size_t run_of(Chunk pieces, std::size_t first, std::int64_t& nbytes, Adjoin adjoin) {
    nbytes = pieces[first].nbytes;
    std::size_t last = first + 1;
    while (last < pieces.size() && adjoin(pieces[last - 1], pieces[last])) {
        nbytes += pieces[last++].nbytes;
    }
    return last - first;
}

bool adjoin_in_file(const Piece& a, const Piece& b) { return a.offset + a.nbytes == b.offset; }
bool adjoin_on_device(const Piece& a, const Piece& b) {
    return a.pointer + static_cast<std::uintptr_t>(a.nbytes) == b.pointer;
}

}  // namespace

Job::Job(const Request& request) : request(request) {
    for (const Piece& piece : request.pieces) {
        library_chunks_ |= piece.path == Path::Library || piece.path == Path::Direct;
        if (piece.path == Path::Buffered && piece.nbytes <= small_part(request.chunk)) {
            bundle(piece);
        } else {
            cut(piece);
        }
    }
}

// Small pieces that follow each other share a slot: one wait, one event, and one call for what
// adjoins in the file or on the device.
void Job::bundle(const Piece& piece) {
    parts_.push_back(piece);
    if (!chunks_.empty() && chunks_.back().room >= piece.nbytes) {
        ++chunks_.back().count;
        chunks_.back().room -= piece.nbytes;
    } else {
        chunks_.push_back({parts_.size() - 1, 1, request.chunk - piece.nbytes});
    }
}

// Cuts a piece into chunks. Later chunks begin at multiples of their size in the file, which keeps
// O_DIRECT and page boundaries aligned. Staged pieces begin and end with smaller chunks: until the
// first one is filled the bus has nothing to do, and at the end nothing is left to fill while it
// works (5 % of 1 GiB with 4 MiB chunks on an H200).
void Job::cut(const Piece& piece) {
    const std::int64_t size = chunk_size(request, piece.path);
    const bool staged = piece.path == Path::Buffered || piece.path == Path::ODirect;
    const std::int64_t small = small_part(size);
    const std::int64_t ramp = staged ? request.threads * small : 0;
    std::int64_t done = 0;
    while (done < piece.nbytes) {
        const std::int64_t left = piece.nbytes - done;
        const bool at_an_end = done < ramp || left <= ramp;
        const std::int64_t step = staged && at_an_end ? small : size;
        std::int64_t part = left;
        if (part > step) part = step - (piece.offset + done) % step;
        if (!at_an_end && left - part < ramp) part = left - ramp;
        chunks_.push_back({parts_.size(), 1});
        parts_.push_back({piece.offset + done, piece.pointer + static_cast<std::uintptr_t>(done),
                          part, piece.path});
        done += part;
    }
}

Chunk Job::next() {
    if (stopped()) return {};
    const std::size_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= chunks_.size()) return {};
    return Chunk(parts_).subspan(chunks_[index].first, chunks_[index].count);
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
        const Chunk chunk = job_.next();
        if (!chunk.empty()) {
            run(chunk);
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

void ChunkRunner::run(Chunk chunk) {
    const Piece& piece = chunk.front();
    switch (piece.path) {
        case Path::Library:
        case Path::Direct:
            run_library(piece);
            break;
        case Path::Mapped:
            if (!read_mapped(piece)) run_buffered(piece);
            break;
        case Path::Buffered:
        case Path::ODirect:
            if (request_.direction == Direction::Write) {
                write_staged(chunk);
            } else if (chunk.size() > 1) {
                read_bundle(chunk);
            } else {
                read_staged(piece);
            }
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
        const Piece part{piece.offset + at, piece.pointer + static_cast<std::uintptr_t>(at),
                         std::min(request_.chunk, piece.nbytes - at), Path::Buffered};
        run(Chunk(&part, 1));
        // The write that was queued refers to `part`.
        if (pending_write_) finish_write();
    }
}

void ChunkRunner::copy(const void* to, const void* from, std::int64_t nbytes) {
    const Runtime& runtime = request_.runtime;
    const int code =
        runtime.MemcpyAsync(const_cast<void*>(to), from, static_cast<std::size_t>(nbytes),
                            kMemcpyDefault, lane().stream());
    check_runtime(runtime, code, runtime.MemcpyAsync.name);
}

void ChunkRunner::read_staged(const Piece& chunk) {
    Lane& lane = this->lane();
    Slot& slot = lane.slot(turn_++);
    lane.wait(slot);
    char* const host = static_cast<char*>(slot.host) + shift_in_slot(chunk);
    const Moved moved = read_into_slot(request_.file, chunk, static_cast<char*>(slot.host));
    if (moved.failure) throw Error(moved.failure);
    if (moved.nbytes > 0) {
        copy(reinterpret_cast<void*>(chunk.pointer), host, moved.nbytes);
        lane.mark(slot);
        job_.moved(chunk.path, moved.nbytes);
    }
    if (moved.nbytes < chunk.nbytes) {
        job_.ended(chunk.offset + moved.nbytes, chunk.nbytes - moved.nbytes);
    }
}

// Pieces one behind the other in the slot, whatever gaps they have in the file and on the device.
void ChunkRunner::read_bundle(Chunk pieces) {
    Lane& lane = this->lane();
    Slot& slot = lane.slot(turn_++);
    lane.wait(slot);
    char* const host = static_cast<char*>(slot.host);
    std::int64_t at = 0;
    std::int64_t nbytes = 0;
    for (std::size_t first = 0; first < pieces.size();) {
        const std::size_t count = run_of(pieces, first, nbytes, adjoin_in_file);
        const Moved moved = read_fully(request_.file.fd(), host + at, nbytes, pieces[first].offset);
        if (moved.failure) throw Error(moved.failure);
        if (moved.nbytes < nbytes) {
            // The file ends in here: one by one, each piece says where.
            for (const Piece& piece : pieces) read_staged(piece);
            return;
        }
        at += nbytes;
        first += count;
    }
    at = 0;
    slot.pending = true;  // should a later copy fail, the earlier ones are waited for
    for (std::size_t first = 0; first < pieces.size();) {
        const std::size_t count = run_of(pieces, first, nbytes, adjoin_on_device);
        copy(reinterpret_cast<void*>(pieces[first].pointer), host + at, nbytes);
        at += nbytes;
        first += count;
    }
    lane.mark(slot);
    job_.moved(Path::Buffered, at);
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
void ChunkRunner::write_staged(Chunk pieces) {
    Lane& lane = this->lane();
    Slot& slot = lane.slot(turn_++);
    lane.wait(slot);
    char* to = static_cast<char*>(slot.host);
    std::int64_t nbytes = 0;
    slot.pending = true;  // should a later copy fail, the earlier ones are waited for
    for (std::size_t first = 0; first < pieces.size();) {
        const std::size_t count = run_of(pieces, first, nbytes, adjoin_on_device);
        copy(to, reinterpret_cast<const void*>(pieces[first].pointer), nbytes);
        to += nbytes;
        first += count;
    }
    lane.mark(slot);
    if (pending_write_) finish_write();
    pending_write_ = PendingWrite{pieces, &slot};
}

void ChunkRunner::finish_write() {
    const PendingWrite write = *pending_write_;
    pending_write_.reset();
    lane().wait(*write.slot);
    const Path path = write.pieces.front().path;
    int fd = path == Path::ODirect ? request_.file.direct_fd() : -1;
    if (fd < 0) fd = request_.file.fd();
    const char* from = static_cast<const char*>(write.slot->host);
    std::int64_t nbytes = 0;
    for (std::size_t first = 0; first < write.pieces.size();) {
        const std::size_t count = run_of(write.pieces, first, nbytes, adjoin_in_file);
        const Moved moved = write_fully(fd, from, nbytes, write.pieces[first].offset);
        if (moved.failure) throw Error(moved.failure);
        job_.moved(path, moved.nbytes);
        from += nbytes;
        first += count;
    }
}

}  // namespace hfa
