// The part of the binding that is about arrays and their memory.
#pragma once

#include "dlpack.hpp"

namespace hfa {

void bind_arrays(nanobind::module_& m);

}  // namespace hfa
