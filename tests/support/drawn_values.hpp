// SPDX-License-Identifier: Apache-2.0
// Numbers that every rank can draw for itself, and their way in and out of memory of any dtype.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "matrixshard/types.h"

namespace mxs::test {

// From -1 to 1, another one for each (a, b, c).
inline float hashed(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t mixed = (a + 1) * 0x9e3779b97f4a7c15u ^ (b + 3) * 0xbf58476d1ce4e5b9u ^ (c + 7) * 0x94d049bb133111ebu;
  mixed ^= mixed >> 29;
  mixed *= 0xbf58476d1ce4e5b9u;
  return static_cast<float>(static_cast<int64_t>(mixed >> 40) - 8388608) * 0x1p-23f;
}

inline void write_value(void *data, mxs_dtype dtype, uint64_t element, float value) {
  if (dtype == MXS_F32) static_cast<float *>(data)[element] = value;
  if (dtype == MXS_BF16) static_cast<uint16_t *>(data)[element] = bf16_from_float(value);
  if (dtype == MXS_F16) static_cast<uint16_t *>(data)[element] = f16_from_float(value);
}

inline float read_value(const void *data, mxs_dtype dtype, uint64_t element) {
  if (dtype == MXS_BF16) return float_from_bf16(static_cast<const uint16_t *>(data)[element]);
  if (dtype == MXS_F16) return float_from_f16(static_cast<const uint16_t *>(data)[element]);
  return static_cast<const float *>(data)[element];
}

}  // namespace mxs::test
