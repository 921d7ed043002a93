// What a pointer is, and running with the right GPU current.
#pragma once

#include <cstdint>

#include "check.hpp"

namespace hfa {

// hipMemoryType of HIP 6 and 7; cudaMemoryType has the same numbers up to 3.
enum class MemoryType : int { Unregistered = 0, Host = 1, Device = 2, Managed = 3 };

struct Location {
    int memory_type = 0;
    int device = -1;
    std::uintptr_t base = 0;  // of the allocation; 0 when the runtime knows no range
    std::uint64_t size = 0;
};

// One pointer query and one range query. A query about memory the runtime does not know is an
// answer (Unregistered), not an error, and leaves no sticky error behind.
Location locate(const Runtime& runtime, std::uintptr_t pointer);

// Makes `device` current for this thread, and the former one again at the end.
class DeviceScope {
  public:
    DeviceScope(const Runtime& runtime, int device);
    ~DeviceScope();
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

  private:
    const Runtime& runtime_;
    int former_ = -1;
};

// hipHostRegisterReadOnly, cudaHostRegisterReadOnly: the only way to register a read-only mapping.
inline constexpr unsigned kRegisterReadOnly = 8;

// Whether this runtime takes a read-only file mapping as the source of copies; tried once per
// platform, on a page of the file open as `fd`, and remembered.
bool takes_file_mappings(const Runtime& runtime, int fd);

// Set in a child process after fork() when a runtime was open in the parent: GPU runtimes do not
// survive that, so every later use throws (channel State).
void refuse_after_fork();
// Whether this is such a child. Only known once refuse_after_fork() was called in the parent.
bool is_forked();

}  // namespace hfa
