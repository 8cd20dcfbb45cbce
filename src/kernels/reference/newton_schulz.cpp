// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz in fp32 over the table's plain products. A matrix is one thread's: of a batch of small ones each thread
// takes whole ones. All tables give equal bits, so the result depends on neither thread count nor CPU.
//
// The update X = a X + (bA + cA^2) X is done in place, some columns at a time, so that one X is enough.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/arithmetic.hpp"
#include "kernels/batch.hpp"
#include "kernels/linear.hpp"
#include "kernels/newton_schulz.hpp"

namespace mxs {

namespace {

constexpr size_t panel_columns = 128;
constexpr size_t tile = 32;

// target (columns x rows) = source (rows x columns) turned.
void turn(float *target, size_t target_stride, const float *source, size_t source_stride, size_t rows,
          size_t columns) {
  for (size_t row = 0; row < rows; row += tile)
    for (size_t column = 0; column < columns; column += tile)
      for (size_t c = column; c < std::min(column + tile, columns); ++c)
        for (size_t r = row; r < std::min(row + tile, rows); ++r)
          target[c * target_stride + r] = source[r * source_stride + c];
}

// One matrix at a time.
class Lane {
 public:
  Lane(NewtonSchulzShape shape, const NewtonSchulzRecipe &recipe)
      : shape_(shape), n_(shape.n()), m_(shape.m()), recipe_(recipe) {}

  size_t bytes() const {
    return align_up(sizeof(float) * (n_ * m_ + 2 * n_ * n_ + n_ * std::min(panel_columns, m_)), 64);
  }
  void bind(std::byte *workspace) {
    x_ = reinterpret_cast<float *>(workspace);
    gram_ = x_ + n_ * m_;
    square_ = gram_ + n_ * n_;
    panel_ = square_ + n_ * n_;
  }

  void orthogonalize(MatrixSource source, MatrixTarget target, const NormScale &scale) const {
    const size_t rows = static_cast<size_t>(shape_.rows), columns = static_cast<size_t>(shape_.columns);
    if (scale.zero) {
      for (size_t row = 0; row < rows; ++row) std::fill_n(target.data + row * target.row_stride, columns, 0.0f);
      return;
    }
    if (shape_.turned())
      turn(x_, rows, source.data, source.row_stride, rows, columns);
    else
      for (size_t row = 0; row < rows; ++row)
        std::memcpy(x_ + row * columns, source.data + row * source.row_stride, columns * sizeof(float));
    scale_to_norm(x_, x_, n_ * m_, scale);
    for (const NewtonSchulzRecipe::Step &step : recipe_.steps) {
      form_polynomial(step);
      advance(step.a);
    }
    if (shape_.turned())
      turn(target.data, target.row_stride, x_, m_, n_, m_);
    else
      for (size_t row = 0; row < rows; ++row)
        std::memcpy(target.data + row * target.row_stride, x_ + row * columns, columns * sizeof(float));
  }

 private:
  // square = b A + c A^2. A and A^2 are symmetric: the lower halves are computed and mirrored.
  void form_polynomial(const NewtonSchulzRecipe::Step &step) const {
    Product gram;
    gram.target = gram_, gram.left = x_, gram.right = x_;
    gram.rows = n_, gram.columns = n_, gram.inner = m_;
    gram.target_stride = n_, gram.left_stride = m_, gram.right_stride = m_;
    gram.right_turned = gram.lower = true;
    kernels().multiply(gram);
    mirror(gram_, n_, 0, n_, 0, n_);

    Product square;
    square.target = square_, square.left = gram_, square.right = gram_;
    square.rows = square.columns = square.inner = n_;
    square.target_stride = square.left_stride = square.right_stride = n_;
    square.lower = true;
    kernels().multiply(square);
    mirror(square_, n_, 0, n_, 0, n_);
    for (size_t i = 0; i < n_ * n_; ++i) square_[i] = step.b * gram_[i] + step.c * square_[i];
  }

  void advance(float a) const {
    for (size_t first = 0; first < m_; first += panel_columns) {
      const size_t width = std::min(panel_columns, m_ - first);
      Product product;
      product.target = panel_, product.left = square_, product.right = x_ + first;
      product.rows = n_, product.columns = width, product.inner = n_;
      product.target_stride = width, product.left_stride = n_, product.right_stride = m_;
      kernels().multiply(product);
      for (size_t row = 0; row < n_; ++row) {
        float *const x = x_ + row * m_ + first;
        const float *const change = panel_ + row * width;
        for (size_t i = 0; i < width; ++i) x[i] = a * x[i] + change[i];
      }
    }
  }

  NewtonSchulzShape shape_;
  size_t n_, m_;
  const NewtonSchulzRecipe &recipe_;
  float *x_ = nullptr, *gram_ = nullptr, *square_ = nullptr, *panel_ = nullptr;
};

class ReferenceOrthogonalizer final : public Orthogonalizer {
 public:
  ReferenceOrthogonalizer(NewtonSchulzShape shape, NewtonSchulzRecipe recipe, Team *team)
      : shape_(shape), recipe_(std::move(recipe)), team_(team) {
    const bool small = is_small(shape);
    for (int member = 0; member < (small ? team->size() : 1); ++member) lanes_.emplace_back(shape, recipe_);
  }

  uint64_t workspace_bytes() const override { return lanes_.size() * lanes_[0].bytes(); }
  void bind(std::byte *workspace) override {
    for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].bind(workspace + i * lanes_[0].bytes());
  }
  const char *backend() const override { return "reference standard"; }
  mxs_dtype product_dtype() const override { return MXS_F32; }
  double flops() const override { return shape_.flops(recipe_.steps.size()); }

  mxs_status run(const MatrixSource *sources, const MatrixTarget *targets, size_t count,
                 const double *squares) override {
    BatchSquares sums;
    const mxs_status status = sums.form(shape_, sources, count, squares, team_);
    if (status != MXS_OK) return status;
    const auto orthogonalize = [&](size_t i, size_t lane) {
      lanes_[lane].orthogonalize(sources[i], targets[i], norm_scale(sums.of(i), recipe_));
    };
    if (lanes_.size() > 1)
      team_->run(count, [&](size_t i, int member) { orthogonalize(i, static_cast<size_t>(member)); });
    else
      for (size_t i = 0; i < count; ++i) orthogonalize(i, 0);
    return MXS_OK;
  }

 private:
  NewtonSchulzShape shape_;
  const NewtonSchulzRecipe recipe_;
  Team *team_;
  std::vector<Lane> lanes_;
};

}  // namespace

std::unique_ptr<Orthogonalizer> make_reference_orthogonalizer(NewtonSchulzShape shape, const NewtonSchulzRecipe &recipe,
                                                              Team *team) {
  return std::make_unique<ReferenceOrthogonalizer>(shape, recipe, team);
}

}  // namespace mxs
