// SPDX-License-Identifier: Apache-2.0
// NorMuon's factors. The update itself is read once, for the rows' sums of squares; what dividing its rows would make
// of the norm follows from these sums, so that one multiplication a row, within apply, does both the division and the
// way back to the old norm.
#include "kernels/pass_scalars.hpp"
#include "kernels/passes.hpp"

namespace mxs {

void normuon_factors(float *factors, float *second_momentum, const double *row_squares, size_t rows, size_t columns,
                     double beta2, double epsilon) {
  double old_squares = 0.0, new_squares = 0.0;
  for (size_t row = 0; row < rows; ++row) {
    second_momentum[row] =
        scalar::normuon_second(second_momentum[row], row_squares[row], static_cast<double>(columns), beta2);
    const double factor = scalar::normuon_reciprocal(second_momentum[row], epsilon);
    old_squares += row_squares[row];
    new_squares += row_squares[row] * factor * factor;
  }
  const double back = scalar::normuon_back(old_squares, new_squares);
  for (size_t row = 0; row < rows; ++row)
    factors[row] = scalar::normuon_factor(scalar::normuon_reciprocal(second_momentum[row], epsilon), back);
}

}  // namespace mxs
