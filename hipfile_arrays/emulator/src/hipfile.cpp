// libhipfile.so.0, emulated: the C entries. What happens to one read or write:
//
//   entry            handle known? (5027)   buffer registered under exactly this base, else looked
//                    up through the HIP runtime (5013 wrong memory)   range within it? (5022)
//   transfer()       at most 2 GiB - 4 KiB; fast path if the file, the memory and the alignment
//                    allow it, else the whole request takes the fallback
//   fast path        O_DIRECT preadv/pwritev between the file and device memory, no stream order
//   fallback         pread/pwrite through a 16 MiB pageable buffer and hipMemcpy; writes are
//                    followed by fdatasync for every buffer
//
// Results as the real library's: bytes moved; -1 and errno; minus a hipFile code; minus a
// hipError_t.
#include <sys/types.h>

#include <cerrno>
#include <map>
#include <memory>
#include <mutex>

#include "hipfile_transfer.hpp"
#include "state.hpp"
#include "streams.hpp"

using namespace hipemu;

extern "C" {
int hipPointerGetAttributes(PointerAttributes*, const void*);
int hipMemGetAddressRange(void**, std::size_t*, void*);
}

namespace {

enum : int {
    kFileSuccess = 0,
    kPlatformNotSupported = 5007,
    kHipDriverError = 5011,
    kMemoryTypeInvalid = 5013,
    kPointerRangeError = 5014,
    kInvalidFileType = 5018,
    kFileInvalidValue = 5022,
    kAlreadyRegistered = 5023,
    kNotRegistered = 5024,
    kHandleNotRegistered = 5027,
    kHandleAlreadyRegistered = 5028,
    kInternalError = 5030,
    kAsyncNotSupported = 5038,
};

struct FileError {
    int code;
    int hip_code;
};

struct Descriptor {
    int type;
    union {
        int fd;
        void* pointer;
    } handle;
    const void* operations;
};

struct Buffer {
    std::size_t length;
    int users = 0;
};

// All state of the driver, behind one lock.
struct Driver {
    std::mutex mutex;
    long references = 0;
    std::map<void*, std::shared_ptr<OpenFile>> handles;
    std::map<const void*, Buffer> buffers;

    static Driver& instance() {
        static Driver* driver = new Driver;
        return *driver;
    }

    // The first registration of anything opens the driver.
    void open_if_needed() {
        if (references == 0) references = 1;
    }
};

unsigned version_minor() {
    static const auto minor =
        static_cast<unsigned>(environment_number("HIPFILE_ARRAYS_EMULATOR_HIPFILE_MINOR", 4));
    return minor;
}

// As HIPEMU_ENTRY, for functions that return a hipFileError_t. An injected code below 5000 is a
// HIP error and comes inside 5011.
#define HIPFILE_ENTRY(name)                                                              \
    do {                                                                                 \
        static Entry& counted = entry(name);                                             \
        if (const int code = counted.enter(); code != 0) {                               \
            return code >= 5000 ? FileError{code, 0} : FileError{kHipDriverError, code}; \
        }                                                                                \
    } while (false)

// What a registered or on-the-fly buffer is for the length of one I/O.
class BufferUse {
  public:
    explicit BufferUse(const void* base) : base_(base) {
        static Entry& registered = entry("hipfile.registered");
        static Entry& on_the_fly = entry("hipfile.on_the_fly");
        Driver& driver = Driver::instance();
        {
            const std::lock_guard lock(driver.mutex);
            const auto found = driver.buffers.find(base);
            if (found != driver.buffers.end()) {
                ++found->second.users;
                length_ = found->second.length;
                counted_ = true;
                registered.add();
                return;
            }
        }
        on_the_fly.add();
        PointerAttributes attributes{};
        error_ = hipPointerGetAttributes(&attributes, base);
        if (error_ != 0) return;
        if (attributes.type != kDevice) {
            error_ = kMemoryTypeInvalid;
            return;
        }
        void* start = nullptr;
        std::size_t size = 0;
        error_ = hipMemGetAddressRange(&start, &size, const_cast<void*>(base));
        // "The rest of the allocation" is the buffer: nothing here guards the neighbours.
        length_ = size - static_cast<std::size_t>(static_cast<const char*>(base) -
                                                  static_cast<char*>(start));
    }
    ~BufferUse() {
        if (!counted_) return;
        Driver& driver = Driver::instance();
        const std::lock_guard lock(driver.mutex);
        --driver.buffers[base_].users;
    }
    BufferUse(const BufferUse&) = delete;
    BufferUse& operator=(const BufferUse&) = delete;

