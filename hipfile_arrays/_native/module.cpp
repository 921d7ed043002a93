// The binding: converts arguments and results, releases the GIL around everything that can block,
// and nothing else.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "device.hpp"
#include "engine.hpp"
#include "module_arrays.hpp"
#include "one_piece.hpp"
#include "ring.hpp"
#include "staging.hpp"
#include "stream_ordered.hpp"
#include "workers.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace hfa {
namespace {

using FailureTuple = std::tuple<std::string, int, int, std::string, std::string, std::string>;
// Rows of file offset, device address, bytes and path.
using PieceTable = nb::ndarray<const std::int64_t, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;

const char* name_of(Channel channel) {
    switch (channel) {
        case Channel::None:
            return "none";
        case Channel::Errno:
            return "errno";
        case Channel::FileLibrary:
            return "file";
        case Channel::Runtime:
            return "runtime";
        case Channel::Library:
            return "library";
        case Channel::State:
            return "state";
        case Channel::Interrupted:
            return "interrupted";
    }
    return "none";
}

FailureTuple to_tuple(const Failure& failure) {
    return {name_of(failure.channel),
            failure.code,
            failure.runtime_code,
            failure.call,
            failure.name,
            failure.text};
}

std::optional<FailureTuple> optional_failure(const Failure& failure) {
    if (!failure) return std::nullopt;
    return to_tuple(failure);
}

// Errors become the exceptions of hipfile_arrays.errors; which one is decided there, once.
void translate(const std::exception_ptr& pointer, void*) {
    try {
        std::rethrow_exception(pointer);
    } catch (const Error& error) {
        try {
            const nb::object from_failure =
                nb::module_::import_("hipfile_arrays.errors").attr("from_failure");
            const nb::object exception = from_failure(nb::cast(to_tuple(error.failure())));
            PyErr_SetObject(exception.type().ptr(), exception.ptr());
        } catch (nb::python_error& raised) {
            raised.restore();
        }
    }
}

Platform platform_from(int number) { return number == 0 ? Platform::Hip : Platform::Cuda; }

// Asks Python now and then whether to go on: a pending signal handler that raises (Ctrl-C), or a
// progress callback that does, stops the transfer and is raised once everything has ended.
class Poll {
  public:
    explicit Poll(nb::object progress) : progress_(std::move(progress)) {}

    bool operator()(std::int64_t done) {
        const nb::gil_scoped_acquire gil;
        if (raised_) return false;
        if (PyErr_CheckSignals() == 0) {
            if (progress_.is_none()) return true;
            try {
                progress_(done);
                return true;
            } catch (nb::python_error& error) {
                error.restore();
            }
        }
        raised_.emplace();
        return false;
    }

    void raise_pending() {
        if (raised_) throw std::move(*raised_);
    }

  private:
    nb::object progress_;
    std::optional<nb::python_error> raised_;
};

class OutcomeView {
  public:
    explicit OutcomeView(Outcome outcome) : outcome_(std::move(outcome)) {}
    std::int64_t missing() const { return outcome_.missing; }
    std::int64_t end_of_file() const { return outcome_.end_of_file; }
    std::optional<FailureTuple> failure() const { return optional_failure(outcome_.failure); }
    std::vector<FailureTuple> others() const {
        std::vector<FailureTuple> result;
        for (const Failure& failure : outcome_.others) result.push_back(to_tuple(failure));
        return result;
    }
    std::vector<std::int64_t> moved() const {
        return {outcome_.moved.begin(), outcome_.moved.end()};
    }

