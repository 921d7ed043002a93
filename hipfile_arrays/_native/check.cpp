#include "check.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace hfa {
namespace {

constexpr int kHipDriverError = 5011;

// hipfile.h and cufile.h give the same numbers the same names.
constexpr std::array<std::pair<int, const char*>, 36> kFileErrorNames{{
    {5001, "DriverNotInitialized"},
    {5002, "DriverInvalidProps"},
    {5003, "DriverUnsupportedLimit"},
    {5004, "DriverVersionMismatch"},
    {5005, "DriverVersionReadError"},
    {5006, "DriverClosing"},
    {5007, "PlatformNotSupported"},
    {5008, "IONotSupported"},
    {5009, "DeviceNotSupported"},
    {5010, "DriverError"},
    {5011, "HipDriverError"},
    {5012, "HipPointerInvalid"},
    {5013, "HipMemoryTypeInvalid"},
    {5014, "HipPointerRangeError"},
    {5015, "HipContextMismatch"},
    {5016, "InvalidMappingSize"},
    {5017, "InvalidMappingRange"},
    {5018, "InvalidFileType"},
    {5019, "InvalidFileOpenFlag"},
    {5020, "DIONotSet"},
    {5022, "InvalidValue"},
    {5023, "MemoryAlreadyRegistered"},
    {5024, "MemoryNotRegistered"},
    {5025, "PermissionDenied"},
    {5026, "DriverAlreadyOpen"},
    {5027, "HandleNotRegistered"},
    {5028, "HandleAlreadyRegistered"},
    {5029, "DeviceNotFound"},
    {5030, "InternalError"},
    {5031, "GetNewFDFailed"},
    {5033, "DriverSetupError"},
    {5034, "IODisabled"},
    {5035, "BatchSubmitFailed"},
    {5036, "GPUMemoryPinningFailed"},
    {5037, "BatchFull"},
    {5038, "AsyncNotSupported"},
}};

// The runtime is open whenever its file library answered; if it somehow is not, the code alone
// must do.
Failure runtime_failure_of(Platform platform, int code, const char* call) {
    try {
        return runtime_failure(runtime(platform), code, call);
    } catch (const Error&) {
        return {Channel::Runtime, code, 0, call, "", ""};
    }
}

}  // namespace

const char* file_error_name(int code) {
    for (const auto& [number, name] : kFileErrorNames) {
        if (number == code) return name;
    }
    return "";
}

Failure runtime_failure(const Runtime& runtime, int code, const char* call) {
    if (code == 0) return {};
    // The failing call also left its code as the thread's last error; unread, it would surface in
    // the next unrelated call of CuPy or PyTorch.
    runtime.GetLastError();
    const char* name = runtime.GetErrorName(code);
    const char* text = runtime.GetErrorString(code);
    return {Channel::Runtime, code, 0, call, name ? name : "", text ? text : ""};
}

Failure file_failure(Platform platform, FileError error, const char* call) {
    if (error.code == 0) return {};
    Failure failure{Channel::FileLibrary, error.code, 0, call, file_error_name(error.code), ""};
    if (const FileLibrary* library = file_library_if_open(platform)) {
        const char* text = library->GetOpErrorString(error.code);
        if (text) failure.text = text;
    }
    if (error.code == kHipDriverError) {
        const Failure cause = runtime_failure_of(platform, error.runtime_code, call);
        failure.runtime_code = error.runtime_code;
        failure.text = cause.name + ": " + cause.text;
    }
    return failure;
}

Failure errno_failure(int error_number, const char* call) {
    char buffer[128] = "";
    const char* text = strerror_r(error_number, buffer, sizeof buffer);
    return {Channel::Errno, error_number, 0, call, "", text};
}

Failure bytes_failure(Platform platform, ssize_t result, int error_number, const char* call) {
    if (result == -1) {
        // -1 is a system error when errno says so, else minus hipErrorInvalidValue.
        return error_number != 0 ? errno_failure(error_number, call)
                                 : runtime_failure_of(platform, 1, call);
    }
    if (result <= -5000) return file_failure(platform, {static_cast<int>(-result), 0}, call);
    return runtime_failure_of(platform, static_cast<int>(-result), call);
}

void check_runtime(const Runtime& runtime, int code, const char* call) {
    if (code != 0) throw Error(runtime_failure(runtime, code, call));
}

void check_file(Platform platform, FileError error, const char* call) {
    if (error.code != 0) throw Error(file_failure(platform, error, call));
}

void raise_state(const std::string& text) {
    throw Error(Failure{Channel::State, 0, 0, "", "", text});
}

}  // namespace hfa
