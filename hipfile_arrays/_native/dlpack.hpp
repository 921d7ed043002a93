// A DLPack exporter's tensor, imported: capsule (versioned or not) -> Tensor, which owns it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <vector>

namespace hfa {

// DLPack 1.x flags (dlpack.h)
inline constexpr std::uint64_t kReadOnly = 1;
inline constexpr std::uint64_t kIsCopied = 2;
inline constexpr std::uint64_t kSubByte = 4;

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
    static Tensor import(nanobind::handle exporter, nanobind::handle stream);

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

}  // namespace hfa
