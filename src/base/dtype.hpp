// SPDX-License-Identifier: Apache-2.0
// Element types: sizes, names, and scalar conversions that every other conversion agrees with.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/both.hpp"
#include "matrixshard/types.h"

namespace mxs {

MXS_BOTH constexpr size_t dtype_bytes(mxs_dtype dtype) {
  switch (dtype) {
    case MXS_F32: return 4;
    case MXS_BF16: return 2;
    case MXS_F16: return 2;
    case MXS_F64: return 8;
    case MXS_U8: return 1;
    default: return 0;
  }
}

MXS_BOTH inline float float_from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Rounds to nearest even; a NaN stays a (quiet) NaN.
MXS_BOTH inline uint16_t bf16_from_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float float_from_f16(uint16_t bits);
uint16_t f16_from_float(float value);  // rounds to nearest even

}  // namespace mxs
