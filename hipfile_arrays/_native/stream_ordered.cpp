#include "stream_ordered.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "device.hpp"
#include "slot_io.hpp"
#include "staging.hpp"
#include "workers.hpp"

namespace hfa {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kMemcpyDefault = 4;
constexpr microseconds kFirstPause{10};
constexpr microseconds kLongestPause{500};

// All transfers that were begun and have not told their end.
struct Begun {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::shared_ptr<StreamTransfer>> all;
    bool closed = false;

    static Begun& instance() {
        static Begun* begun = new Begun;  // threads may use it while the process ends
        return *begun;
    }
};

}  // namespace

StreamTransfer::StreamTransfer(Request request, Ended ended)
    : request_(std::move(request)),
      held_(request_.file, request_.registration.get()),
      ended_(std::move(ended)) {
    const std::int64_t size = request_.chunk;
    chunks_ = (piece().offset % size + piece().nbytes + size - 1) / size;
    slots_ = std::min<std::int64_t>(2 * request_.threads, chunks_);
    ring_ = RingPool::instance().take(request_.runtime, request_.device,
                                      std::min(size, piece().nbytes) + kSlotSlack,
                                      static_cast<int>(slots_));
}

StreamTransfer::~StreamTransfer() {
    // Memory that a stream may still use is not given back.
    if (ring_ && (abandoned_ || device_failure_ != 0)) static_cast<void>(ring_.release());
}

// Chunks begin at multiples of their size in the file.
Piece StreamTransfer::chunk(std::int64_t number) const {
    const std::int64_t size = request_.chunk;
    const std::int64_t first = piece().offset / size * size;
    const std::int64_t start = std::max(piece().offset, first + number * size);
    const std::int64_t end = std::min(piece().offset + piece().nbytes, first + (number + 1) * size);
    return {start, piece().pointer + static_cast<std::uintptr_t>(start - piece().offset),
            end - start, piece().path};
}

std::shared_ptr<StreamTransfer> StreamTransfer::begin(Request request, Ended ended,
                                                      const std::function<bool()>& poll) {
    refuse_after_fork();
    const DeviceScope scope(request.runtime, request.device);
    refuse_capture(request.runtime, request.stream);
    Begun& begun = Begun::instance();
    std::shared_ptr<StreamTransfer> made;
    {
        std::unique_lock lock(begun.mutex);
        const auto has_place = [&] { return begun.closed || begun.all.size() < kMostBegun; };
        while (!begun.changed.wait_for(lock, milliseconds(50), has_place)) {
            lock.unlock();
            if (!poll()) return nullptr;
            lock.lock();
        }
        if (begun.closed) raise_state("the process is ending: no transfer can begin any more");
        made.reset(new StreamTransfer(std::move(request), std::move(ended)));
        begun.all.push_back(made);
    }
    try {
        Workers::instance().start([made] { made->work(); });
    } catch (const std::system_error& error) {
        made->leave();
        throw Error(errno_failure(error.code().value(), "starting a thread"));
    }
    try {
        made->queue();
    } catch (...) {
        made->abandoned_ = true;
        made->cancel();
        {
            std::unique_lock lock(begun.mutex);
            begun.changed.wait(lock, [&] {
                return std::find(begun.all.begin(), begun.all.end(), made) == begun.all.end();
            });
        }
        // The worker has let the stream pass: what was queued of it ends, and the ring is free.
        if (wait_until_idle(made->request_.runtime, made->request_.stream, poll)) {
            RingPool::instance().give_back(std::move(made->ring_));
        }
        throw;
    }
    return made;
}

void StreamTransfer::queue() {
    const Runtime& runtime = request_.runtime;
    const Stream stream = request_.stream;
    const auto copy = [&](void* to, const void* from, std::int64_t nbytes) {
        check_runtime(
            runtime,
            runtime.MemcpyAsync(to, from, static_cast<std::size_t>(nbytes), kMemcpyDefault, stream),
            runtime.MemcpyAsync.name);
    };
    if (reads()) queue_count(runtime, stream, ring_->started_address(), 1);
    for (std::int64_t number = 0; number < chunks_; ++number) {
        const Piece part = chunk(number);
        const int slot = slot_of(number);
        const Ring::Count round = round_of(number);
        void* const device = reinterpret_cast<void*>(part.pointer);
        char* const host = ring_->host(slot) + shift_in_slot(part);
        if (reads()) {
            queue_wait(runtime, stream, ring_->turn_address(slot), round + 1);
            copy(device, host, part.nbytes);
        } else {
            if (round > 0) queue_wait(runtime, stream, ring_->turn_address(slot), round);
            copy(host, device, part.nbytes);
        }
        queue_count(runtime, stream, ring_->done_address(slot), round + 1);
    }
}

// False if it was stopped meanwhile.
template <class Reached>
bool StreamTransfer::wait_for(const Reached& reached, bool even_if_stopped) const {
    for (int i = 0; i < 200; ++i) {
        if (reached()) return true;
    }
    auto pause = kFirstPause;
    while (!reached()) {
        if (abandoned_ || device_failure_ != 0) return false;
        if (!even_if_stopped && (stopped_ || cancelled_)) return false;
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, kLongestPause);
    }
    return true;
}

