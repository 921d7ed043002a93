#include "fibers.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "memory.hpp"
#include "state.hpp"

extern "C" {
__attribute__((visibility("default"))) __thread hipemu_context* hipemu_current
    __attribute__((tls_model("initial-exec")));
void hipemu_switch(void** save, void* to);
void hipemu_enter(void* to);
}

namespace hipemu {
namespace {

constexpr std::size_t kStack = 256 << 10;
constexpr std::size_t kGuard = 4096;
constexpr unsigned kMostLanes = 64;

// A stack with a guard page below. Stacks go back to a pool: guard pages count against the
// process's limit of mappings.
class Stack {
  public:
    Stack() {
        const std::lock_guard lock(mutex());
        if (!pool().empty()) {
            base_ = pool().back();
            pool().pop_back();
            return;
        }
        void* made = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED) throw static_cast<int>(kOutOfMemory);
        mprotect(made, kGuard, PROT_NONE);
        base_ = static_cast<char*>(made);
    }
    ~Stack() {
        const std::lock_guard lock(mutex());
        pool().push_back(base_);
    }
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;
    char* top() const { return base_ + kStack; }
    bool guards(const void* address) const {
        const char* at = static_cast<const char*>(address);
        return at >= base_ && at < base_ + kGuard;
    }

  private:
    static std::mutex& mutex() {
        static std::mutex* all = new std::mutex;
        return *all;
    }
    static std::vector<char*>& pool() {
        static auto* all = new std::vector<char*>;
        return *all;
    }
    char* base_ = nullptr;
};

enum class State { kIdle, kRunning, kAtBlockBarrier, kInExchange };

struct Fiber {
    Stack stack;
    void* top = nullptr;  // where it stopped
    hipemu_context context{};
    State state = State::kIdle;
    unsigned warp = 0;
    unsigned lane = 0;
};

// Two sets of slots: a lane that is ahead brings its next value while others read the last ones.
struct Warp {
    std::uint64_t slots[2][kMostLanes];
    std::uint64_t present[2];
    unsigned phase;
    unsigned waiting;
    unsigned live;
};

class BlockRunner;
thread_local BlockRunner* running = nullptr;

class BlockRunner {
  public:
    explicit BlockRunner(const Launch& launch)
        : launch_(launch),
          threads_(launch.block.x * launch.block.y * launch.block.z),
          warps_((threads_ + wave_size() - 1) / wave_size()),
          shared_(launch.dynamic_shared + 64) {
        for (const std::size_t offset : launch.offsets) {
            arguments_.push_back(launch.arguments.get() + offset);
        }
        const auto at = reinterpret_cast<std::uintptr_t>(shared_.data());
        base_.dynamic_shared = shared_.data() + (64 - at % 64) % 64;
        base_.block_dim = launch.block;
        base_.grid_dim = launch.grid;
        running = this;
    }
    ~BlockRunner() {
        running = nullptr;
        hipemu_current = nullptr;
    }
    BlockRunner(const BlockRunner&) = delete;
    BlockRunner& operator=(const BlockRunner&) = delete;

    void run_block(hipemu_index block);
    void block_barrier();
    const std::uint64_t* exchange(std::uint64_t mine, std::uint64_t* present);
    // In the signal handler: what the message says, and where to go on.
    void* abandon(const void* address, bool known);
    bool in_kernel() const { return current_ != nullptr; }

  private:
    static void start();
    void run_threads(Fiber& fiber);
    void prepare(Fiber& fiber);
    void resume(Fiber& fiber);
    void resume_all(State state, unsigned warp);
    bool release_warp(unsigned warp);
    bool release_something();

    const Launch& launch_;
    const unsigned threads_;
    std::vector<Warp> warps_;
    std::vector<char> shared_;
    std::vector<void*> arguments_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::size_t used_ = 0;  // fibers of this block
    Fiber* current_ = nullptr;
    void* scheduler_ = nullptr;  // where the scheduler stopped
    hipemu_context base_{};
    unsigned next_ = 0;  // thread
    unsigned live_ = 0;
    int error_ = 0;
};

void BlockRunner::start() {
    BlockRunner* self = running;
    self->run_threads(*self->current_);
}

void BlockRunner::prepare(Fiber& fiber) {
    // What hipemu_enter pops: six registers and the address to return to, on a stack aligned as
    // after a call.
    void** top = reinterpret_cast<void**>(fiber.stack.top());
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&BlockRunner::start);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    fiber.top = top;
    fiber.state = State::kIdle;
}

