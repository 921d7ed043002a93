#include "exchange.hpp"

#include <string>
#include <unordered_map>

namespace nb = nanobind;

namespace hfa {
namespace {

constexpr const char* kCapsule = "dlpack_exchange_api";
// Types are kept alive for their entries; more than so many distinct ones are asked every time.
constexpr std::size_t kMostTypes = 256;

const ExchangeApi* ask(PyTypeObject* type) {
    static PyObject* const name = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    PyObject* found = PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name);
    if (!found) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw nb::python_error();
        PyErr_Clear();
        return nullptr;
    }
    const nb::object capsule = nb::steal(found);
    if (!PyCapsule_IsValid(capsule.ptr(), kCapsule)) return nullptr;
    const auto* header =
        static_cast<const ExchangeApi::Header*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
    while (header && header->major > 1) header = header->previous;
    if (!header || header->major != 1) return nullptr;
    // The header is the table's first member. The table outlives its type by its own promise.
    return reinterpret_cast<const ExchangeApi*>(header);
}

void check(int answer, const char* what) {
    if (answer == 0) return;
    if (PyErr_Occurred()) throw nb::python_error();
    throw nb::buffer_error((std::string("the exporter failed to ") + what).c_str());
}

}  // namespace

const ExchangeApi* exchange_of(nb::handle exporter) {
    static auto* known = new std::unordered_map<PyTypeObject*, const ExchangeApi*>;  // by the GIL
    PyTypeObject* type = Py_TYPE(exporter.ptr());
    const auto found = known->find(type);
    if (found != known->end()) return found->second;
    const ExchangeApi* api = ask(type);
    if (known->size() < kMostTypes) {
        Py_INCREF(type);
        known->emplace(type, api);
    }
    return api;
}

std::uintptr_t current_stream(const ExchangeApi& api, int device_type, int device) {
    void* stream = nullptr;
    check(api.current_stream(device_type, device, &stream), "tell its current stream");
    return reinterpret_cast<std::uintptr_t>(stream);
}

nb::object new_array(const ExchangeApi& api, int device_type, int device,
                     std::vector<std::int64_t> shape, int code, int bits) {
    nb::dlpack::dltensor prototype{};
    prototype.device = {device_type, device};
    prototype.ndim = static_cast<std::int32_t>(shape.size());
    prototype.dtype = {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
    prototype.shape = shape.data();
    std::string message;
    ManagedVersioned* made = nullptr;
    const int answer = api.allocate(
        &prototype, &made, &message, [](void* context, const char* kind, const char* text) {
            *static_cast<std::string*>(context) = std::string(kind) + ": " + text;
        });
    if (answer != 0 && !PyErr_Occurred() && !message.empty()) {
        throw nb::buffer_error(message.c_str());
    }
    check(answer, "allocate an array");
    void* object = nullptr;
    check(api.to_object(made, &object), "make an array of new memory");
    return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace hfa
