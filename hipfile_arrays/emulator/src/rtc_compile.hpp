// One HIP source into one code object, by the host compiler.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rtc_cache.hpp"

namespace hiprtc {

struct Source {
    std::string text;
    std::string name;
    std::vector<std::pair<std::string, std::string>> headers;  // name, text
    std::vector<std::string> expressions;
    std::vector<std::string> options;
};

struct Outcome {
    bool succeeded = false;
    std::string log;
    Compiled compiled;
};

Outcome compile(const Source& source);

}  // namespace hiprtc