void BlockRunner::run_threads(Fiber& fiber) {
    for (;;) {
        while (next_ < threads_) {
            const unsigned thread = next_++;
            const hipemu_index& size = base_.block_dim;
            fiber.context = base_;
            fiber.context.thread = {thread % size.x, thread / size.x % size.y,
                                    thread / (size.x * size.y)};
            fiber.warp = thread / wave_size();
            fiber.lane = thread % wave_size();
            fiber.state = State::kRunning;
            hipemu_current = &fiber.context;
            launch_.kernel->run(arguments_.data());
            --warps_[fiber.warp].live;
            --live_;
        }
        fiber.state = State::kIdle;
        hipemu_switch(&fiber.top, scheduler_);
    }
}

void BlockRunner::resume(Fiber& fiber) {
    current_ = &fiber;
    hipemu_current = &fiber.context;
    hipemu_switch(&scheduler_, fiber.top);
    current_ = nullptr;
    if (error_ != 0) throw error_;
}

void BlockRunner::resume_all(State state, unsigned warp) {
    std::vector<Fiber*> ready;
    for (std::size_t i = 0; i < used_; ++i) {
        Fiber& fiber = *fibers_[i];
        if (fiber.state != state) continue;
        if (state == State::kInExchange && fiber.warp != warp) continue;
        fiber.state = State::kRunning;
        ready.push_back(&fiber);
    }
    for (Fiber* fiber : ready) resume(*fiber);
}

bool BlockRunner::release_warp(unsigned index) {
    Warp& warp = warps_[index];
    if (warp.waiting == 0) return false;
    warp.phase ^= 1;
    warp.present[warp.phase] = 0;
    warp.waiting = 0;
    resume_all(State::kInExchange, index);
    return true;
}

bool BlockRunner::release_something() {
    bool released = false;
    for (unsigned i = 0; i < warps_.size(); ++i) {
        if (warps_[i].waiting >= warps_[i].live) released |= release_warp(i);
    }
    if (released) return true;
    unsigned at_barrier = 0;
    for (std::size_t i = 0; i < used_; ++i) {
        at_barrier += fibers_[i]->state == State::kAtBlockBarrier;
    }
    if (at_barrier > 0 && at_barrier >= live_) {
        resume_all(State::kAtBlockBarrier, 0);
        return true;
    }
    for (unsigned i = 0; i < warps_.size(); ++i) {
        if (release_warp(i)) return true;
    }
    return false;
}

void BlockRunner::run_block(hipemu_index block) {
    base_.block = block;
    next_ = 0;
    live_ = threads_;
    used_ = 0;
    const unsigned wave = wave_size();
    for (unsigned i = 0; i < warps_.size(); ++i) {
        warps_[i].phase = 0;
        warps_[i].present[0] = warps_[i].present[1] = 0;
        warps_[i].waiting = 0;
        warps_[i].live = threads_ - i * wave < wave ? threads_ - i * wave : wave;
    }
    while (next_ < threads_) {
        if (used_ == fibers_.size()) {
            fibers_.push_back(std::make_unique<Fiber>());
            prepare(*fibers_.back());
        }
        resume(*fibers_[used_++]);
    }
    while (live_ > 0) {
        if (release_something()) continue;
        std::fprintf(stderr, "hipemu: barrier deadlock in kernel %s, block (%u,%u,%u)\n",
                     launch_.name.c_str(), block.x, block.y, block.z);
        throw static_cast<int>(kLaunchFailure);
    }
}

void BlockRunner::block_barrier() {
    Fiber& fiber = *current_;
    fiber.state = State::kAtBlockBarrier;
    hipemu_switch(&fiber.top, scheduler_);
}

