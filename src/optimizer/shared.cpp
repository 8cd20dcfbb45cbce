// SPDX-License-Identifier: Apache-2.0
#include "optimizer/shared.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/arithmetic.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

constexpr int members_max = 1024;
constexpr int square_floats = 4;  // of one rank: 53 bits in three numbers, and an exponent

void pack_square(double value, float *packed) {
  if (!std::isfinite(value)) {
    packed[0] = std::numeric_limits<float>::infinity();
    return;
  }
  int exponent = 0;
  double fraction = std::frexp(value, &exponent);
  for (int i = 0; i < 3; ++i) {
    packed[i] = static_cast<float>(fraction);
    fraction -= static_cast<double>(packed[i]);
  }
  packed[3] = static_cast<float>(exponent);
}

double unpack_square(const float *packed) {
  double fraction = 0;
  for (int i = 3; i-- > 0;) fraction += static_cast<double>(packed[i]);
  return std::ldexp(fraction, static_cast<int>(packed[3]));
}

}  // namespace

SharedNewtonSchulz::SharedNewtonSchulz(const SharedMatrix &shared, int64_t rows, int64_t columns)
    : shared_(shared), rows_(rows), columns_(columns) {}

mxs_status SharedNewtonSchulz::create(std::unique_ptr<SharedNewtonSchulz> *made, const SharedMatrix &shared,
                                      int64_t rows, int64_t columns, const NewtonSchulzRecipe &recipe,
                                      OrthogonalizerChoice choice, Team *team) {
  if (shared.member_count > members_max)
    return set_error(MXS_NOT_BUILT, "a matrix is shared by %d ranks; this release has at most %d",
                     shared.member_count, members_max);
  std::unique_ptr<SharedNewtonSchulz> result(new SharedNewtonSchulz(shared, rows, columns));
  SharedShape shape;
  shape.turned = result->is_tall();
  shape.n = std::min(shared.whole_rows, columns);
  shape.part = shape.turned ? rows : result->width(shared.member);
  const mxs_status status = make_shared_orthogonalizer(&result->orthogonalizer_, shape, recipe, choice, team,
                                                       {shared.sum, shared.context});
  if (status == MXS_OK) *made = std::move(result);
  return status;
}

int64_t SharedNewtonSchulz::largest_width() const {
  int64_t largest = 0;
  for (int member = 0; member < shared_.member_count; ++member) largest = std::max(largest, width(member));
  return largest;
}

uint64_t SharedNewtonSchulz::exchange_floats() const {
  if (is_tall()) return 0;
  return align_up(static_cast<uint64_t>(shared_.whole_rows * largest_width()), 16);
}

// A part in columns, what is exchanged, and what the kernels need.
uint64_t SharedNewtonSchulz::workspace_bytes() const {
  return 2 * sizeof(float) * exchange_floats() + align_up(orthogonalizer_->workspace_bytes(), 64);
}

mxs_status SharedNewtonSchulz::sum_squares(double own, double *total) const {
  float packed[members_max * square_floats] = {};
  pack_square(own, packed + shared_.member * square_floats);
  const mxs_status status =
      shared_.sum(shared_.context, packed, static_cast<uint64_t>(shared_.member_count) * square_floats);
  if (status != MXS_OK) return status;
  *total = 0;
  for (int member = 0; member < shared_.member_count; ++member)
    *total += unpack_square(packed + member * square_floats);
  return MXS_OK;
}

mxs_status SharedNewtonSchulz::run(float *update, double squares, std::byte *workspace) {
  double total = 0;
  mxs_status status = sum_squares(squares, &total);
  if (status != MXS_OK) return status;
  if (!std::isfinite(total))
    return set_error(MXS_INVALID_ARGUMENT, "a co-owner's part of the source of Newton-Schulz is not finite");
  float *const part = reinterpret_cast<float *>(workspace), *const exchange = part + exchange_floats();
  orthogonalizer_->bind(workspace + 2 * sizeof(float) * exchange_floats());
  if (is_tall()) {
    const size_t stride = static_cast<size_t>(columns_);
    const MatrixSource source = {update, stride};
    const MatrixTarget target = {update, stride};
    return orthogonalizer_->run(&source, &target, 1, &total);
  }
  status = rows_to_columns(update, part, exchange);
  const size_t stride = static_cast<size_t>(width(shared_.member));
  const MatrixSource source = {part, stride};
  const MatrixTarget target = {part, stride};
  if (status == MXS_OK) status = orthogonalizer_->run(&source, &target, 1, &total);
  return status == MXS_OK ? columns_to_rows(update, part, exchange) : status;
}

mxs_status SharedNewtonSchulz::rows_to_columns(const float *update, float *part, float *exchange) const {
  for (int member = 0; member < shared_.member_count; ++member) {
    const size_t wide = static_cast<size_t>(width(member)), count = static_cast<size_t>(shared_.whole_rows) * wide;
    std::fill_n(exchange, count, 0.0f);
    for (int64_t row = 0; row < rows_; ++row)
      std::memcpy(exchange + static_cast<size_t>(shared_.first_row + row) * wide,
                  update + row * columns_ + first_column(member), wide * sizeof(float));
    const mxs_status status = shared_.sum(shared_.context, exchange, count);
    if (status != MXS_OK) return status;
    if (member == shared_.member) std::memcpy(part, exchange, count * sizeof(float));
  }
  return MXS_OK;
}

mxs_status SharedNewtonSchulz::columns_to_rows(float *update, const float *part, float *exchange) const {
  for (int member = 0; member < shared_.member_count; ++member) {
    const size_t wide = static_cast<size_t>(width(member)), count = static_cast<size_t>(shared_.whole_rows) * wide;
    if (member == shared_.member)
      std::memcpy(exchange, part, count * sizeof(float));
    else
      std::fill_n(exchange, count, 0.0f);
    const mxs_status status = shared_.sum(shared_.context, exchange, count);
    if (status != MXS_OK) return status;
    for (int64_t row = 0; row < rows_; ++row)
      std::memcpy(update + row * columns_ + first_column(member),
                  exchange + static_cast<size_t>(shared_.first_row + row) * wide, wide * sizeof(float));
  }
  return MXS_OK;
}

}  // namespace mxs
