// Counts the I/O that uses a thing, so that closing it can wait for the last one to end.
#pragma once

#include <condition_variable>
#include <mutex>

namespace hfa {

class InFlight {
  public:
    // False once closed: the thing must not be used any more.
    bool enter() {
        const std::lock_guard lock(mutex_);
        if (closed_) return false;
        ++count_;
        return true;
    }

    void leave() {
        const std::lock_guard lock(mutex_);
        if (--count_ == 0) idle_.notify_all();
    }

    // Refuses new users and waits for the present ones. True for the one call that closed it.
    // Never call with the GIL held: an I/O under way may need it to end.
    bool close() {
        std::unique_lock lock(mutex_);
        const bool first = !closed_;
        closed_ = true;
        idle_.wait(lock, [this] { return count_ == 0; });
        return first;
    }

    // As close, unless somebody uses it: then it stays open, and the answer is false.
    bool close_if_idle() {
        const std::lock_guard lock(mutex_);
        if (count_ == 0) closed_ = true;
        return count_ == 0;
    }

    // As close, in a child after fork: whoever held the lock or the use is not there any more.
    bool abandon() {
        const bool first = !closed_;
        closed_ = true;
        return first;
    }

    bool closed() const {
        const std::lock_guard lock(mutex_);
        return closed_;
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable idle_;
    int count_ = 0;
    bool closed_ = false;
};

// A user of a thing for the length of a scope.
class Use {
  public:
    explicit Use(InFlight& flight) : flight_(flight.enter() ? &flight : nullptr) {}
    ~Use() {
        if (flight_) flight_->leave();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const { return flight_ != nullptr; }

  private:
    InFlight* flight_;
};

}  // namespace hfa
