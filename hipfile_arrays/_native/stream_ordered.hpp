// A transfer that takes its place in the caller's stream while the caller goes on.
//
// All that the device has to do for it is queued on the caller's stream at once, a few operations a
// chunk, and threads of ours do the file's part meanwhile:
//
//   read:   ... earlier work | started! | wait until slot 0 is filled | copy | done! | wait ...
//   write:  ... earlier work | copy | done! | copy | done! | wait until slot 0 is written | ...
//
// So earlier work comes first and later work after, by the stream itself, and no thread of ours
// needs the GPU runtime. That is the point: a thread that holds a stream back and then has to ask
// the runtime for a copy stands still for ever as soon as another thread frees memory or loads a
// module, because CUDA does both under a lock and waits for every stream (seen on an H200 with
// cudaFree, cudaFreeHost, cudaHostUnregister and cuModuleLoadData while a host function blocked).
//
// Neither does a thread of ours need the GIL, but at the very end. One is there for every transfer
// whose operations are queued, so that whatever comes behind one of them in the device's queues
// gets its turn.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "engine.hpp"
#include "ring.hpp"

namespace hfa {

class StreamTransfer {
  public:
    static constexpr std::size_t kMostBegun = 16;
    using Ended = std::function<void(Outcome)>;

    // The request has one piece, Buffered or ODirect, and `takes_stream_waits` of its device is
    // true. Returns at once, unless kMostBegun are there: then `poll` is called every 50 ms until
    // one has ended, and null is the answer when it says false. The runtime, too, lets a caller
    // wait once some hundred operations are queued. `ended` is called on the transfer's thread.
    // Throws Error; after that and after null, `ended` is not called.
    static std::shared_ptr<StreamTransfer> begin(Request request, Ended ended,
                                                 const std::function<bool()>& poll);
    ~StreamTransfer();

    // Asks it to stop within one chunk; harmless later.
    void cancel() noexcept;
    std::int64_t progress() const { return progress_; }
    // Ends it if the device has failed, for then its stream never will. For those who wait.
    void check() noexcept;

    // For the end of the process: stops reads, waits until all have ended and told so, and refuses
    // more. `poll` is called now and then; when it answers false, writes are stopped as well.
    static void finish_all(const std::function<bool()>& poll);

  private:
    StreamTransfer(Request request, Ended ended);
    const Piece& piece() const { return request_.pieces.front(); }
    bool reads() const { return request_.direction == Direction::Read; }
    Piece chunk(std::int64_t number) const;
    int slot_of(std::int64_t number) const { return static_cast<int>(number % slots_); }
    Ring::Count round_of(std::int64_t number) const {
        return static_cast<Ring::Count>(number / slots_);
    }

    void queue();
    void work() noexcept;
    void move();
    void move_chunk(std::int64_t number);
    void read_chunk(std::int64_t number);
    void write_chunk(std::int64_t number);
    template <class Reached>
    bool wait_for(const Reached& reached, bool even_if_stopped = false) const;
    void let_stream_pass();
    bool stream_has_passed() const;
    void stop(Failure failure);
    void leave();

    Request request_;
    Held held_;
    Ended ended_;
    std::int64_t chunks_ = 0;
    std::int64_t slots_ = 0;
    std::unique_ptr<Ring> ring_;
    std::atomic<std::int64_t> next_{0};
    std::atomic<std::int64_t> progress_{0};
    std::atomic<bool> cancelled_{false};
    std::atomic<bool> stopped_{false};
    std::atomic<int> device_failure_{0};
    std::atomic<bool> abandoned_{
        false};  // not all was queued: nobody knows when the stream is through
    std::mutex mutex_;
    Outcome outcome_;
};

}  // namespace hfa