  private:
    Outcome outcome_;
};

Request request_of(OpenFile& file, bool reads, int platform, int device, std::uintptr_t stream,
                   const PieceTable& pieces, const std::shared_ptr<Registration>& registration,
                   bool may_fall_back, int threads, std::int64_t chunk) {
    Request request{file,
                    reads ? Direction::Read : Direction::Write,
                    runtime(platform_from(platform)),
                    device,
                    reinterpret_cast<Stream>(stream),
                    {},
                    registration,
                    may_fall_back,
                    threads,
                    chunk};
    request.pieces.reserve(pieces.shape(0));
    const auto rows = pieces.view();
    for (std::size_t i = 0; i < rows.shape(0); ++i) {
        request.pieces.push_back({rows(i, 0), static_cast<std::uintptr_t>(rows(i, 1)), rows(i, 2),
                                  static_cast<Path>(rows(i, 3))});
    }
    return request;
}

OutcomeView transfer(OpenFile& file, bool reads, int platform, int device, std::uintptr_t stream,
                     const PieceTable& pieces, const std::shared_ptr<Registration>& registration,
                     bool may_fall_back, int threads, std::int64_t chunk,
                     const nb::object& progress) {
    const Request request = request_of(file, reads, platform, device, stream, pieces, registration,
                                       may_fall_back, threads, chunk);
    Poll poll(progress);
    Outcome outcome;
    {
        const nb::gil_scoped_release no_gil;
        outcome = run(request, std::ref(poll));
    }
    poll.raise_pending();
    return OutcomeView(std::move(outcome));
}

// `ended`, a callable, keeps alive what the transfer uses; it is called and let go of on a native
// thread, with the GIL.
std::shared_ptr<StreamTransfer> begin_transfer(OpenFile& file, bool reads, int platform, int device,
                                               std::uintptr_t stream, const PieceTable& pieces,
                                               const std::shared_ptr<Registration>& registration,
                                               bool may_fall_back, int threads, std::int64_t chunk,
                                               nb::object ended) {
    Request request = request_of(file, reads, platform, device, stream, pieces, registration,
                                 may_fall_back, threads, chunk);
    const std::shared_ptr<nb::object> told(new nb::object(std::move(ended)), [](nb::object* owned) {
        const nb::gil_scoped_acquire gil;
        delete owned;
    });
    Poll poll{nb::none()};
    std::shared_ptr<StreamTransfer> begun;
    {
        const nb::gil_scoped_release no_gil;
        begun = StreamTransfer::begin(
            std::move(request),
            [told](Outcome outcome) {
                const nb::gil_scoped_acquire gil;
                try {
                    (*told)(OutcomeView(std::move(outcome)));
                } catch (nb::python_error& error) {
                    error.discard_as_unraisable("the end of a transfer");
                }
            },
            [&poll] { return poll(0); });
    }
    poll.raise_pending();
    return begun;
}

void finish_transfers() {
    Poll poll{nb::none()};
    {
        const nb::gil_scoped_release no_gil;
        StreamTransfer::finish_all([&poll] { return poll(0); });
    }
    poll.raise_pending();
}

// The hot path. Returns the bytes that the file did not have, or the failure as data, so that the
// caller can say of which file and range.
std::variant<std::int64_t, FailureTuple> transfer_one(OpenFile& file, bool reads, int platform,
                                                      int device, std::uintptr_t stream,
                                                      std::int64_t offset, std::uintptr_t pointer,
                                                      std::int64_t nbytes, int path,
                                                      Registration* registration, bool exact) {
    const nb::gil_scoped_release no_gil;
    try {
        return run_one({file,
                        reads ? Direction::Read : Direction::Write,
                        runtime(platform_from(platform)),
                        device,
                        reinterpret_cast<Stream>(stream),
                        {offset, pointer, nbytes, static_cast<Path>(path)},
                        registration,
                        exact});
    } catch (const Error& error) {
        return to_tuple(error.failure());
    }
}

}  // namespace
}  // namespace hfa