    std::size_t length() const { return length_; }
    int error() const { return error_; }  // a hipFile code or a hipError_t

  private:
    const void* base_;
    std::size_t length_ = 0;
    int error_ = 0;
    bool counted_ = false;
};

ssize_t move(bool reads, void* handle, const void* base, std::size_t size, off_t file_offset,
             off_t buffer_offset, Caller caller) {
    std::shared_ptr<OpenFile> file;
    {
        Driver& driver = Driver::instance();
        const std::lock_guard lock(driver.mutex);
        const auto found = driver.handles.find(handle);
        if (found == driver.handles.end()) return -kHandleNotRegistered;
        file = found->second;
    }
    if (file_offset < 0 || buffer_offset < 0) {
        if (version_minor() < 4) return -kFileInvalidValue;
        errno = EINVAL;
        return -1;
    }
    const BufferUse buffer(base);
    if (buffer.error() != 0) return -buffer.error();
    const auto offset = static_cast<std::size_t>(buffer_offset);
    if (offset >= buffer.length() || size > buffer.length() - offset) return -kFileInvalidValue;
    return transfer(*file, reads, static_cast<const char*>(base) + offset, size, file_offset,
                    caller);
}

}  // namespace

HIPEMU_API FileError hipFileDriverOpen() {
    HIPFILE_ENTRY("hipFileDriverOpen");
    Driver& driver = Driver::instance();
    const std::lock_guard lock(driver.mutex);
    ++driver.references;
    return {kFileSuccess, 0};
}

HIPEMU_API FileError hipFileDriverClose() {
    HIPFILE_ENTRY("hipFileDriverClose");
    Driver& driver = Driver::instance();
    const std::lock_guard lock(driver.mutex);
    if (driver.references == 0) return {5001, 0};
    if (--driver.references == 0) {
        driver.buffers.clear();
        driver.handles.clear();
    }
    return {kFileSuccess, 0};
}

HIPEMU_API const char* hipFileGetOpErrorString(int code) {
    static const std::map<int, const char*> words{
        {5001, "hipFile driver is not initialized"},
        {5010, "hipFile driver error"},
        {5013, "invalid HIP memory type"},
        {5022, "invalid argument"},
        {5023, "GPU memory is already registered"},
        {5024, "GPU memory is not registered"},
        {5027, "file handle is not registered"},
        {5028, "file handle is already registered"},
        {5030, "internal error"},
        {5036, "GPU memory pinning failed"},
    };
    const auto found = words.find(code);
    return found == words.end() ? "unknown hipFile error" : found->second;
}

HIPEMU_API long hipFileUseCount() {
    Driver& driver = Driver::instance();
    const std::lock_guard lock(driver.mutex);
    return driver.references;
}

HIPEMU_API FileError hipFileGetVersion(unsigned* major, unsigned* minor, unsigned* patch) {
    HIPFILE_ENTRY("hipFileGetVersion");
    if (major) *major = 0;
    if (minor) *minor = version_minor();
    if (patch) *patch = 0;
    return {kFileSuccess, 0};
}

HIPEMU_API FileError hipFileHandleRegister(void** handle, Descriptor* descriptor) {
    HIPFILE_ENTRY("hipFileHandleRegister");
    if (!handle || !descriptor || descriptor->type != 1) return {kFileInvalidValue, 0};
    Driver& driver = Driver::instance();
    const std::lock_guard lock(driver.mutex);
    for (const auto& [known, file] : driver.handles) {
        if (file->fd() == descriptor->handle.fd) return {kHandleAlreadyRegistered, 0};
    }
    auto file = OpenFile::open(descriptor->handle.fd);
    if (!file) return {kInvalidFileType, 0};
    driver.open_if_needed();
    *handle = file.get();
    driver.handles[*handle] = std::move(file);
    return {kFileSuccess, 0};
}

HIPEMU_API void hipFileHandleDeregister(void* handle) {
    static Entry& counted = entry("hipFileHandleDeregister");
    if (counted.enter() != 0) return;  // in a forked child, nobody may hold the lock any more
    Driver& driver = Driver::instance();
    const std::lock_guard lock(driver.mutex);
    driver.handles.erase(handle);
}

