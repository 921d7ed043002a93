// Faults of the system calls that the native module makes, for a process that has this library in
// LD_PRELOAD. Calls of others, Python's among them, pass untouched.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#define HIPEMU_API extern "C" __attribute__((visibility("default")))

namespace {

struct Watched {
    const char* name;
    std::atomic<std::uint64_t> calls{0};
};

std::array<Watched, 6> watched{
    {{"preadv"}, {"pwritev"}, {"open"}, {"fstat"}, {"mmap"}, {"pthread_create"}}};
std::atomic<bool> watching{false};
std::atomic<Watched*> failing{nullptr};
std::atomic<std::uint64_t> failing_at{0};
std::atomic<int> failing_error{0};

template <class Function>
Function real(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// The native module's own calls, and the standard library's for its threads.
bool is_ours(const void* caller) {
    Dl_info found{};
    if (dladdr(caller, &found) == 0 || !found.dli_fname) return false;
    const std::string_view file(found.dli_fname);
    return file.find("/_native.") != file.npos || file.find("libstdc++") != file.npos;
}

// What becomes of a call: -1 nothing, else an errno (0: half of it).
constexpr int kPass = -1;

int fate(std::size_t index, const void* caller) {
    if (!watching || !is_ours(caller)) return kPass;
    Watched& call = watched[index];
    const std::uint64_t number = ++call.calls;
    return failing == &call && failing_at == number ? failing_error.load() : kPass;
}

template <class Call>
ssize_t move(std::size_t index, const void* caller, const iovec* parts, int count, Call call) {
    const int error = fate(index, caller);
    if (error == kPass) return call(parts, count);
    if (error == 0) {
        iovec half = parts[0];
        half.iov_len = std::max<std::size_t>(1, half.iov_len / 2);
        return call(&half, 1);
    }
    errno = error;
    return -1;
}

}  // namespace

HIPEMU_API ssize_t preadv(int fd, const iovec* parts, int count, off_t offset) {
    static const auto call = real<ssize_t (*)(int, const iovec*, int, off_t)>("preadv");
    return move(0, __builtin_return_address(0), parts, count,
                [&](const iovec* some, int number) { return call(fd, some, number, offset); });
}

HIPEMU_API ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
    static const auto call = real<ssize_t (*)(int, const iovec*, int, off_t)>("pwritev");
    return move(1, __builtin_return_address(0), parts, count,
                [&](const iovec* some, int number) { return call(fd, some, number, offset); });
}

HIPEMU_API int open(const char* path, int flags, ...) {
    static const auto call = real<int (*)(const char*, int, mode_t)>("open");
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    const int error = fate(2, __builtin_return_address(0));
    if (error == kPass) return call(path, flags, mode);
    errno = error;
    return -1;
}

HIPEMU_API int fstat(int fd, struct stat* status) {
    static const auto call = real<int (*)(int, struct stat*)>("fstat");
    const int error = fate(3, __builtin_return_address(0));
    if (error == kPass) return call(fd, status);
    errno = error;
    return -1;
}

HIPEMU_API void* mmap(void* address, std::size_t length, int access, int flags, int fd,
                      off_t offset) {
    static const auto call = real<void* (*)(void*, std::size_t, int, int, int, off_t)>("mmap");
    const int error = fate(4, __builtin_return_address(0));
    if (error == kPass) return call(address, length, access, flags, fd, offset);
    errno = error;
    return MAP_FAILED;
}

HIPEMU_API int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
    static const auto call =
        real<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
    const int error = fate(5, __builtin_return_address(0));
    return error == kPass ? call(thread, attributes, run, argument) : error;
}

HIPEMU_API void hipemuWatchSystemCalls(const char* name, std::uint64_t at, int error) {
    failing = nullptr;
    for (Watched& call : watched) {
        call.calls = 0;
        if (std::strcmp(call.name, name) == 0) failing = &call;
    }
    failing_at = at;
    failing_error = error;
    watching = true;
}

HIPEMU_API void hipemuIgnoreSystemCalls() { watching = false; }

HIPEMU_API void hipemuVisitSystemCalls(void (*visit)(const char*, std::uint64_t)) {
    for (const Watched& call : watched) visit(call.name, call.calls);
}
