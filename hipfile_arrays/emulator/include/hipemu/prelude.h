// What hiprtc gives every source before its first line.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include "context.h"
#include "registration.h"
// Order matters below: each uses those above.
#include "bits.h"
#include "math.h"
#include "atomics.h"
#include "warp.h"
#include "vectors.h"
#include "half.h"

#include <cassert>
