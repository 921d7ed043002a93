// The entry points of entry_points.hpp, opened at run time: two tables (GPU runtime, file library),
// two fillings each (HIP and hipFile, CUDA and cuFile). Nothing is opened before the first use.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "entry_points.hpp"

namespace hfa {

enum class Platform : std::uint8_t { Hip, Cuda };

const char* name_of(Platform platform);

// hipErrorNotSupported and cudaErrorNotSupported are both 801; 5007 is PlatformNotSupported.
inline constexpr int kRuntimeNotSupported = 801;
inline constexpr int kFileNotSupported = 5007;

// One filled row: callable like the C function, and knows the vendor's name for messages.
template <class Result, class... Arguments>
struct Entry {
    using Function = Result (*)(Arguments...);

    Function function = &stand_in;
    const char* name = "";
    bool present = false;

    Result operator()(Arguments... arguments) const { return function(arguments...); }

    static Result stand_in(Arguments...) {
        if constexpr (std::is_same_v<Result, FileError>) {
            return FileError{kFileNotSupported, 0};
        } else if constexpr (std::is_same_v<Result, int>) {
            return kRuntimeNotSupported;
        } else if constexpr (std::is_same_v<Result, ssize_t>) {
            return -kFileNotSupported;
        } else if constexpr (std::is_same_v<Result, const char*>) {
            return "";
        }
    }
};

#define HFA_MEMBER(member, hip, cuda, since, need, ...) Entry<__VA_ARGS__> member;

struct Runtime {
    HFA_RUNTIME_ENTRY_POINTS(HFA_MEMBER)
    Platform platform{};
    int version = 0;
    std::string path;  // the file the library was loaded from
};

struct FileLibrary {
    HFA_FILE_ENTRY_POINTS(HFA_MEMBER)
    Platform platform{};
    std::string path;
};

#undef HFA_MEMBER

// Where to look, in this order: already mapped in the process, the loader's own search by SONAME,
// then each of `folders`. `override_path`, when not empty, is the only candidate.
struct SearchPath {
    std::vector<std::string> folders;
    std::string override_path;
};

// Opened once per process and kept until it ends. Throw Error (channel Library) naming every place
// that was tried; a failure is not remembered, so installing the library and retrying works.
void set_search_path(Platform platform, SearchPath runtime, SearchPath file_library);
const Runtime& runtime(Platform platform);
const FileLibrary& file_library(Platform platform);

// Nothing is opened: is the file library open already, can it be opened?
const FileLibrary* file_library_if_open(Platform platform) noexcept;

// Every distinct file under which a HIP (or CUDA) runtime is mapped into this process.
std::vector<std::string> mapped_runtimes(Platform platform);

}  // namespace hfa
