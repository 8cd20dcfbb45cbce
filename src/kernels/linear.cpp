// SPDX-License-Identifier: Apache-2.0
// What both tables of linear.hpp do before and after their own work.
#include "kernels/linear.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/status.hpp"

namespace mxs {

namespace {
constexpr size_t tile = 32;
}

std::atomic<int> eigh_failures_to_come{0}, eigh_fp32_failures_to_come{0};

bool takes_failure(std::atomic<int> *failures_to_come) {
  int left = failures_to_come->load();
  while (left > 0)
    if (failures_to_come->compare_exchange_weak(left, left - 1)) return true;
  return false;
}

mxs_status eigh_failed(size_t n, const char *how) {
  return set_error(MXS_INTERNAL, "the eigenvalues of a symmetric %zu x %zu matrix do not converge (%s)", n, n, how);
}

bool find_exponent(const float *matrix, size_t n, size_t stride, int *exponent) {
  float largest = 0.0f;
  for (size_t row = 0; row < n; ++row) {
    float sum_of_zeros = 0.0f;  // NaN if an element is infinite or NaN
    for (size_t column = 0; column < n; ++column) {
      const float value = matrix[row * stride + column];
      sum_of_zeros += value * 0.0f;
      largest = std::max(largest, std::fabs(value));
    }
    if (sum_of_zeros != 0.0f) return false;
  }
  *exponent = 0;
  if (largest > 0.0f) std::frexp(largest, exponent);
  return true;
}

void scale_by_power(float *matrix, size_t n, size_t stride, int exponent) {
  if (exponent == 0) return;
  // Two factors: 2^150 is no fp32 number.
  const float first = std::ldexp(1.0f, exponent / 2), second = std::ldexp(1.0f, exponent - exponent / 2);
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column < n; ++column) {
      float &value = matrix[row * stride + column];
      value = value * first * second;
    }
}

void turn_square(float *matrix, size_t n, size_t stride) {
  for (size_t row = 0; row < n; row += tile)
    for (size_t column = 0; column <= row; column += tile)
      for (size_t r = row; r < std::min(row + tile, n); ++r)
        for (size_t c = column; c < std::min(column + tile, r); ++c)
          std::swap(matrix[r * stride + c], matrix[c * stride + r]);
}

void mirror(float *matrix, size_t stride, size_t row, size_t row_end, size_t column, size_t column_end) {
  for (; row < row_end; row += tile)
    for (size_t first = column; first < column_end; first += tile)
      for (size_t r = row; r < std::min(row + tile, row_end); ++r)
        for (size_t c = first; c < std::min({first + tile, column_end, r}); ++c)
          matrix[c * stride + r] = matrix[r * stride + c];
}

void form_polynomial(const Linear &linear, size_t n, float *target, const float *a, float b, float c, Team *team) {
  std::memcpy(target, a, n * n * sizeof(float));
  LinearUpdate update;
  update.n = update.inner = n;
  update.factor = {a, n, false};
  update.target = target, update.target_stride = n;
  update.alpha = c, update.beta = b;
  linear.update(update, team);
}

mxs_status check_finite_side(const char *what, const float *matrix, size_t n, size_t stride, size_t side_max,
                             int *exponent) {
  if (n > side_max)
    return set_error(MXS_INVALID_ARGUMENT, "%s of a %zu x %zu matrix: sides are at most %zu here", what, n, n,
                     side_max);
  if (find_exponent(matrix, n, stride, exponent)) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "%s of a %zu x %zu matrix that has an element that is not finite", what, n, n);
}

}  // namespace mxs
