// DLPack's exchange API (1.3): a table of C functions that an array type carries as
// `__dlpack_c_exchange_api__`. No capsule, no Python call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dlpack.hpp"

namespace hfa {

// struct DLPackExchangeAPI of dlpack.h, major version 1.
struct ExchangeApi {
    struct Header {
        std::uint32_t major;
        std::uint32_t minor;
        const Header* previous;
    };
    using SetError = void (*)(void* context, const char* kind, const char* message);

    Header header;
    int (*allocate)(nanobind::dlpack::dltensor* prototype, ManagedVersioned** out, void* context,
                    SetError set_error);
    int (*from_object)(void* object, ManagedVersioned** out);
    int (*to_object)(ManagedVersioned* tensor, void** out);
    int (*view_of_object)(void* object, nanobind::dlpack::dltensor* out);
    int (*current_stream)(int device_type, std::int32_t device, void** out);
};

// The table of an object's type, or null; asked of each type once.
const ExchangeApi* exchange_of(nanobind::handle exporter);

// The stream that the type's library is on, as a number.
std::uintptr_t current_stream(const ExchangeApi& api, int device_type, int device);

// A new array of the type's library, uninitialised.
nanobind::object new_array(const ExchangeApi& api, int device_type, int device,
                           std::vector<std::int64_t> shape, int code, int bits);

}  // namespace hfa
