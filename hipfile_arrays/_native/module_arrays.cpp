#include "module_arrays.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "device.hpp"
#include "exchange.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace hfa {

void bind_arrays(nb::module_& m) {
    nb::class_<Tensor>(m, "Tensor", "A tensor imported from a DLPack exporter, kept alive.")
        .def_prop_ro("pointer", &Tensor::pointer)
        .def_prop_ro("nbytes", &Tensor::nbytes)
        .def_prop_ro("device_type", &Tensor::device_type)
        .def_prop_ro("device_id", &Tensor::device_id)
        .def_prop_ro("code", &Tensor::code)
        .def_prop_ro("bits", &Tensor::bits)
        .def_prop_ro("lanes", &Tensor::lanes)
        .def_prop_ro("flags", &Tensor::flags)
        .def_prop_ro(
            "shape", [](const Tensor& t) { return nb::tuple(nb::cast(t.shape())); },
            nb::sig("def shape(self) -> tuple[int, ...]"))
        .def_prop_ro(
            "strides", [](const Tensor& t) { return nb::tuple(nb::cast(t.strides())); },
            nb::sig("def strides(self) -> tuple[int, ...]"))
        .def_prop_ro("contiguous", &Tensor::contiguous);

    m.def(
        "import_tensor",
        [](nb::handle exporter, nb::handle stream) {
            refuse_after_fork();  // before the exporter meets its dead runtime, in its own words
            return Tensor::import(exporter, stream);
        },
        "exporter"_a.none(), "stream"_a.none(),
        nb::sig("def import_tensor(exporter: object, stream: int | None) -> Tensor"),
        "Call __dlpack__ with this stream and take over the tensor.");

    m.def(
        "adopt_tensor",
        [](nb::object owner, std::uintptr_t pointer, bool read_only, int device_type, int device,
           int code, int bits, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
            return Tensor::adopt(
                std::move(owner), pointer,
                {device_type, device, code, bits, std::move(shape), std::move(strides)}, read_only);
        },
        "owner"_a, "pointer"_a, "read_only"_a, "device_type"_a, "device"_a, "code"_a, "bits"_a,
        "shape"_a, "strides"_a, "Describe memory that `owner` keeps alive; strides in items.");
    m.def(
        "has_exchange", [](nb::handle exporter) { return exchange_of(exporter) != nullptr; },
        "exporter"_a.none(), nb::sig("def has_exchange(exporter: object) -> bool"));
    m.def(
        "current_stream",
        [](nb::handle exporter, int device_type, int device) {
            return current_stream(*exchange_of(exporter), device_type, device);
        },
        "exporter"_a, "device_type"_a, "device"_a,
        nb::sig("def current_stream(exporter: object, device_type: int, device: int) -> int"),
        "Ask the exchange API of the exporter's type, which it must have.");
    m.def(
        "new_array",
        [](nb::handle exporter, int device_type, int device, std::vector<std::int64_t> shape,
           int code, int bits) {
            return new_array(*exchange_of(exporter), device_type, device, std::move(shape), code,
                             bits);
        },
        "exporter"_a, "device_type"_a, "device"_a, "shape"_a, "code"_a, "bits"_a,
        nb::sig("def new_array(exporter: object, device_type: int, device: int, shape: "
                "collections.abc.Sequence[int], code: int, bits: int) -> object"),
        "Allocate by the exchange API of the exporter's type, which it must have.");

    nb::class_<SharedMemory>(m, "DeviceMemory", "Device memory of our own.")
        .def(
            "__init__",
            [](SharedMemory* self, int platform, int device, std::uint64_t nbytes) {
                const nb::gil_scoped_release no_gil;
                new (self) SharedMemory(std::make_shared<DeviceMemory>(
                    platform == 0 ? Platform::Hip : Platform::Cuda, device, nbytes));
            },
            "platform"_a, "device"_a, "nbytes"_a)
        .def_prop_ro("pointer", [](const SharedMemory& self) { return self.memory->pointer(); })
        .def(
            "capsule",
            [](const SharedMemory& self, int device_type, int code, int bits,
               std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, bool versioned) {
                return capsule_of(self,
                                  {device_type, self.memory->device, code, bits, std::move(shape),
                                   std::move(strides)},
                                  versioned);
            },
            "device_type"_a, "code"_a, "bits"_a, "shape"_a, "strides"_a, "versioned"_a,
            "Export it by DLPack; strides in items.");
}

}  // namespace hfa
