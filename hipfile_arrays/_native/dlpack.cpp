#include "dlpack.hpp"

#include <array>
#include <string_view>
#include <type_traits>
#include <utility>

#include "exchange.hpp"

namespace nb = nanobind;

namespace hfa {
namespace {

constexpr const char* kName = "dltensor";
constexpr const char* kNameVersioned = "dltensor_versioned";

// Interned once; a keyword call by vectorcall is what keeps the import of an array below a
// microsecond.
struct Names {
    PyObject* dlpack = PyUnicode_InternFromString("__dlpack__");
    PyObject* stream_and_version = PyTuple_Pack(2, PyUnicode_InternFromString("stream"),
                                                PyUnicode_InternFromString("max_version"));
    PyObject* stream = PyTuple_Pack(1, PyUnicode_InternFromString("stream"));
    PyObject* version = Py_BuildValue("(ii)", 1, 1);
};

const Names& names() {
    static const Names* instance = new Names;
    return *instance;
}

// TypeError means "this exporter is older than that keyword": ask again with fewer.
nb::object capsule_from(nb::handle exporter, nb::handle stream) {
    const Names& n = names();
    std::array<PyObject*, 3> arguments{exporter.ptr(), stream.ptr(), n.version};
    constexpr std::size_t self_only = 1 | PY_VECTORCALL_ARGUMENTS_OFFSET;
    PyObject* capsule =
        PyObject_VectorcallMethod(n.dlpack, arguments.data(), self_only, n.stream_and_version);
    if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_VectorcallMethod(n.dlpack, arguments.data(), self_only, n.stream);
        if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            capsule = PyObject_CallMethodNoArgs(exporter.ptr(), n.dlpack);
        }
    }
    if (!capsule) throw nb::python_error();
    return nb::steal(capsule);
}

void check_version(const ManagedVersioned& managed) {
    if (managed.major == 1) return;
    // Layouts of other major versions are unknown; only the deleter may be called.
    throw nb::buffer_error("the exporter speaks a DLPack of another major version than 1");
}

// A managed tensor of ours, and what its pointers lead to.
template <class Owner, class Form>
struct Made {
    Owner owner;
    Layout layout;
    Form managed{};

    static Form* of(Owner owner, Layout layout, std::uintptr_t pointer) {
        auto* made = new Made{std::move(owner), std::move(layout)};
        auto& tensor = made->managed.tensor;
        tensor.data = reinterpret_cast<void*>(pointer);
        tensor.device = {made->layout.device_type, made->layout.device};
        tensor.ndim = static_cast<std::int32_t>(made->layout.shape.size());
        tensor.dtype = {static_cast<std::uint8_t>(made->layout.code),
                        static_cast<std::uint8_t>(made->layout.bits), 1};
        tensor.shape = made->layout.shape.data();
        tensor.strides = made->layout.strides.data();
        made->managed.context = made;
        made->managed.deleter = [](Form* self) { delete static_cast<Made*>(self->context); };
        if constexpr (std::is_same_v<Form, ManagedVersioned>) {
            made->managed.major = 1;
            made->managed.minor = 1;
        }
        return &made->managed;
    }
};

// For a capsule that nobody consumed.
template <class Form>
nb::object capsule_around(Form* managed, const char* name) {
    PyObject* capsule = PyCapsule_New(managed, name, [](PyObject* self) {
        const char* name = PyCapsule_GetName(self);
        if (!name ||
            (std::string_view(name) != kName && std::string_view(name) != kNameVersioned)) {
            return;
        }
        auto* unused = static_cast<Form*>(PyCapsule_GetPointer(self, name));
        unused->deleter(unused);
    });
    if (!capsule) {
        managed->deleter(managed);
        throw nb::python_error();
    }
    return nb::steal(capsule);
}

}  // namespace

SharedMemory::~SharedMemory() {
    if (!memory || !PyGILState_Check()) return;
    const nb::gil_scoped_release no_gil;
    memory.reset();
}

nb::object capsule_of(const SharedMemory& shared, Layout layout, bool versioned) {
    const std::uintptr_t pointer = shared.memory->pointer();
    if (versioned) {
        return capsule_around(
            Made<SharedMemory, ManagedVersioned>::of(shared, std::move(layout), pointer),
            kNameVersioned);
    }
    return capsule_around(Made<SharedMemory, Managed>::of(shared, std::move(layout), pointer),
                          kName);
}