void StreamTransfer::work() noexcept {
    try {
        move();
    } catch (const Error& error) {
        stop(error.failure());
    } catch (const std::exception& error) {
        stop({Channel::State, 0, 0, "", "", error.what()});
    }
    if (cancelled_ && progress_ < piece().nbytes) {
        stop({Channel::Interrupted, 0, 0, "", "", "interrupted"});
    }
    if (stopped_) let_stream_pass();
    const auto passed = [this] { return stream_has_passed(); };
    if (!wait_for(passed, true)) {
        if (const int code = device_failure_) {
            const Runtime& runtime = request_.runtime;
            stop(runtime_failure(runtime, code, runtime.StreamQuery.name));
        }
    } else if (ring_) {
        RingPool::instance().give_back(std::move(ring_));
    }
    held_.release();
    // What it holds is let go of before the process may end.
    if (const Ended ended = std::exchange(ended_, nullptr); ended && !abandoned_) {
        add_total(request_.direction, piece().path, progress_);
        ended(std::move(outcome_));
    }
    leave();
}

void StreamTransfer::move() {
    refuse_after_fork();
    if (reads() && !wait_for([this] { return ring_->started(); })) return;
    const std::function<void()> body = [this] {
        while (!stopped_ && !cancelled_) {
            const std::int64_t number = next_.fetch_add(1, std::memory_order_relaxed);
            if (number >= chunks_) return;
            try {
                reads() ? read_chunk(number) : write_chunk(number);
            } catch (const Error& error) {
                stop(error.failure());
            }
        }
    };
    const std::int64_t helpers = std::min<std::int64_t>(request_.threads, chunks_) - 1;
    Workers::instance().run(static_cast<int>(helpers), body, [] {});
}

void StreamTransfer::read_chunk(std::int64_t number) {
    const int slot = slot_of(number);
    const Ring::Count round = round_of(number);
    if (!wait_for([&] { return ring_->done(slot) >= round; })) return;
    const Piece part = chunk(number);
    const Moved moved = read_into_slot(request_.file, part, ring_->host(slot));
    if (moved.failure) throw Error(moved.failure);
    progress_ += moved.nbytes;
    if (moved.nbytes < part.nbytes) {
        {
            const std::lock_guard lock(mutex_);
            outcome_.end_of_file = std::min(outcome_.end_of_file, part.offset + moved.nbytes);
            outcome_.missing += part.nbytes - moved.nbytes;
        }
        stopped_ = true;
        return;
    }
    ring_->set_turn(slot, round + 1);
}

void StreamTransfer::write_chunk(std::int64_t number) {
    const int slot = slot_of(number);
    const Ring::Count round = round_of(number);
    if (!wait_for([&] { return ring_->done(slot) >= round + 1; })) return;
    const Piece part = chunk(number);
    const Moved moved =
        write_fully(request_.file.fd(), ring_->host(slot), part.nbytes, part.offset);
    if (moved.failure) throw Error(moved.failure);
    progress_ += moved.nbytes;
    ring_->set_turn(slot, round + 1);
}

// After a failure the stream goes through all that is left of its copies. What was not read is
// zeros: another transfer's bytes must not show.
void StreamTransfer::let_stream_pass() {
    for (int slot = 0; slot < static_cast<int>(slots_); ++slot) {
        const bool idle = ring_->done(slot) >= ring_->turn(slot);
        if (reads() && idle) {
            std::memset(ring_->host(slot), 0, static_cast<std::size_t>(ring_->capacity()));
        }
        ring_->set_turn(slot, Ring::kAll);
    }
}

bool StreamTransfer::stream_has_passed() const {
    for (std::int64_t number = std::max<std::int64_t>(0, chunks_ - slots_); number < chunks_;
         ++number) {
        if (ring_->done(slot_of(number)) < round_of(number) + 1) return false;
    }
    return true;
}

void StreamTransfer::stop(Failure failure) {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (!outcome_.failure) {
        outcome_.failure = std::move(failure);
    } else {
        outcome_.others.push_back(std::move(failure));
    }
}

void StreamTransfer::leave() {
    Begun& begun = Begun::instance();
    const std::lock_guard lock(begun.mutex);
    std::erase_if(begun.all, [this](const auto& one) { return one.get() == this; });
    begun.changed.notify_all();
}

void StreamTransfer::cancel() noexcept { cancelled_ = true; }

void StreamTransfer::check() noexcept {
    if (is_forked()) return;
    try {
        if (const int code = device_failure(request_.runtime, request_.device)) {
            device_failure_ = code;
        }
    } catch (const Error&) {
        return;  // nothing to tell, then
    }
}

void StreamTransfer::finish_all(const std::function<bool()>& poll) {
    if (is_forked()) return;
    Begun& begun = Begun::instance();
    std::unique_lock lock(begun.mutex);
    begun.closed = true;
    for (const auto& one : begun.all) {
        if (one->reads()) one->cancel();
    }
    while (!begun.changed.wait_for(lock, milliseconds(50), [&] { return begun.all.empty(); })) {
        const auto all = begun.all;
        lock.unlock();
        const bool go_on = poll();
        for (const auto& one : all) {
            one->check();
            if (!go_on) one->cancel();
        }
        lock.lock();
    }
}

}  // namespace hfa
