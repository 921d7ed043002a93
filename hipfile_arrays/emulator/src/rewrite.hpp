// Preprocessed HIP source into plain C++.
#pragma once

#include <string>
#include <vector>

namespace hiprtc {

// Replaces the markers of __global__ and __shared__, and lets each kernel that is no template, and
// each name expression, register itself. Types are never parsed: the compiler deduces them.
std::string rewrite(const std::string& preprocessed, const std::vector<std::string>& expressions,
                    const std::string& build);

}  // namespace hiprtc