HIPEMU_API FileError hipFileBufRegister(const void* base, std::size_t length, int) {
    HIPFILE_ENTRY("hipFileBufRegister");
    if (!base || length == 0) return {kFileInvalidValue, 0};
    PointerAttributes attributes{};
    if (const int code = hipPointerGetAttributes(&attributes, base); code != 0) {
        return {kHipDriverError, code};
    }
    if (attributes.type != kDevice) return {kMemoryTypeInvalid, 0};
    void* start = nullptr;
    std::size_t size = 0;
    if (const int code = hipMemGetAddressRange(&start, &size, const_cast<void*>(base)); code != 0) {
        return {kHipDriverError, code};
    }
    const auto before =
        static_cast<std::size_t>(static_cast<const char*>(base) - static_cast<char*>(start));
    if (length > size - before) return {kPointerRangeError, 0};
    Driver& driver = Driver::instance();
    const std::lock_guard lock(driver.mutex);
    driver.open_if_needed();
    const bool is_new = driver.buffers.try_emplace(base, Buffer{length}).second;
    return {is_new ? kFileSuccess : kAlreadyRegistered, 0};
}

HIPEMU_API FileError hipFileBufDeregister(const void* base) {
    HIPFILE_ENTRY("hipFileBufDeregister");
    Driver& driver = Driver::instance();
    const std::lock_guard lock(driver.mutex);
    const auto found = driver.buffers.find(base);
    if (found == driver.buffers.end()) return {kNotRegistered, 0};
    if (found->second.users > 0) return {kInternalError, 0};  // I/O under way: stays registered
    driver.buffers.erase(found);
    return {kFileSuccess, 0};
}

HIPEMU_API ssize_t hipFileRead(void* handle, void* base, std::size_t size, off_t file_offset,
                               off_t buffer_offset) {
    static Entry& counted = entry("hipFileRead");
    if (const int code = counted.enter(); code != 0) return -code;
    return move(true, handle, base, size, file_offset, buffer_offset, Caller::kThread);
}

HIPEMU_API ssize_t hipFileWrite(void* handle, const void* base, std::size_t size, off_t file_offset,
                                off_t buffer_offset) {
    static Entry& counted = entry("hipFileWrite");
    if (const int code = counted.enter(); code != 0) return -code;
    return move(false, handle, base, size, file_offset, buffer_offset, Caller::kThread);
}

namespace {

// The four slots are read when the stream gets there, so they must outlive that moment.
FileError move_async(bool reads, void* handle, void* base, std::size_t* size, off_t* file_offset,
                     off_t* buffer_offset, ssize_t* done, void* stream_handle) {
    if (version_minor() < 4) return {kAsyncNotSupported, 0};
    const StreamPointer stream = resolve(stream_handle);
    if (!stream) return {kHipDriverError, kInvalidHandle};
    enqueue(stream, [=] {
        *done = move(reads, handle, base, *size, *file_offset, *buffer_offset, Caller::kStream);
    });
    return {kFileSuccess, 0};
}

}  // namespace

HIPEMU_API FileError hipFileReadAsync(void* handle, void* base, std::size_t* size,
                                      off_t* file_offset, off_t* buffer_offset, ssize_t* done,
                                      void* stream) {
    HIPFILE_ENTRY("hipFileReadAsync");
    return move_async(true, handle, base, size, file_offset, buffer_offset, done, stream);
}

HIPEMU_API FileError hipFileWriteAsync(void* handle, void* base, std::size_t* size,
                                       off_t* file_offset, off_t* buffer_offset, ssize_t* done,
                                       void* stream) {
    HIPFILE_ENTRY("hipFileWriteAsync");
    return move_async(false, handle, base, size, file_offset, buffer_offset, done, stream);
}

HIPEMU_API FileError hipFileStreamRegister(void* stream, unsigned) {
    HIPFILE_ENTRY("hipFileStreamRegister");
    if (version_minor() < 4) return {kAsyncNotSupported, 0};
    return resolve(stream) ? FileError{kFileSuccess, 0}
                           : FileError{kHipDriverError, kInvalidHandle};
}

HIPEMU_API FileError hipFileStreamDeregister(void*) {
    HIPFILE_ENTRY("hipFileStreamDeregister");
    return {version_minor() < 4 ? kAsyncNotSupported : kFileSuccess, 0};
}

// For tests, through hipfile_arrays.emulator: what was registered and not given back.
HIPEMU_API void hipemuVisitRegistered(void (*visit)(const char*, std::uint64_t)) {
    Driver& driver = Driver::instance();
    const std::lock_guard lock(driver.mutex);
    visit("registered files", driver.handles.size());
    visit("registered buffers", driver.buffers.size());
}
