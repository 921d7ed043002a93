// The engine alone, without Python, on the emulated device; for sanitizer builds.
//
//   engine_test FOLDER_OF_EMULATED_LIBRARIES FOLDER_FOR_FILES
//
// Many threads read and write through every path at once, buffers are registered and ended
// meanwhile, and every byte is checked.
#include "engine.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "one_piece.hpp"
#include "staging.hpp"
#include "stream_ordered.hpp"
#include "workers.hpp"

using namespace hfa;

namespace {

constexpr int kDefault = 4;
constexpr std::int64_t kSize = (3 << 20) + 4096;

std::atomic<int> failures{0};

void expect(bool truth, const char* what) {
    if (truth) return;
    std::fprintf(stderr, "FAILED: %s\n", what);
    ++failures;
}

std::vector<char> random_bytes(std::int64_t size, unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<char> bytes(static_cast<std::size_t>(size));
    for (char& byte : bytes) byte = static_cast<char>(generator());
    return bytes;
}

// Device memory, owned.
class DeviceMemory {
  public:
    DeviceMemory(const Runtime& runtime, std::int64_t size) : runtime_(runtime) {
        expect(runtime.Malloc(&address_, static_cast<std::size_t>(size)) == 0, "hipMalloc");
    }
    ~DeviceMemory() { runtime_.Free(address_); }
    std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(address_); }

  private:
    const Runtime& runtime_;
    void* address_ = nullptr;
};

std::vector<char> host_copy(const Runtime& runtime, std::uintptr_t address, std::int64_t size) {
    std::vector<char> bytes(static_cast<std::size_t>(size));
    expect(
        runtime.Memcpy(bytes.data(), reinterpret_cast<void*>(address), bytes.size(), kDefault) == 0,
        "hipMemcpy");
    return bytes;
}

