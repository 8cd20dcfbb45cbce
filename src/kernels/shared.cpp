// SPDX-License-Identifier: Apache-2.0
// In fp32, by the products of linear.hpp.
#include "kernels/shared.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "kernels/linear.hpp"
#include "kernels/newton_schulz.hpp"

namespace mxs {

namespace {

// Of the part's long side at a time: the product goes through a panel, so that one copy of the part is enough.
constexpr size_t panel_side = 128;

class SharedOrthogonalizer final : public Orthogonalizer {
 public:
  SharedOrthogonalizer(const Linear &linear, SharedShape shape, NewtonSchulzRecipe recipe, Team *team, GramSum sum)
      : linear_(linear), n_(static_cast<size_t>(shape.n)), part_(static_cast<size_t>(shape.part)),
        turned_(shape.turned), recipe_(std::move(recipe)), team_(team), sum_(sum),
        name_(std::string(linear.name) + " shared") {}

  uint64_t workspace_bytes() const override {
    return sizeof(float) * (part_floats() + 2 * square_floats() + panel_floats());
  }
  void bind(std::byte *workspace) override {
    x_ = reinterpret_cast<float *>(workspace);
    gram_ = x_ + part_floats();
    polynomial_ = gram_ + square_floats();
    panel_ = polynomial_ + square_floats();
  }
  const char *backend() const override { return name_.c_str(); }
  mxs_dtype product_dtype() const override { return MXS_F32; }
  double flops() const override {
    const double n = static_cast<double>(n_), m = static_cast<double>(part_);
    return static_cast<double>(recipe_.steps.size()) * (4 * m * n * n + 2 * n * n * n);
  }

  mxs_status run(const MatrixSource *sources, const MatrixTarget *targets, size_t count,
                 const double *squares) override {
    if (count != 1 || !squares)
      return set_error(MXS_INTERNAL, "a shared matrix is stepped alone, by the squares of all its ranks");
    const NormScale scale = norm_scale(squares[0], recipe_);
    load(sources[0], scale);
    if (!scale.zero)
      for (const NewtonSchulzRecipe::Step &step : recipe_.steps) {
        const mxs_status status = form_gram();
        if (status != MXS_OK) return status;
        form_polynomial(linear_, n_, polynomial_, gram_, step.b, step.c, team_);
        advance(step.a);
      }
    for (size_t row = 0; row < rows(); ++row)
      std::memcpy(targets[0].data + row * targets[0].row_stride, x_ + row * columns(), columns() * sizeof(float));
    return MXS_OK;
  }

 private:
  size_t rows() const { return turned_ ? part_ : n_; }
  size_t columns() const { return turned_ ? n_ : part_; }
  size_t part_floats() const { return align_up(n_ * part_, 16); }
  size_t square_floats() const { return align_up(n_ * n_, 16); }
  size_t panel_floats() const { return n_ * panel_side; }

  void load(MatrixSource source, const NormScale &scale) {
    for (size_t row = 0; row < rows(); ++row) {
      if (scale.zero)
        std::fill_n(x_ + row * columns(), columns(), 0.0f);
      else
        scale_to_norm(x_ + row * columns(), source.data + row * source.row_stride, columns(), scale);
    }
  }

  // The lower halves of all ranks' Gram matrices travel, row behind row.
  mxs_status form_gram() {
    LinearUpdate update;
    update.n = n_;
    update.inner = part_;
    update.factor = {x_, columns(), turned_};
    update.target = gram_;
    update.target_stride = n_;
    linear_.update(update, team_);
    float *const packed = polynomial_;
    const auto first_of = [](size_t row) { return row * (row + 1) / 2; };
    for (size_t row = 0; row < n_; ++row)
      std::memcpy(packed + first_of(row), gram_ + row * n_, (row + 1) * sizeof(float));
    const mxs_status status = sum_.sum(sum_.context, packed, first_of(n_));
    if (status != MXS_OK) return status;
    for (size_t row = 0; row < n_; ++row)
      std::memcpy(gram_ + row * n_, packed + first_of(row), (row + 1) * sizeof(float));
    mirror(gram_, n_, 0, n_, 0, n_);
    return MXS_OK;
  }

  void advance(float a) {
    for (size_t first = 0; first < part_; first += panel_side) {
      const size_t side = std::min(panel_side, part_ - first);
      LinearProduct product;
      product.rows = turned_ ? side : n_;
      product.columns = turned_ ? n_ : side;
      product.inner = n_;
      float *const x = turned_ ? x_ + first * n_ : x_ + first;
      const LinearFactor part = {x, columns(), false}, polynomial = {polynomial_, n_, false};
      product.left = turned_ ? part : polynomial;
      product.right = turned_ ? polynomial : part;
      product.target = panel_;
      product.target_stride = product.columns;
      linear_.multiply(product, team_);
      for (size_t row = 0; row < product.rows; ++row)
        for (size_t column = 0; column < product.columns; ++column) {
          float &value = x[row * columns() + column];
          value = a * value + panel_[row * product.columns + column];
        }
    }
  }

  const Linear &linear_;
  size_t n_, part_;
  bool turned_;
  NewtonSchulzRecipe recipe_;
  Team *team_;
  GramSum sum_;
  std::string name_;
  float *x_ = nullptr, *gram_ = nullptr, *polynomial_ = nullptr, *panel_ = nullptr;
};

}  // namespace

mxs_status make_shared_linear_orthogonalizer(std::unique_ptr<Orthogonalizer> *orthogonalizer, SharedShape shape,
                                             const NewtonSchulzRecipe &recipe, mxs_backend backend, Team *team,
                                             GramSum sum) {
  const Linear *linear = nullptr;
  const mxs_status status = linear_of(backend, &linear);
  if (status != MXS_OK) return status;
  *orthogonalizer = std::make_unique<SharedOrthogonalizer>(*linear, shape, recipe, team, sum);
  return MXS_OK;
}

}  // namespace mxs
