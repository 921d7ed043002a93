// Runs a plan: pieces -> chunks -> threads -> all bytes, or one failure.
//
// The planner (Python, hipfile_arrays/_transfer/plan.py) has decided which bytes take which path;
// nothing is decided here but how to keep the bus busy. One transfer goes like this:
//
//   run()            splits pieces into chunks, orders itself after the caller's stream, and works
//                    through the chunks on this thread and the pool's; returns when every chunk has
//                    ended, whether it went well or not.
//   Library, Direct  LibraryLoop: hipFileRead/Write until the chunk is done. They move bytes
//                    synchronously and know no streams, so the caller's stream is waited for first.
//   Buffered,        preadv/pwritev between the file and a pinned slot of a Lane, and an
//   ODirect          asynchronous copy between slot and device, on the lane's own stream; the lane
//                    waits (by event) for the caller's stream first.
//   Mapped           reads only: the page cache's own pages, registered with the runtime read-only,
//                    are the source of the copy. No CPU touches the mapping, so a file truncated
//                    meanwhile cannot raise SIGBUS: pinning fails with an error, or pins the pages.
//
// What each level returns: chunks report bytes moved and, at the file's end, where it was; a
// failure is kept as data (first cause, then the rest) and stops the others at their next chunk;
// run() never throws for them.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "open_file.hpp"
#include "registry.hpp"

namespace hfa {

enum class Direction : std::uint8_t { Read, Write };
enum class Path : std::uint8_t { Library, Direct, Buffered, ODirect, Mapped };
inline constexpr std::size_t kPaths = 5;

struct Piece {
    std::int64_t offset;     // in the file, bytes
    std::uintptr_t pointer;  // device address
    std::int64_t nbytes;
    Path path;
};

struct Request {
    OpenFile& file;
    Direction direction;
    const Runtime& runtime;
    int device;
    Stream stream;  // the caller's: work queued there comes first
    std::vector<Piece> pieces;
    std::shared_ptr<Registration> registration;  // holds all pieces' device ranges, or null
    // A Direct chunk that fails is done again through the page cache (path="auto").
    bool may_fall_back;
    int threads;
    std::int64_t chunk;  // bytes
};

struct Outcome {
    Failure failure;              // the first
    std::vector<Failure> others;  // what else failed before everything had stopped
    std::int64_t missing = 0;     // bytes that the file did not have
    std::int64_t end_of_file = std::numeric_limits<std::int64_t>::max();  // where, if it was met
    std::array<std::int64_t, kPaths> moved{};                             // bytes by path
};

// Keeps the file and the registered buffer of a transfer from being closed while it lasts, and
// counts a hit of the buffer. Throws Error (State) if one is closed already; an automatic
// registration that is closed is not used, then.
class Held {
  public:
    Held(OpenFile& file, Registration* registration);
    // The one that is held, or null.
    Registration* registration() const { return registration_; }
    void release() {
        buffer_.reset();
        file_.reset();
    }

  private:
    std::optional<Use> file_;
    std::optional<Use> buffer_;
    Registration* registration_ = nullptr;
};

// `poll` is called on this thread now and then (at most every 50 ms of work) with the bytes moved
// so far; when it answers false the transfer stops within one chunk.
Outcome run(const Request& request, const std::function<bool(std::int64_t)>& poll);

// Throws Error (State) while the stream is captured into a graph: a transfer cannot be recorded.
void refuse_capture(const Runtime& runtime, Stream stream);

// Bytes and calls by path since the process began.
struct PathTotals {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
};
using Totals = std::array<std::array<PathTotals, kPaths>, 2>;  // [direction][path]
void add_total(Direction direction, Path path, std::int64_t nbytes);
Totals totals();
void reset_totals();

}  // namespace hfa
