// The threads that transfers run on: made on first need, kept until the process ends.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hfa {

class Workers {
  public:
    static Workers& instance();

    // Runs `body` on this thread and, at the same time, on up to `helpers` pool threads; returns
    // when every one that began has ended. Helpers that did not get to run before this thread was
    // through are not waited for: a short transfer never pays for a thread's wake-up. `waiting` is
    // called every 50 ms while this thread waits for the helpers.
    void run(int helpers, const std::function<void()>& body, const std::function<void()>& waiting);

    // Runs `body` on a pool thread of its own, and returns at once. Throws std::system_error where
    // the system gives no thread.
    void start(std::function<void()> body);

    // Ends all threads, those that `start` keeps busy when they are through; the next run() makes
    // them anew.
    void stop();
    int thread_count() const;

  private:
    struct Job {
        const std::function<void()>* body;
        int unstarted;
        int running = 0;
        std::condition_variable ended;
    };
    // False where the system gives none. With the mutex held.
    bool add_thread() noexcept;
    void work();

    mutable std::mutex mutex_;
    std::condition_variable wanted_;
    std::deque<Job*> queue_;
    std::deque<std::function<void()>> started_;  // never more than idle_: each has its thread
    std::vector<std::thread> threads_;
    int idle_ = 0;
    bool stopping_ = false;
};

}  // namespace hfa
