// hipFileRead and hipFileWrite until all is moved: short counts and EINTR are legal answers.
#pragma once

#include <functional>

#include "engine.hpp"
#include "file_io.hpp"

namespace hfa {

// Moves a piece through hipFile or cuFile. `registration`, where it is known to the library, holds
// the piece: the library knows it by its exact base only, so base and offset are passed.
// `step` is called after each call with the bytes it moved; when it answers false, the rest is
// left.
Moved move_by_library(OpenFile& file, Direction direction, Platform platform,
                      Registration* registration, const Piece& piece,
                      const std::function<bool(std::int64_t)>& step);

}  // namespace hfa
