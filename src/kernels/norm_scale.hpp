// SPDX-License-Identifier: Apache-2.0
// 1 / norm of a matrix, as Newton-Schulz scales by it: source for host and device, with the same bits.
#pragma once

#include <cmath>

#include "base/both.hpp"

namespace mxs {

// Three factors, of which the first two are powers of two: sources of 1e30 and of 1e-30 neither overflow nor vanish,
// and are scaled to the same bits.
struct NormScale {
  float first = 0, second = 0, third = 0;
  bool zero = false;  // the source is all zero
};

namespace scalar {

MXS_BOTH inline NormScale norm_scale(double squares, bool adds_epsilon, double epsilon, double safety) {
  NormScale scale;
  scale.zero = squares == 0.0;
  if (scale.zero) return scale;
  const double norm = std::sqrt(squares) * safety;
  const double divisor = adds_epsilon ? norm + epsilon : (norm < epsilon ? epsilon : norm);
  int exponent = 0;
  const double fraction = std::frexp(divisor, &exponent);  // divisor = fraction * 2^exponent
  scale.first = std::ldexp(1.0f, -exponent / 2);
  scale.second = std::ldexp(1.0f, -exponent - -exponent / 2);
  scale.third = static_cast<float>(1.0 / fraction);
  return scale;
}

MXS_BOTH inline float scaled(float value, const NormScale &scale) {
  return value * scale.first * scale.second * scale.third;
}

}  // namespace scalar
}  // namespace mxs
