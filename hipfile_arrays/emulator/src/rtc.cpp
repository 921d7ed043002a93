// The C ABI of the emulated libhiprtc.
#include <algorithm>
#include <cstring>
#include <exception>

#include "abi.hpp"
#include "rtc_compile.hpp"

namespace {

enum Result : int {
    kOk = 0,
    kOutOfMemory = 1,
    kInvalidInput = 3,
    kInvalidProgram = 4,
    kCompilation = 6,
    kNameNotValid = 10,
    kInternal = 11,
};

struct Program {
    hiprtc::Source source;
    hiprtc::Outcome outcome;
};

// No exception crosses the C ABI.
template <class Action>
int guarded(Action action) {
    try {
        return action();
    } catch (const std::bad_alloc&) {
        return kOutOfMemory;
    } catch (const std::exception&) {
        return kInternal;
    }
}

}  // namespace

HIPEMU_API const char* hiprtcGetErrorString(int result) {
    static const char* const names[] = {"HIPRTC_SUCCESS",
                                        "HIPRTC_ERROR_OUT_OF_MEMORY",
                                        "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                        "HIPRTC_ERROR_INVALID_INPUT",
                                        "HIPRTC_ERROR_INVALID_PROGRAM",
                                        "HIPRTC_ERROR_INVALID_OPTION",
                                        "HIPRTC_ERROR_COMPILATION",
                                        "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                                        "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                                        "HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
                                        "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
                                        "HIPRTC_ERROR_INTERNAL_ERROR"};
    const bool known = result >= 0 && result < static_cast<int>(std::size(names));
    return known ? names[result] : "HIPRTC_ERROR_INTERNAL_ERROR";
}

HIPEMU_API int hiprtcVersion(int* major, int* minor) {
    *major = 7;
    *minor = 0;
    return kOk;
}

HIPEMU_API int hiprtcCreateProgram(Program** out, const char* text, const char* name, int count,
                                   const char** headers, const char** header_names) {
    if (!out || !text) return kInvalidInput;
    return guarded([&] {
        auto* program = new Program;
        program->source.text = text;
        if (name) program->source.name = name;
        for (int i = 0; i < count; ++i) {
            program->source.headers.emplace_back(header_names[i], headers[i]);
        }
        *out = program;
        return kOk;
    });
}

HIPEMU_API int hiprtcDestroyProgram(Program** program) {
    if (!program || !*program) return kInvalidProgram;
    delete *program;
    *program = nullptr;
    return kOk;
}

HIPEMU_API int hiprtcAddNameExpression(Program* program, const char* expression) {
    if (!program || !expression) return kInvalidInput;
    return guarded([&] {
        auto& all = program->source.expressions;
        if (std::find(all.begin(), all.end(), expression) == all.end())
            all.emplace_back(expression);
        return kOk;
    });
}

HIPEMU_API int hiprtcCompileProgram(Program* program, int count, const char** options) {
    if (!program) return kInvalidProgram;
    return guarded([&] {
        program->source.options.assign(options, options + count);
        program->outcome = hiprtc::compile(program->source);
        return program->outcome.succeeded ? kOk : kCompilation;
    });
}

HIPEMU_API int hiprtcGetLoweredName(Program* program, const char* expression, const char** name) {
    if (!program || !expression || !name) return kInvalidInput;
    const auto& names = program->outcome.compiled.lowered_names;
    const auto found = names.find(expression);
    if (found == names.end()) return kNameNotValid;
    *name = found->second.c_str();
    return kOk;
}

HIPEMU_API int hiprtcGetProgramLogSize(Program* program, std::size_t* size) {
    if (!program || !size) return kInvalidInput;
    *size = program->outcome.log.size() + 1;
    return kOk;
}

HIPEMU_API int hiprtcGetProgramLog(Program* program, char* out) {
    if (!program || !out) return kInvalidInput;
    std::memcpy(out, program->outcome.log.c_str(), program->outcome.log.size() + 1);
    return kOk;
}

HIPEMU_API int hiprtcGetCodeSize(Program* program, std::size_t* size) {
    if (!program || !size) return kInvalidInput;
    *size = program->outcome.compiled.code.size();
    return kOk;
}

HIPEMU_API int hiprtcGetCode(Program* program, char* out) {
    if (!program || !out) return kInvalidInput;
    std::memcpy(out, program->outcome.compiled.code.data(), program->outcome.compiled.code.size());
    return kOk;
}
