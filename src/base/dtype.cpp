// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.hpp"

#include "base/half.hpp"

namespace mxs {

float float_from_f16(uint16_t bits) { return float_of_half(bits); }
uint16_t f16_from_float(float value) { return half_of_float(value); }

}  // namespace mxs
