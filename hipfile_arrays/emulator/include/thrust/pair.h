#pragma once

#include "tuple.h"
