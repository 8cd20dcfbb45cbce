// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz in fp32 over the table's plain products. It runs on the calling thread alone, and all tables give equal
// bits, so the result depends on neither thread count nor CPU.
//
// The update X = a X + (bA + cA^2) X is done in place, some columns at a time, so that one X is enough.
#include <algorithm>
#include <cstring>

#include "kernels/newton_schulz.hpp"

namespace mxs {

namespace {

constexpr size_t panel_columns = 128;
constexpr size_t tile = 32;

// target (columns x rows) = source (rows x columns) turned.
void turn(float *target, const float *source, size_t rows, size_t columns) {
  for (size_t row = 0; row < rows; row += tile)
    for (size_t column = 0; column < columns; column += tile)
      for (size_t c = column; c < std::min(column + tile, columns); ++c)
        for (size_t r = row; r < std::min(row + tile, rows); ++r) target[c * rows + r] = source[r * columns + c];
}

void mirror(float *matrix, size_t n) {
  for (size_t row = 0; row < n; row += tile)
    for (size_t column = 0; column <= row; column += tile)
      for (size_t r = row; r < std::min(row + tile, n); ++r)
        for (size_t c = column; c < std::min(column + tile, r); ++c) matrix[c * n + r] = matrix[r * n + c];
}

class ReferenceOrthogonalizer final : public Orthogonalizer {
 public:
  ReferenceOrthogonalizer(NewtonSchulzShape shape, mxs_muon_preset preset)
      : shape_(shape), n_(shape.n()), m_(shape.m()), recipe_(newton_schulz_recipe(preset)) {}

  uint64_t workspace_bytes() const override {
    return sizeof(float) * (n_ * m_ + 2 * n_ * n_ + n_ * std::min(panel_columns, m_));
  }
  void bind(std::byte *workspace) override {
    x_ = reinterpret_cast<float *>(workspace);
    gram_ = x_ + n_ * m_;
    square_ = gram_ + n_ * n_;
    panel_ = square_ + n_ * n_;
  }
  const char *backend() const override { return "reference"; }
  double flops() const override { return shape_.flops(); }

  mxs_status run(const float *source, float *target) override {
    NormScale scale;
    const mxs_status status = find_norm_scale(source, n_ * m_, recipe_.norm_floor, &scale);
    if (status != MXS_OK) return status;
    if (scale.zero) {
      std::fill_n(target, n_ * m_, 0.0f);
      return MXS_OK;
    }
    if (shape_.turned()) {
      turn(x_, source, m_, n_);
      scale_to_norm(x_, x_, n_ * m_, scale);
    } else {
      scale_to_norm(x_, source, n_ * m_, scale);
    }
    for (const NewtonSchulzRecipe::Step &step : recipe_.steps) {
      form_polynomial(step);
      advance(step.a);
    }
    if (shape_.turned())
      turn(target, x_, n_, m_);
    else
      std::memcpy(target, x_, n_ * m_ * sizeof(float));
    return MXS_OK;
  }

 private:
  // square = b A + c A^2. A and A^2 are symmetric: the lower halves are computed and mirrored.
  void form_polynomial(const NewtonSchulzRecipe::Step &step) {
    Product gram;
    gram.target = gram_, gram.left = x_, gram.right = x_;
    gram.rows = n_, gram.columns = n_, gram.inner = m_;
    gram.target_stride = n_, gram.left_stride = m_, gram.right_stride = m_;
    gram.right_turned = gram.lower = true;
    kernels().multiply(gram);
    mirror(gram_, n_);

    Product square;
    square.target = square_, square.left = gram_, square.right = gram_;
    square.rows = square.columns = square.inner = n_;
    square.target_stride = square.left_stride = square.right_stride = n_;
    square.lower = true;
    kernels().multiply(square);
    mirror(square_, n_);
    for (size_t i = 0; i < n_ * n_; ++i) square_[i] = step.b * gram_[i] + step.c * square_[i];
  }

  void advance(float a) {
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

}  // namespace

std::unique_ptr<Orthogonalizer> make_reference_orthogonalizer(NewtonSchulzShape shape, mxs_muon_preset preset) {
  return std::make_unique<ReferenceOrthogonalizer>(shape, preset);
}

}  // namespace mxs
