// SPDX-License-Identifier: Apache-2.0
#include "kernels/newton_schulz.hpp"

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
  return scalar::norm_scale(squares, recipe.adds_epsilon, recipe.epsilon, recipe.safety);
}

void scale_to_norm(float *target, const float *source, size_t elements, const NormScale &scale) {
  const NormScale own = scale;  // which target can't overlap: loops become vectors
  for (size_t i = 0; i < elements; ++i) target[i] = scalar::scaled(source[i], own);
}

}  // namespace mxs
