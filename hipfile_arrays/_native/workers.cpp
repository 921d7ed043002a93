#include "workers.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <utility>

namespace hfa {
namespace {

std::atomic<Workers*> current{nullptr};

// Signals belong to the interpreter's main thread: a worker must not be the one that is woken.
std::thread thread_without_signals(std::function<void()> body) {
    sigset_t all;
    sigset_t former;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    struct Restore {
        const sigset_t& mask;
        ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
    } const restore{former};
    return std::thread(std::move(body));
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
        // Where the system gives no more threads, those that are there do it, this one at least.
        const int missing = helpers - (idle_ - static_cast<int>(started_.size()));
        for (int i = 0; i < missing && add_thread(); ++i) continue;
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

void Workers::start(std::function<void()> body) {
    {
        const std::lock_guard lock(mutex_);
        started_.push_back(std::move(body));
        if (idle_ < static_cast<int>(started_.size()) && !add_thread()) {
            started_.pop_back();
            throw std::system_error(
                std::make_error_code(std::errc::resource_unavailable_try_again));
        }
    }
    wanted_.notify_all();
}

bool Workers::add_thread() noexcept {
    try {
        threads_.reserve(threads_.size() + 1);
        threads_.push_back(thread_without_signals([this] { work(); }));
    } catch (const std::exception&) {
        return false;
    }
    ++idle_;
    return true;
}

void Workers::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wanted_.wait(lock, [&] { return stopping_ || !started_.empty() || !queue_.empty(); });
        --idle_;
        if (!started_.empty()) {
            const std::function<void()> body = std::move(started_.front());
            started_.pop_front();
            lock.unlock();
            body();
            lock.lock();
        } else if (stopping_) {
            return;
        } else {
            Job* job = queue_.front();
            if (--job->unstarted == 0) queue_.pop_front();
            ++job->running;
            lock.unlock();
            (*job->body)();
            lock.lock();
            if (--job->running == 0) job->ended.notify_all();
        }
        ++idle_;
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
    for (std::thread& thread : threads) {
        // A transfer's end may be what asks for this, on its own thread.
        if (thread.get_id() == std::this_thread::get_id()) {
            thread.detach();
        } else {
            thread.join();
        }
    }
    const std::lock_guard lock(mutex_);
    stopping_ = false;
}

int Workers::thread_count() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(threads_.size());
}

}  // namespace hfa
