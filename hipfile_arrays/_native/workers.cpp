#include "workers.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace hfa {
namespace {

std::atomic<Workers*> current{nullptr};

// Signals belong to the interpreter's main thread: a worker must not be the one that is woken.
std::thread thread_without_signals(std::function<void()> body) {
    sigset_t all;
    sigset_t former;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    std::thread thread(std::move(body));
    pthread_sigmask(SIG_SETMASK, &former, nullptr);
    return thread;
}

}  // namespace

Workers& Workers::instance() {
    static std::once_flag once;
    std::call_once(once, [] {
        current = new Workers;
        // A forked child has none of the threads and perhaps a lock that nobody will release.
        pthread_atfork(nullptr, nullptr, [] { current = new Workers; });
    });
    return *current.load();
}

void Workers::run(int helpers, const std::function<void()>& body,
                  const std::function<void()>& waiting) {
    if (helpers <= 0) {
        body();
        return;
    }
    Job job{&body, helpers, 0, {}};
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back(&job);
        for (int missing = helpers - idle_; missing > 0; --missing) {
            threads_.push_back(thread_without_signals([this] { work(); }));
            ++idle_;
        }
    }
    wanted_.notify_all();
    body();
    std::unique_lock lock(mutex_);
    job.unstarted = 0;
    queue_.erase(std::remove(queue_.begin(), queue_.end(), &job), queue_.end());
    while (!job.ended.wait_for(lock, std::chrono::milliseconds(50),
                               [&] { return job.running == 0; })) {
        lock.unlock();
        waiting();
        lock.lock();
    }
}

void Workers::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wanted_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
        Job* job = queue_.front();
        if (--job->unstarted == 0) queue_.pop_front();
        ++job->running;
        --idle_;
        lock.unlock();
        (*job->body)();
        lock.lock();
        ++idle_;
        if (--job->running == 0) job->ended.notify_all();
    }
}

void Workers::stop() {
    std::vector<std::thread> threads;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        threads.swap(threads_);
    }
    wanted_.notify_all();
    for (std::thread& thread : threads) thread.join();
    const std::lock_guard lock(mutex_);
    stopping_ = false;
    idle_ = 0;
}

int Workers::thread_count() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(threads_.size());
}

}  // namespace hfa
