// A DLPack exporter's tensor, imported: capsule (versioned or not), exchange API or
// __cuda_array_interface__ -> Tensor, which owns it. And the other way for memory of our own.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "device_memory.hpp"

namespace hfa {

// DLPack 1.x flags (dlpack.h)
inline constexpr std::uint64_t kReadOnly = 1;
inline constexpr std::uint64_t kIsCopied = 2;
inline constexpr std::uint64_t kSubByte = 4;

// The two managed tensors of the DLPack ABI; the tensor itself is nanobind's struct.
struct Managed {
    nanobind::dlpack::dltensor tensor;
    void* context;
    void (*deleter)(Managed*);
};

struct ManagedVersioned {
    std::uint32_t major;
    std::uint32_t minor;
    void* context;
    void (*deleter)(ManagedVersioned*);
    std::uint64_t flags;
    nanobind::dlpack::dltensor tensor;
};

// What a tensor is of, without its memory: of __cuda_array_interface__, or of our own memory.
struct Layout {
    int device_type;
    int device;
    int code;
    int bits;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;  // in items
};

// One imported tensor. Owns the exporter's managed tensor and calls its deleter exactly once.
class Tensor {
  public:
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;
    Tensor(Tensor&& other) noexcept;
    ~Tensor();

    std::uintptr_t pointer() const { return pointer_; }
    std::int64_t nbytes() const { return nbytes_; }
    int device_type() const { return tensor_->device.device_type; }
    int device_id() const { return tensor_->device.device_id; }
    int code() const { return tensor_->dtype.code; }
    int bits() const { return tensor_->dtype.bits; }
    int lanes() const { return tensor_->dtype.lanes; }
    std::uint64_t flags() const { return flags_; }
    std::vector<std::int64_t> shape() const;
    std::vector<std::int64_t> strides() const;  // in bytes
    bool contiguous() const { return contiguous_; }

    // `stream` is what the exporter's __dlpack__ gets: None, or a number as DLPack defines them.
    // A type's exchange API goes first, which synchronises with nothing.
    static Tensor import(nanobind::handle exporter, nanobind::handle stream);
    // Memory that `owner` keeps alive.
    static Tensor adopt(nanobind::object owner, std::uintptr_t pointer, Layout layout,
                        bool read_only);

  private:
    Tensor(void* managed, bool versioned);

    void* managed_ = nullptr;
    bool versioned_ = false;
    const nanobind::dlpack::dltensor* tensor_ = nullptr;
    std::uint64_t flags_ = 0;
    std::uintptr_t pointer_ = 0;
    std::int64_t nbytes_ = 0;
    bool contiguous_ = true;
};

// Refers to memory of our own. Freeing it waits for the device, so not with the GIL held; whoever
// lets go of it last may hold it or not.
struct SharedMemory {
    std::shared_ptr<DeviceMemory> memory;

    explicit SharedMemory(std::shared_ptr<DeviceMemory> memory) : memory(std::move(memory)) {}
    SharedMemory(const SharedMemory&) = default;
    SharedMemory(SharedMemory&&) = default;
    SharedMemory& operator=(const SharedMemory&) = delete;
    ~SharedMemory();
};

// A capsule for memory of our own, which lives as long as the capsule's consumer wants it.
nanobind::object capsule_of(const SharedMemory& memory, Layout layout, bool versioned);

}  // namespace hfa