Tensor Tensor::adopt(nb::object owner, std::uintptr_t pointer, Layout layout, bool read_only) {
    auto* managed =
        Made<nb::object, ManagedVersioned>::of(std::move(owner), std::move(layout), pointer);
    managed->flags = read_only ? kReadOnly : 0;
    return Tensor(managed, true);
}

Tensor Tensor::import(nb::handle exporter, nb::handle stream) {
    if (const ExchangeApi* api = exchange_of(exporter)) {
        ManagedVersioned* managed = nullptr;
        if (api->from_object(exporter.ptr(), &managed) != 0) {
            if (PyErr_Occurred()) throw nb::python_error();
            throw nb::buffer_error("the exporter's exchange API failed to export the array");
        }
        check_version(*managed);
        return Tensor(managed, true);
    }
    const nb::object capsule = capsule_from(exporter, stream);
    const bool versioned = PyCapsule_IsValid(capsule.ptr(), kNameVersioned) != 0;
    if (!versioned && !PyCapsule_IsValid(capsule.ptr(), kName)) {
        throw nb::type_error(
            "__dlpack__ returned no DLPack capsule, or one that was consumed before: a capsule can "
            "be used once");
    }
    void* managed = PyCapsule_GetPointer(capsule.ptr(), versioned ? kNameVersioned : kName);
    if (versioned) check_version(*static_cast<ManagedVersioned*>(managed));
    // From here the tensor is ours, the capsule's own destructor must leave it alone.
    PyCapsule_SetName(capsule.ptr(), versioned ? "used_dltensor_versioned" : "used_dltensor");
    PyCapsule_SetDestructor(capsule.ptr(), nullptr);
    return Tensor(managed, versioned);
}

Tensor::Tensor(void* managed, bool versioned) : managed_(managed), versioned_(versioned) {
    if (versioned_) {
        auto* m = static_cast<ManagedVersioned*>(managed_);
        tensor_ = &m->tensor;
        flags_ = m->flags;
    } else {
        tensor_ = &static_cast<Managed*>(managed_)->tensor;
    }
    pointer_ = reinterpret_cast<std::uintptr_t>(tensor_->data) + tensor_->byte_offset;
    std::int64_t items = 1;
    for (int axis = tensor_->ndim - 1; axis >= 0; --axis) {
        const std::int64_t length = tensor_->shape[axis];
        // An axis of length 1 has no stride worth the name, whatever the exporter wrote there.
        if (tensor_->strides && length > 1 && tensor_->strides[axis] != items) contiguous_ = false;
        items *= length;
    }
    if (items == 0) contiguous_ = true;
    nbytes_ =
        items * ((static_cast<std::int64_t>(tensor_->dtype.bits) * tensor_->dtype.lanes + 7) / 8);
}

Tensor::Tensor(Tensor&& other) noexcept
    : managed_(std::exchange(other.managed_, nullptr)),
      versioned_(other.versioned_),
      tensor_(other.tensor_),
      flags_(other.flags_),
      pointer_(other.pointer_),
      nbytes_(other.nbytes_),
      contiguous_(other.contiguous_) {}

Tensor::~Tensor() {
    if (!managed_) return;
    // Exporters' deleters drop Python references, so this runs with the GIL held: a Tensor lives in
    // a Python object, or on the stack of a call that has not released it.
    if (versioned_) {
        auto* m = static_cast<ManagedVersioned*>(managed_);
        if (m->deleter) m->deleter(m);
    } else {
        auto* m = static_cast<Managed*>(managed_);
        if (m->deleter) m->deleter(m);
    }
}

std::vector<std::int64_t> Tensor::shape() const {
    return {tensor_->shape, tensor_->shape + tensor_->ndim};
}

std::vector<std::int64_t> Tensor::strides() const {
    const std::int64_t itemsize = (static_cast<std::int64_t>(bits()) * lanes() + 7) / 8;
    std::vector<std::int64_t> result(static_cast<std::size_t>(tensor_->ndim));
    std::int64_t items = 1;
    for (int axis = tensor_->ndim - 1; axis >= 0; --axis) {
        // NULL strides mean C order (allowed before DLPack 1.2).
        result[static_cast<std::size_t>(axis)] =
            (tensor_->strides ? tensor_->strides[axis] : items) * itemsize;
        items *= tensor_->shape[axis];
    }
    return result;
}

}  // namespace hfa
