// SPDX-License-Identifier: Apache-2.0
// NorMuon's factors. The update itself is read once, for the rows' sums of squares; what dividing its rows would make
// of the norm follows from these sums, so that one multiplication a row, within apply, does both the division and the
// way back to the old norm.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "kernels/passes.hpp"

namespace mxs {

namespace {
// As dion: a norm below it counts as this. Keeps a matrix of zeros at zero.
constexpr double norm_least = 1e-8;
}  // namespace

void normuon_factors(float *factors, float *second_momentum, const double *row_squares, size_t rows, size_t columns,
                     double beta2, double epsilon) {
  double old_squares = 0.0, new_squares = 0.0;
  const auto reciprocal = [&](float second) {
    const double divisor = std::sqrt(static_cast<double>(second)) + epsilon;
    return divisor > 0.0 ? 1.0 / divisor : 0.0;
  };
  for (size_t row = 0; row < rows; ++row) {
    const double mean = row_squares[row] / static_cast<double>(columns), second = second_momentum[row];
    second_momentum[row] = static_cast<float>(second + (mean - second) * (1.0 - beta2));
    const double factor = reciprocal(second_momentum[row]);
    old_squares += row_squares[row];
    new_squares += row_squares[row] * factor * factor;
  }
  const double back = std::sqrt(old_squares) / std::max(std::sqrt(new_squares), norm_least);
  for (size_t row = 0; row < rows; ++row)
    factors[row] = static_cast<float>(std::min(reciprocal(second_momentum[row]) * back, static_cast<double>(FLT_MAX)));
}

}  // namespace mxs