void round_trips(const Runtime& runtime, const std::string& name, Path path, unsigned seed) {
    const auto bytes = random_bytes(kSize, seed);
    const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    OpenFile file(fd, true);
    const DeviceMemory source(runtime, kSize);
    const DeviceMemory target(runtime, kSize);
    expect(runtime.Memcpy(reinterpret_cast<void*>(source.address()), bytes.data(), bytes.size(),
                          kDefault) == 0,
           "upload");
    const auto poll = [](std::int64_t) { return true; };
    for (int round = 0; round < 3; ++round) {
        auto registration =
            Registry::instance().add(Platform::Hip, target.address(), kSize, 0, false);
        const Path written = path == Path::Mapped ? Path::Buffered : path;
        const Outcome out = run({file,
                                 Direction::Write,
                                 runtime,
                                 0,
                                 nullptr,
                                 {{0, source.address(), kSize, written}},
                                 nullptr,
                                 false,
                                 3,
                                 64 << 10},
                                poll);
        expect(!out.failure, "write");
        const Outcome in = run({file,
                                Direction::Read,
                                runtime,
                                0,
                                nullptr,
                                {{0, target.address(), kSize, path}},
                                registration,
                                false,
                                3,
                                64 << 10},
                               poll);
        expect(!in.failure, "read");
        expect(in.missing == 0, "all bytes");
        Registry::instance().remove(registration);
        expect(host_copy(runtime, target.address(), kSize) == bytes, "equal bytes");
    }
    const std::int64_t missing = run_one({file,
                                          Direction::Read,
                                          runtime,
                                          0,
                                          nullptr,
                                          {kSize - 10, target.address(), 100, Path::Buffered},
                                          nullptr,
                                          true});
    expect(missing == 90, "a short small read says how short");
    const Outcome past = run({file,
                              Direction::Read,
                              runtime,
                              0,
                              nullptr,
                              {{kSize - 10, target.address(), 100'000, Path::Buffered}},
                              nullptr,
                              false,
                              2,
                              64 << 10},
                             poll);
    expect(past.missing == 100'000 - 10, "a short read says how short");
    expect(past.end_of_file == kSize, "and where the file ended");
    ::unlink(name.c_str());
}

// Transfers in their place in a stream: a write, a read behind it, and cancelled ones.
void in_a_stream(const Runtime& runtime, const std::string& name, unsigned seed) {
    const auto bytes = random_bytes(kSize, seed);
    OpenFile file(::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600), true);
    expect(ftruncate(file.fd(), kSize) == 0, "ftruncate");
    const DeviceMemory source(runtime, kSize);
    const DeviceMemory target(runtime, kSize);
    expect(runtime.Memcpy(reinterpret_cast<void*>(source.address()), bytes.data(), bytes.size(),
                          kDefault) == 0,
           "upload");
    Stream stream = nullptr;
    expect(runtime.StreamCreateWithFlags(&stream, 1) == 0, "hipStreamCreateWithFlags");
    expect(takes_stream_waits(runtime, 0), "streams wait for memory");
    const auto begin = [&](Direction direction, std::uintptr_t pointer, Path path) {
        auto ended = std::make_shared<std::promise<Outcome>>();
        auto future = ended->get_future();
        auto transfer = StreamTransfer::begin(
            {file,
             direction,
             runtime,
             0,
             stream,
             {{0, pointer, kSize, path}},
             nullptr,
             false,
             3,
             64 << 10},
            [ended](Outcome outcome) { ended->set_value(std::move(outcome)); },
            [] { return true; });
        return std::make_pair(std::move(transfer), std::move(future));
    };
    for (int round = 0; round < 4; ++round) {
        auto [write, written] = begin(Direction::Write, source.address(), Path::Buffered);
        expect(!written.get().failure, "write");
        auto [stopped, ended] = begin(Direction::Read, target.address(), Path::Buffered);
        if (round % 2) stopped->cancel();
        auto [read, done] =
            begin(Direction::Read, target.address(), round < 2 ? Path::Buffered : Path::ODirect);
        const Failure failure = ended.get().failure;
        expect(!failure || failure.channel == Channel::Interrupted, "cancelled");
        const Outcome outcome = done.get();
        expect(!outcome.failure && outcome.missing == 0, "read");
        expect(host_copy(runtime, target.address(), kSize) == bytes, "equal bytes");
    }
    runtime.StreamDestroy(stream);
    ::unlink(name.c_str());
}

void stops_when_told(const Runtime& runtime, const std::string& name) {
    const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    expect(ftruncate(fd, 64 << 20) == 0, "ftruncate");
    OpenFile file(fd, true);
    const DeviceMemory target(runtime, 64 << 20);
    const Outcome outcome = run({file,
                                 Direction::Read,
                                 runtime,
                                 0,
                                 nullptr,
                                 {{0, target.address(), 64 << 20, Path::Buffered}},
                                 nullptr,
                                 false,
                                 2,
                                 64 << 10},
                                [](std::int64_t) { return false; });
    expect(!outcome.failure || outcome.failure.channel == Channel::Interrupted, "interrupted");
    ::unlink(name.c_str());
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 3) return 2;
    const std::string libraries = arguments[1];
    const std::string folder = arguments[2];
    set_search_path(Platform::Hip, {{}, libraries + "/libamdhip64.so.7"},
                    {{}, libraries + "/libhipfile.so.0"});
    const Runtime& hip = runtime(Platform::Hip);
    const std::vector<Path> paths{Path::Library, Path::Direct, Path::Buffered, Path::ODirect,
                                  Path::Mapped};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < paths.size(); ++i) {
        threads.emplace_back([&, i] {
            try {
                round_trips(hip, folder + "/engine_test." + std::to_string(i), paths[i], i);
            } catch (const Error& error) {
                expect(false, error.what());
            }
        });
    }
    for (unsigned i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] {
            try {
                in_a_stream(hip, folder + "/engine_test.stream" + std::to_string(i), i);
            } catch (const Error& error) {
                expect(false, error.what());
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    stops_when_told(hip, folder + "/engine_test.stop");
    Workers::instance().stop();
    LanePool::instance().trim();
    RingPool::instance().trim();
    expect(pinned_bytes() == 0, "no pinned memory is left");
    expect(Registry::instance().all().empty(), "no registration is left");
    std::printf("%s\n", failures ? "failed" : "passed");
    return failures ? 1 : 0;
}