const std::uint64_t* BlockRunner::exchange(std::uint64_t mine, std::uint64_t* present) {
    Fiber& fiber = *current_;
    Warp& warp = warps_[fiber.warp];
    const unsigned phase = warp.phase;
    warp.slots[phase][fiber.lane] = mine;
    warp.present[phase] |= std::uint64_t{1} << fiber.lane;
    ++warp.waiting;
    fiber.state = State::kInExchange;
    hipemu_switch(&fiber.top, scheduler_);
    *present = warp.present[phase];
    return warp.slots[phase];
}

void* BlockRunner::abandon(const void* address, bool known) {
    const hipemu_context& at = current_->context;
    const bool overrun = known && current_->stack.guards(address);
    error_ = overrun ? kLaunchFailure : kIllegalAddress;
    // The memory's lock is not held by this thread, which was running a kernel.
    const std::string near = overrun ? "the stack of a kernel thread (256 KiB) is exhausted"
                             : known ? describe(address)
                                     : "address unknown";
    std::fprintf(stderr,
                 "hipemu: memory access fault at %p in kernel %s, block (%u,%u,%u), thread "
                 "(%u,%u,%u); %s\n",
                 address, launch_.name.c_str(), at.block.x, at.block.y, at.block.z, at.thread.x,
                 at.thread.y, at.thread.z, near.c_str());
    return scheduler_;
}

struct sigaction former_segv;
struct sigaction former_bus;

// A fault inside a kernel ends the launch: execution goes on in the scheduler, on its own stack.
// Any other fault is the application's: the former handler gets it, as the instruction runs again.
void on_fault(int signal, siginfo_t* info, void* context) {
    BlockRunner* runner = running;
    if (runner && runner->in_kernel()) {
        const bool known = info->si_code > 0 && info->si_code != SI_KERNEL;
        auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
        registers[REG_RDI] =
            reinterpret_cast<greg_t>(runner->abandon(known ? info->si_addr : nullptr, known));
        registers[REG_RIP] = reinterpret_cast<greg_t>(&hipemu_enter);
        return;
    }
    sigaction(signal, signal == SIGBUS ? &former_bus : &former_segv, nullptr);
    if (info->si_code <= 0) raise(signal);  // sent by a program: no instruction would repeat it
}

// The handler needs a stack of its own: a fiber's may be what ran out.
class AlternateStack {
  public:
    AlternateStack() : memory_(64 << 10) {
        stack_t stack{};
        stack.ss_sp = memory_.data();
        stack.ss_size = memory_.size();
        sigaltstack(&stack, nullptr);
        static std::once_flag once;
        std::call_once(once, [] {
            struct sigaction action{};
            action.sa_sigaction = on_fault;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK;
            sigemptyset(&action.sa_mask);
            sigaction(SIGSEGV, &action, &former_segv);
            sigaction(SIGBUS, &action, &former_bus);
        });
    }
    ~AlternateStack() {
        stack_t none{};
        none.ss_flags = SS_DISABLE;
        sigaltstack(&none, nullptr);
    }
    AlternateStack(const AlternateStack&) = delete;
    AlternateStack& operator=(const AlternateStack&) = delete;

  private:
    std::vector<char> memory_;
};

}  // namespace

unsigned wave_size() {
    static const unsigned size =
        environment_number("HIPFILE_ARRAYS_EMULATOR_WAVE", 64) == 32 ? 32 : 64;
    return size;
}

int run_grid(const Launch& launch) {
    thread_local AlternateStack alternate;
    const KernelAccess access;
    try {
        BlockRunner runner(launch);
        for (unsigned z = 0; z < launch.grid.z; ++z) {
            for (unsigned y = 0; y < launch.grid.y; ++y) {
                for (unsigned x = 0; x < launch.grid.x; ++x) runner.run_block({x, y, z});
            }
        }
    } catch (int code) {
        return code;
    }
    return kSuccess;
}

}  // namespace hipemu

HIPEMU_API void hipemu_block_barrier() { hipemu::running->block_barrier(); }

HIPEMU_API const std::uint64_t* hipemu_warp_exchange(std::uint64_t mine, std::uint64_t* present) {
    return hipemu::running->exchange(mine, present);
}
