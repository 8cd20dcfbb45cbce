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

class SharedNewtonSchulz final : public Orthogonalizer {
 public:
  SharedNewtonSchulz(const SharedMatrix &shared, int64_t rows, int64_t columns)
      : shared_(shared), rows_(rows), columns_(columns) {}

  mxs_status prepare(const NewtonSchulzRecipe &recipe, OrthogonalizerChoice choice, Team *team) {
    SharedShape shape;
    shape.turned = is_tall();
    shape.n = std::min(shared_.whole_rows, columns_);
    shape.part = shape.turned ? rows_ : width(shared_.member);
    return make_shared_orthogonalizer(&inner_, shape, recipe, choice, team, {shared_.sum, shared_.context});
  }

  // A part in columns, what is exchanged, and what the kernels need.
  uint64_t workspace_bytes() const override {
    return 2 * sizeof(float) * exchange_floats() + align_up(inner_->workspace_bytes(), 64);
  }
  void bind(std::byte *workspace) override {
    part_ = reinterpret_cast<float *>(workspace);
    exchange_ = part_ + exchange_floats();
    inner_->bind(workspace + 2 * sizeof(float) * exchange_floats());
  }
  const char *backend() const override { return inner_->backend(); }
  mxs_dtype product_dtype() const override { return inner_->product_dtype(); }
  double flops() const override { return inner_->flops(); }

  mxs_status run(const MatrixSource *sources, const MatrixTarget *targets, size_t count,
                 const double *squares) override {
    const size_t stride = static_cast<size_t>(columns_);
    if (count != 1 || !squares || sources[0].row_stride != stride || targets[0].row_stride != stride)
      return set_error(MXS_INTERNAL, "a shared matrix is stepped alone, dense, with its squares known");
    double total = 0;
    const mxs_status status = sum_squares(squares[0], &total);
    if (status != MXS_OK) return status;
    if (!std::isfinite(total))
      return set_error(MXS_INVALID_ARGUMENT, "a co-owner's part of the source of Newton-Schulz is not finite");
    return is_tall() ? inner_->run(sources, targets, 1, &total) : run_wide(sources[0].data, targets[0].data, total);
  }

 private:
  bool is_tall() const { return shared_.whole_rows >= columns_; }
  int64_t first_column(int member) const { return columns_ * member / shared_.member_count; }
  int64_t width(int member) const { return first_column(member + 1) - first_column(member); }
  int64_t largest_width() const { return (columns_ - 1) / shared_.member_count + 1; }
  uint64_t exchange_floats() const {
    return is_tall() ? 0 : align_up(static_cast<uint64_t>(shared_.whole_rows * largest_width()), 16);
  }

  mxs_status sum_squares(double own, double *total) const;
  mxs_status run_wide(const float *source, float *target, double squares);
  mxs_status rows_to_columns(const float *rows) const;
  mxs_status columns_to_rows(float *rows) const;

  SharedMatrix shared_;
  int64_t rows_, columns_;
  std::unique_ptr<Orthogonalizer> inner_;
  float *part_ = nullptr, *exchange_ = nullptr;
};

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

mxs_status SharedNewtonSchulz::run_wide(const float *source, float *target, double squares) {
  mxs_status status = rows_to_columns(source);
  const size_t stride = static_cast<size_t>(width(shared_.member));
  const MatrixSource part_source = {part_, stride};
  const MatrixTarget part_target = {part_, stride};
  if (status == MXS_OK) status = inner_->run(&part_source, &part_target, 1, &squares);
  return status == MXS_OK ? columns_to_rows(target) : status;
}

mxs_status SharedNewtonSchulz::rows_to_columns(const float *rows) const {
  for (int member = 0; member < shared_.member_count; ++member) {
    const size_t wide = static_cast<size_t>(width(member)), count = static_cast<size_t>(shared_.whole_rows) * wide;
    std::fill_n(exchange_, count, 0.0f);
    for (int64_t row = 0; row < rows_; ++row)
      std::memcpy(exchange_ + static_cast<size_t>(shared_.first_row + row) * wide,
                  rows + row * columns_ + first_column(member), wide * sizeof(float));
    const mxs_status status = shared_.sum(shared_.context, exchange_, count);
    if (status != MXS_OK) return status;
    if (member == shared_.member) std::memcpy(part_, exchange_, count * sizeof(float));
  }
  return MXS_OK;
}

mxs_status SharedNewtonSchulz::columns_to_rows(float *rows) const {
  for (int member = 0; member < shared_.member_count; ++member) {
    const size_t wide = static_cast<size_t>(width(member)), count = static_cast<size_t>(shared_.whole_rows) * wide;
    if (member == shared_.member)
      std::memcpy(exchange_, part_, count * sizeof(float));
    else
      std::fill_n(exchange_, count, 0.0f);
    const mxs_status status = shared_.sum(shared_.context, exchange_, count);
    if (status != MXS_OK) return status;
    for (int64_t row = 0; row < rows_; ++row)
      std::memcpy(rows + row * columns_ + first_column(member),
                  exchange_ + static_cast<size_t>(shared_.first_row + row) * wide, wide * sizeof(float));
  }
  return MXS_OK;
}

}  // namespace

mxs_status make_shared_newton_schulz(std::unique_ptr<Orthogonalizer> *orthogonalizer, const SharedMatrix &shared,
                                     int64_t rows, int64_t columns, const NewtonSchulzRecipe &recipe,
                                     OrthogonalizerChoice choice, Team *team) {
  if (shared.member_count > members_max)
    return set_error(MXS_NOT_BUILT, "a matrix is shared by %d ranks; this release has at most %d",
                     shared.member_count, members_max);
  auto made = std::make_unique<SharedNewtonSchulz>(shared, rows, columns);
  const mxs_status status = made->prepare(recipe, choice, team);
  if (status == MXS_OK) *orthogonalizer = std::move(made);
  return status;
}

}  // namespace mxs
