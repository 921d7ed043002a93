#include "rtc_compile.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "../include/hipemu/kernel_abi.h"
#include "code_object.hpp"
#include "rewrite.hpp"
#include "rtc_process.hpp"
#include "state.hpp"

namespace hiprtc {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// The folder of this library: the runtime lies in it, the prelude beside it.
const std::string& library_folder() {
    static const std::string folder = [] {
        Dl_info info{};
        dladdr(reinterpret_cast<void*>(&library_folder), &info);
        return fs::absolute(info.dli_fname).parent_path().string();
    }();
    return folder;
}

std::string include_folder() { return library_folder() + "/../include"; }

std::string wave() {
    return hipemu::environment_number("HIPFILE_ARRAYS_EMULATOR_WAVE", 64) == 32 ? "32" : "64";
}

// Changes with the prelude and with this library.
const std::string& build_id() {
    static const std::string id = [] {
        Words files;
        std::error_code error;
        for (const auto& found : fs::recursive_directory_iterator(include_folder(), error)) {
            if (found.is_regular_file()) files.push_back(found.path().string());
        }
        std::sort(files.begin(), files.end());
        files.push_back(library_folder() + "/libhiprtc.so.7");
        std::uint64_t value = hash("");
        for (const std::string& file : files) value = hash(read_file(file).value_or(""), value);
        return std::to_string(value) + "/" + wave();
    }();
    return id;
}

// The compiler as a file: another version is another size or time.
std::string compiler_identity(const std::string& compiler) {
    std::error_code error;
    const fs::path path = fs::canonical(compiler, error);
    if (error) return compiler;
    return path.string() + " " + std::to_string(fs::file_size(path, error)) + " " +
           std::to_string(fs::last_write_time(path, error).time_since_epoch().count());
}

struct Options {
    std::string standard = "-std=gnu++17";
    Words preprocessor;
};

// What means something to the host compiler: -I, -D, -U, -include, -std. The prelude needs C++17.
Options understood(const Words& given) {
    Options options;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const std::string& word = given[i];
        auto begins = [&](const char* prefix) { return word.rfind(prefix, 0) == 0; };
        if (begins("-std=") || begins("--std=")) {
            const int year = std::atoi(word.c_str() + word.rfind('+') + 1);
            if (year > 17 && year < 98) options.standard = "-std=gnu++" + std::to_string(year);
        } else if (word == "-I" || word == "-D" || word == "-U" || word == "-include") {
            options.preprocessor.push_back(word);
            if (i + 1 < given.size()) options.preprocessor.push_back(given[++i]);
        } else if (begins("-I") || begins("-D") || begins("-U")) {
            options.preprocessor.push_back(word);
        } else if (begins("--include-path=")) {
            options.preprocessor.push_back("-I" + word.substr(15));
        } else if (begins("--define-macro=")) {
            options.preprocessor.push_back("-D" + word.substr(15));
        }
    }
    return options;
}

Words preprocess_command(const std::string& compiler, const Options& options,
                         const std::string& folder) {
    Words command = {compiler, "-x", "c++", "-E", "-w", options.standard, "-O1"};
    for (const char* macro : {"__HIPCC_RTC__", "__HIPCC__", "__HIP__", "__HIP_PLATFORM_AMD__",
                              "__HIP_DEVICE_COMPILE__", "__gfx90a__"}) {
        command.push_back(std::string("-D") + macro + "=1");
    }
    command.push_back("-D__AMDGCN_WAVEFRONT_SIZE=" + wave());
    command.insert(command.end(), options.preprocessor.begin(), options.preprocessor.end());
    for (const std::string& word : {"-I" + folder, "-I" + include_folder(), std::string("-include"),
                                    std::string("hipemu/prelude.h"), folder + "/source.cpp",
                                    std::string("-o"), folder + "/preprocessed.ii"}) {
        command.push_back(word);
    }
    return command;
}

