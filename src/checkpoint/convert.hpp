// SPDX-License-Identifier: Apache-2.0
// Numbers of one dtype into another, as base/dtype.hpp does it: rounded to nearest even, once, from whatever dtype.
// What is too large becomes infinity, a NaN stays one.
#pragma once

#include <cstddef>

#include "matrixshard/types.h"

namespace mxs {

// f32, bf16, f16 and f64 into each other.
bool can_convert(mxs_dtype from, mxs_dtype to);

// source: at any border, as it comes out of a file. target: at a border of its numbers, apart from source. Equal
// dtypes, of whatever kind, are copied.
void convert(void *target, mxs_dtype to, const void *source, mxs_dtype from, size_t count);

}  // namespace mxs
