// SPDX-License-Identifier: Apache-2.0
#include "kernels/newton_schulz.hpp"

#include <algorithm>
#include <cmath>

#include "base/status.hpp"

namespace mxs {

const NewtonSchulzRecipe &newton_schulz_recipe(mxs_muon_preset preset) {
  // Five different polynomials: singular values from 1e-2 on come to within [0.978, 1.032].
  static constexpr NewtonSchulzRecipe you = {{{{4.0848f, -6.8946f, 2.9270f},
                                               {3.9505f, -6.3029f, 2.6377f},
                                               {3.7418f, -5.5913f, 2.3037f},
                                               {2.8769f, -3.1427f, 1.2046f},
                                               {2.8366f, -3.0525f, 1.2012f}}},
                                             0.0};
  static constexpr NewtonSchulzRecipe torch = {{{{3.4445f, -4.7750f, 2.0315f},
                                                 {3.4445f, -4.7750f, 2.0315f},
                                                 {3.4445f, -4.7750f, 2.0315f},
                                                 {3.4445f, -4.7750f, 2.0315f},
                                                 {3.4445f, -4.7750f, 2.0315f}}},
                                               1e-7};
  return preset == MXS_MUON_TORCH ? torch : you;
}

float muon_scale(mxs_muon_preset preset, int64_t rows, int64_t columns) {
  if (rows < 1 || columns < 1) return 0.0f;
  const double r = static_cast<double>(rows), c = static_cast<double>(columns);
  // 0.2 * sqrt(max) gives an update the root mean square that AdamW's have.
  if (preset == MXS_MUON_TORCH) return static_cast<float>(std::sqrt(std::max(1.0, r / c)));
  return static_cast<float>(0.2 * std::sqrt(std::max(r, c)));
}

mxs_status find_norm_scale(const float *source, size_t elements, double norm_floor, NormScale *scale) {
  constexpr size_t chunk = 4096;
  double sum = 0.0;
  bool not_finite = false;
  for (size_t first = 0; first < elements; first += chunk)
    sum += kernels().sum_of_squares(source + first, 1.0f, std::min(chunk, elements - first), &not_finite);
  if (not_finite)
    return set_error(MXS_INVALID_ARGUMENT, "the source of Newton-Schulz has an element that is not finite");
  const double norm = std::max(std::sqrt(sum), norm_floor);
  *scale = {};
  scale->zero = sum == 0.0;
  if (scale->zero) return MXS_OK;
  int exponent = 0;
  const double fraction = std::frexp(norm, &exponent);  // norm = fraction * 2^exponent
  scale->first = std::ldexp(1.0f, -exponent / 2);
  scale->second = std::ldexp(1.0f, -exponent - -exponent / 2);
  scale->third = static_cast<float>(1.0 / fraction);
  return MXS_OK;
}

void scale_to_norm(float *target, const float *source, size_t elements, const NormScale &scale) {
  const float first = scale.first, second = scale.second, third = scale.third;
  for (size_t i = 0; i < elements; ++i) target[i] = source[i] * first * second * third;
}

}  // namespace mxs
