// The only places that turn a vendor's or the kernel's answer into an Error. There are four kinds
// of answer, and they are four functions: a HIP/CUDA code, a hipFile/cuFile code, a byte count that
// may be any of them, and errno.
#pragma once

#include <sys/types.h>

#include <exception>
#include <string>

#include "tables.hpp"

namespace hfa {

enum class Channel : std::uint8_t {
    None,         // success
    Errno,        // code is errno
    FileLibrary,  // code is 5001..5038; runtime_code is set for 5011
    Runtime,      // code is a hipError_t or cudaError_t
    Library,      // a shared library or a needed entry point is missing
    State,        // used after close, after fork, two runtimes in one process
    Interrupted,  // the caller asked to stop
};

// A failure as data. It crosses threads and the boundary to Python as this.
struct Failure {
    Channel channel = Channel::None;
    int code = 0;
    int runtime_code = 0;
    std::string call;  // "hipFileRead", "preadv"
    std::string name;  // the library's own name of the code
    std::string text;  // the library's own text, or ours for Library and State
    explicit operator bool() const { return channel != Channel::None; }
};

class Error : public std::exception {
  public:
    explicit Error(Failure failure) : failure_(std::move(failure)) {}
    const Failure& failure() const { return failure_; }
    const char* what() const noexcept override { return failure_.text.c_str(); }

  private:
    Failure failure_;
};

// Name of a hipFile/cuFile code ("MemoryAlreadyRegistered"), the same numbers in both libraries.
const char* file_error_name(int code);

Failure runtime_failure(const Runtime& runtime, int code, const char* call);
Failure file_failure(Platform platform, FileError error, const char* call);
Failure errno_failure(int error_number, const char* call);
// `result` is negative: what hipFileRead and its kin returned. `error_number` is errno as it was
// left by the call; the caller cleared it before, since -1 is otherwise ambiguous.
Failure bytes_failure(Platform platform, ssize_t result, int error_number, const char* call);

void check_runtime(const Runtime& runtime, int code, const char* call);
void check_file(Platform platform, FileError error, const char* call);

[[noreturn]] void raise_state(const std::string& text);

}  // namespace hfa
