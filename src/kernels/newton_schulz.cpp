// SPDX-License-Identifier: Apache-2.0
#include "kernels/newton_schulz.hpp"

#include <algorithm>
#include <cmath>

#include "base/status.hpp"

namespace mxs {

mxs_status find_squares(MatrixSource source, size_t rows, size_t columns, double *squares) {
  bool not_finite = false;
  const double sum = MatrixRuns(rows, columns).sum([&](size_t row, size_t column, size_t count) {
    return kernels().sum_of_squares(source.data + row * source.row_stride + column, MXS_F32, 1.0f, count, &not_finite);
  });
  if (not_finite)
    return set_error(MXS_INVALID_ARGUMENT, "the source of Newton-Schulz has an element that is not finite");
  *squares = sum;
  return MXS_OK;
}

NormScale norm_scale(double squares, const NewtonSchulzRecipe &recipe) {
  NormScale scale;
  scale.zero = squares == 0.0;
  if (scale.zero) return scale;
  const double norm = std::sqrt(squares) * recipe.safety;
  const double divisor = recipe.adds_epsilon ? norm + recipe.epsilon : std::max(norm, recipe.epsilon);
  int exponent = 0;
  const double fraction = std::frexp(divisor, &exponent);  // divisor = fraction * 2^exponent
  scale.first = std::ldexp(1.0f, -exponent / 2);
  scale.second = std::ldexp(1.0f, -exponent - -exponent / 2);
  scale.third = static_cast<float>(1.0 / fraction);
  return scale;
}

void scale_to_norm(float *target, const float *source, size_t elements, const NormScale &scale) {
  const float first = scale.first, second = scale.second, third = scale.third;
  for (size_t i = 0; i < elements; ++i) target[i] = source[i] * first * second * third;
}

}  // namespace mxs