NB_MODULE(_native, m) {
    using namespace hfa;
    m.doc() = "Host half of the shim: GPU runtime and file library tables, registry, engine.";
    nb::register_exception_translator(translate, nullptr);

    bind_arrays(m);

    nb::class_<OpenFile>(m, "OpenFile",
                         "An open file descriptor, owned; its O_DIRECT twin and "
                         "library handle are made on first need.")
        .def(nb::init<int, bool>(), "fd"_a, "writable"_a)
        .def_prop_ro("fd", &OpenFile::fd)
        .def_prop_ro("writable", &OpenFile::writable)
        .def_prop_ro("closed", &OpenFile::closed)
        .def("size", &OpenFile::size, "Bytes of a regular file; None for other kinds.")
        .def("takes_o_direct", [](OpenFile& file) { return file.direct_fd() >= 0; })
        .def(
            "register_handle",
            [](OpenFile& file, int platform) {
                const nb::gil_scoped_release no_gil;
                file.handle(platform_from(platform));
            },
            "platform"_a)
        .def("close", &OpenFile::close, nb::call_guard<nb::gil_scoped_release>());

    nb::class_<Registration>(m, "Registration", "Device memory known to the file library.")
        .def_prop_ro("base", [](const Registration& r) { return r.base; })
        .def_prop_ro("size", [](const Registration& r) { return r.size; })
        .def_prop_ro("device", [](const Registration& r) { return r.device; })
        .def_prop_ro("platform", [](const Registration& r) { return static_cast<int>(r.platform); })
        .def_prop_ro("in_library", &Registration::in_library)
        .def_prop_ro("automatic", [](const Registration& r) { return r.automatic; })
        .def_prop_ro("foreign", &Registration::foreign)
        .def_prop_ro("refusal", [](const Registration& r) { return optional_failure(r.refusal()); })
        .def_prop_ro("hits", [](const Registration& r) { return r.hits.load(); })
        .def_prop_ro("closed", [](const Registration& r) { return r.flight.closed(); });

    nb::class_<OutcomeView>(m, "Outcome", "How a transfer ended.")
        .def_prop_ro("missing", &OutcomeView::missing)
        .def_prop_ro("end_of_file", &OutcomeView::end_of_file)
        .def_prop_ro("failure", &OutcomeView::failure)
        .def_prop_ro("others", &OutcomeView::others)
        .def_prop_ro("moved", &OutcomeView::moved);

    m.def(
        "register_buffer",
        [](int platform, std::uintptr_t base, std::uint64_t size, int device, bool automatic) {
            const nb::gil_scoped_release no_gil;
            refuse_after_fork();
            return Registry::instance().add(platform_from(platform), base, size, device, automatic);
        },
        "platform"_a, "base"_a, "size"_a, "device"_a, "automatic"_a);
    m.def(
        "deregister_buffer",
        [](const std::shared_ptr<Registration>& registration) {
            Registry::instance().remove(registration);
        },
        "registration"_a, nb::call_guard<nb::gil_scoped_release>());
    m.def(
        "deregister_idle_buffer",
        [](const std::shared_ptr<Registration>& registration) {
            return Registry::instance().remove_if_idle(registration);
        },
        "registration"_a, nb::call_guard<nb::gil_scoped_release>(),
        "Deregister unless a transfer uses it; return whether it is deregistered.");
    m.def(
        "find_registration",
        [](std::uintptr_t pointer, std::uint64_t nbytes) {
            return Registry::instance().find(pointer, nbytes);
        },
        "pointer"_a, "nbytes"_a,
        nb::sig("def find_registration(pointer: int, nbytes: int) -> Registration | None"));
    m.def("registrations", [] { return Registry::instance().all(); });

    m.def(
        "set_search_path",
        [](int platform, std::vector<std::string> runtime_folders, const std::string& runtime_path,
           std::vector<std::string> file_folders, const std::string& file_path) {
            set_search_path(platform_from(platform), {std::move(runtime_folders), runtime_path},
                            {std::move(file_folders), file_path});
        },
        "platform"_a, "runtime_folders"_a, "runtime_path"_a, "file_folders"_a, "file_path"_a);
    m.def(
        "open_runtime",
        [](int platform) {
            const nb::gil_scoped_release no_gil;
            refuse_after_fork();
            const Runtime& table = runtime(platform_from(platform));
            return std::make_pair(table.path, table.version);
        },
        "platform"_a, "Return the path and version of the GPU runtime, opened if need be.");
    m.def(
        "mapped_runtimes", [](int platform) { return mapped_runtimes(platform_from(platform)); },
        "platform"_a,
        "Return the files under which HIP runtimes are mapped; of CUDA's always none.");
    m.def(
        "open_file_library",
        [](int platform) {
            const nb::gil_scoped_release no_gil;
            return file_library(platform_from(platform)).path;
        },
        "platform"_a, "Return the path of hipFile or cuFile, opened if need be.");
    m.def(
        "locate",
        [](int platform, std::uintptr_t pointer) {
            const nb::gil_scoped_release no_gil;
            refuse_after_fork();
            const Location found = locate(runtime(platform_from(platform)), pointer);
            return std::make_tuple(found.memory_type, found.device, found.base, found.size);
        },
        "platform"_a, "pointer"_a,
        "Return (memory type, device, base, size in bytes of the allocation) of a pointer.");
    m.def(
        "synchronize",
        [](int platform, int device, std::uintptr_t stream) {
            const nb::gil_scoped_release no_gil;
            const Runtime& table = runtime(platform_from(platform));
            const DeviceScope scope(table, device);
            check_runtime(table, table.StreamSynchronize(reinterpret_cast<Stream>(stream)),
                          table.StreamSynchronize.name);
        },
        "platform"_a, "device"_a, "stream"_a);
    m.def("transfer", &transfer, "file"_a, "reads"_a, "platform"_a, "device"_a, "stream"_a,
          "pieces"_a, "registration"_a.none(), "may_fall_back"_a, "threads"_a, "chunk"_a,
          "progress"_a.none());
    m.def(
        "transfer_one", &transfer_one, "file"_a, "reads"_a, "platform"_a, "device"_a, "stream"_a,
        "offset"_a, "pointer"_a, "nbytes"_a, "path"_a, "registration"_a.none(), "exact"_a,
        "Move one small or library piece on this thread; return the bytes the file did not have.");
    m.attr("SMALL") = kSmall;
    nb::class_<StreamTransfer>(m, "StreamTransfer", "A transfer in its place in a stream.")
        .def("cancel", &StreamTransfer::cancel, nb::call_guard<nb::gil_scoped_release>(),
             "Ask it to stop within one chunk.")
        .def("check", &StreamTransfer::check, nb::call_guard<nb::gil_scoped_release>(),
             "End it if the device has failed.")
        .def_prop_ro("progress", &StreamTransfer::progress, "Bytes moved so far.");
    m.def(
        "takes_stream_waits",
        [](int platform, int device) {
            const nb::gil_scoped_release no_gil;
            refuse_after_fork();
            return takes_stream_waits(runtime(platform_from(platform)), device);
        },
        "platform"_a, "device"_a, "Whether streams wait for host memory; tried once.");
    m.def("begin_transfer", &begin_transfer, "file"_a, "reads"_a, "platform"_a, "device"_a,
          "stream"_a, "pieces"_a, "registration"_a.none(), "may_fall_back"_a, "threads"_a,
          "chunk"_a, "ended"_a,
          "Queue a transfer of one piece on the stream, and move its bytes on threads of its own.");
    m.def("finish_transfers", &finish_transfers,
          "For the end of the process: stop reads, wait for all, begin no more.");
    m.def(
        "direct_alignment",
        [](int fd) -> std::optional<std::pair<std::uint32_t, std::uint32_t>> {
            const auto found = direct_alignment(fd);
            if (!found) return std::nullopt;
            return std::make_pair(found->memory, found->offset);
        },
        "fd"_a,
        "Return O_DIRECT's alignment (memory, file offset) in bytes, where the kernel tells.");
    m.def("resident_bytes", &resident_bytes, "fd"_a, "offset"_a, "nbytes"_a,
          nb::call_guard<nb::gil_scoped_release>());
    m.def(
        "takes_file_mappings",
        [](int platform, int device, const OpenFile& file) {
            const nb::gil_scoped_release no_gil;
            const Runtime& table = runtime(platform_from(platform));
            const DeviceScope scope(table, device);
            return takes_file_mappings(table, file.fd());
        },
        "platform"_a, "device"_a, "file"_a,
        "Whether the runtime copies from registered pages of the page cache; tried once.");
    m.def("totals", [] {
        std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> result;
        for (const auto& direction : totals()) {
            auto& row = result.emplace_back();
            for (const PathTotals& path : direction) row.emplace_back(path.calls, path.bytes);
        }
        return result;
    });
    m.def("reset_totals", &reset_totals);
    m.def("pinned_bytes", [] { return pinned_bytes(); });
    m.def("thread_count", [] { return Workers::instance().thread_count(); });
    m.def(
        "release_resources",
        [] {
            Workers::instance().stop();
            LanePool::instance().trim();
            RingPool::instance().trim();
        },
        nb::call_guard<nb::gil_scoped_release>(),
        "End idle worker threads and free pinned staging memory.");
}