Words compile_command(const std::string& compiler, const Options& options) {
    // Flags that keep results the same everywhere: no fused multiply-add, no dependence on names of
    // temporary files.
    Words command = {compiler,
                     "-x",
                     "c++-cpp-output",
                     "-fPIC",
                     "-shared",
                     "-w",
                     options.standard,
                     "-O1",
                     "-s",
                     "-fno-strict-aliasing",
                     "-ffp-contract=off",
                     "-fno-semantic-interposition",
                     "-Wl,-Bsymbolic",
                     "-frandom-seed=hipemu"};
    std::error_code error;
    const std::string real = fs::canonical(compiler, error).filename().string();
    if (real.find("clang") == std::string::npos) {
        command.push_back("-fno-gnu-unique");
        command.push_back("-fpermissive");
    }
    for (const std::string& word :
         {std::string("plain.ii"), std::string("-x"), std::string("none"),
          library_folder() + "/libamdhip64.so.7", std::string("-o"), std::string("code.so")}) {
        command.push_back(word);
    }
    return command;
}

// The linker's names of the name expressions: asked of the loader.
bool find_lowered_names(const std::string& library, Outcome& outcome) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        outcome.log += dlerror();
        return false;
    }
    const auto* table = static_cast<const hipemu_module*>(dlsym(handle, "hipemu_module_table"));
    for (auto entry = table->begin; entry != table->end; ++entry) {
        outcome.compiled.lowered_names[(*entry)->name] = hipemu::linker_name(**entry);
    }
    dlclose(handle);
    return true;
}

// Our own folder's name must not reach the log, the key or the code.
void remove_all(std::string& text, const std::string& part) {
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at)) {
        text.erase(at, part.size());
    }
}

bool write_sources(const Source& source, const std::string& folder) {
    for (const auto& [name, text] : source.headers) {
        const fs::path path = fs::path(folder) / name;
        std::error_code error;
        fs::create_directories(path.parent_path(), error);
        if (!write_file(path.string(), text)) return false;
    }
    // CuPy names sources by temporary paths: only the last part may reach the key and the log.
    std::string name = fs::path(source.name).filename().string();
    if (name.empty()) name = "hiprtc.hip";
    std::erase_if(name, [](char c) { return c == '"' || c == '\n' || c == '\\'; });
    return write_file(folder + "/source.cpp", "#line 1 \"" + name + "\"\n" + source.text + "\n");
}

}  // namespace

Outcome compile(const Source& source) {
    Outcome outcome;
    const std::string compiler = find_compiler();
    if (compiler.empty()) {
        outcome.log =
            "the emulated device compiles kernels with a C++ compiler of this machine, and there "
            "is none on the PATH: install g++, or name one in HIPFILE_ARRAYS_EMULATOR_CXX";
        return outcome;
    }
    const TemporaryFolder folder;
    if (folder.path().empty() || !write_sources(source, folder.path())) {
        outcome.log = "no temporary file can be written";
        return outcome;
    }
    const std::string log = folder.path() + "/log";
    auto failed = [&](int status) {
        outcome.log = read_file(log).value_or("");
        remove_all(outcome.log, folder.path() + "/");
        if (status == 127) outcome.log += "the C++ compiler cannot be run: " + compiler + "\n";
        return status != 0;
    };
    const Options options = understood(source.options);
    if (failed(run_process(preprocess_command(compiler, options, folder.path()), log, ""))) {
        return outcome;
    }
    std::string text = read_file(folder.path() + "/preprocessed.ii").value_or("");
    remove_all(text, folder.path() + "/");
    text = rewrite(text, source.expressions, build_id());

    const std::string key = compiler_identity(compiler) + "\n" + options.standard + "\n" + text;
    if (auto found = load_cached(key)) {
        static hipemu::Entry& cached = hipemu::entry("hiprtc.cached");
        cached.add();
        outcome.compiled = std::move(*found);
        outcome.succeeded = true;
        return outcome;
    }
    static hipemu::Entry& compiled = hipemu::entry("hiprtc.compiled");
    compiled.add();
    write_file(folder.path() + "/plain.ii", text);
    if (failed(run_process(compile_command(compiler, options), log, folder.path()))) return outcome;
    outcome.compiled.code =
        hipemu::pack_code_object(read_file(folder.path() + "/code.so").value_or(""));
    if (!source.expressions.empty() && !find_lowered_names(folder.path() + "/code.so", outcome)) {
        return outcome;
    }
    store_cached(key, outcome.compiled);
    outcome.succeeded = true;
    return outcome;
}

}  // namespace hiprtc
