// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz in fp32 over a table of linear.hpp, in two arrangements of the same polynomials:
//
//   standard   each step  A = X X^T,  B = bA + cA^2,  X = aX + BX
//   gram       R = X X^T once, and again before the third step; all steps act on n x n matrices that are polynomials
//              of R, so they are symmetric and commute, and every product but Q X is half a product:
//                Z = bR + cR^2,  Q = Q(aI + Z),  R = (aI + Z) R (aI + Z)
//              X = QX before the third step and after the last. aI is never added to a matrix: beside it, Z's last
//              bits would be lost.
//
// Gram takes 14 n^3 + 6 m n^2 products' flops where standard takes 5 n^3 + 15 m n^2, so it pays from m = 2n or so on.
// There its error is that of standard, 1e-6 to 2e-6 for Gaussians. Nearer to the square the Gram matrix loses digits of
// small singular values: 1.5e-5 at 64 x 64 (the oracle of tests/kernels/newton_schulz.cpp).
//
// X is advanced in place, some columns at a time, through squares that are free by then.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/arithmetic.hpp"
#include "kernels/batch.hpp"
#include "kernels/linear.hpp"
#include "kernels/newton_schulz.hpp"

namespace mxs {

namespace {

// Before these steps, counted from 0, the Gram matrix is formed anew: its spurious negative eigenvalues, some -1e-7 in
// fp32, grow by (aI + Z)^2 at each step. Published sets have five steps and restart once; longer ones go on in threes.
constexpr size_t restart_first = 2, restart_interval = 3;
constexpr size_t tile = 32;

// Squares of few rows hold only few columns of X at a time: 3 of 1 x 4096.
constexpr size_t panel_rows_least = 32, panel_columns = 128;

struct Buffers {
  float *x;
  float *squares[4];  // n x n; standard has two
  float *panel;       // n x panel_columns, where squares hold less
};

class LinearOrthogonalizer final : public Orthogonalizer {
 public:
  LinearOrthogonalizer(NewtonSchulzShape shape, NewtonSchulzRecipe recipe, bool gram, const Linear &linear, Team *team)
      : shape_(shape), n_(shape.n()), m_(shape.m()), recipe_(std::move(recipe)), linear_(linear), team_(team),
        gram_(gram), name_(std::string(linear.name) + (gram ? " gram" : " standard")) {
    buffers_.resize(is_small(shape) ? static_cast<size_t>(team->size()) : 1);
  }

  uint64_t workspace_bytes() const override {
    return buffers_.size() * (x_bytes() + square_count() * square_bytes() + panel_bytes());
  }

  void bind(std::byte *workspace) override {
    const auto take = [&](size_t bytes) {
      float *const taken = reinterpret_cast<float *>(workspace);
      workspace += bytes;
      return taken;
    };
    for (Buffers &buffers : buffers_) {
      buffers.x = take(x_bytes());
      for (size_t i = 0; i < square_count(); ++i) buffers.squares[i] = take(square_bytes());
      if (panel_bytes() > 0) buffers.panel = take(panel_bytes());
    }
  }

  const char *backend() const override { return name_.c_str(); }
  mxs_dtype product_dtype() const override { return MXS_F32; }
  double flops() const override { return shape_.flops(recipe_.steps.size()); }

  mxs_status run(const MatrixSource *sources, const MatrixTarget *targets, size_t count,
                 const double *squares) override {
    BatchSquares sums;
    const mxs_status status = sums.form(shape_, sources, count, squares, team_);
    if (status != MXS_OK) return status;
    if (buffers_.size() > 1 && count > 1) {
      team_->run(count, [&](size_t i, int member) {
        orthogonalize(buffers_[static_cast<size_t>(member)], sources[i], targets[i],
                      norm_scale(sums.of(i), recipe_), nullptr);
      });
      return MXS_OK;
    }
    for (size_t i = 0; i < count; ++i)
      orthogonalize(buffers_[0], sources[i], targets[i], norm_scale(sums.of(i), recipe_), team_);
    return MXS_OK;
  }

 private:
  size_t x_bytes() const { return align_up(n_ * m_ * sizeof(float), 64); }
  size_t square_bytes() const { return align_up(n_ * n_ * sizeof(float), 64); }
  size_t square_count() const { return gram_ ? 4 : 2; }
  size_t panel_bytes() const {
    return n_ < panel_rows_least ? align_up(n_ * std::min(panel_columns, m_) * sizeof(float), 64) : 0;
  }

  void orthogonalize(const Buffers &own, MatrixSource source, MatrixTarget target, const NormScale &scale,
                     Team *team) const {
    if (scale.zero) {
      const size_t rows = static_cast<size_t>(shape_.rows), columns = static_cast<size_t>(shape_.columns);
      for (size_t row = 0; row < rows; ++row) std::fill_n(target.data + row * target.row_stride, columns, 0.0f);
      return;
    }
    load(own.x, source, scale, team);
    if (gram_)
      run_gram(own, team);
    else
      run_standard(own, team);
    store(target, own.x, team);
  }

  void run_standard(const Buffers &own, Team *team) const {
    float *const a = own.squares[0], *const polynomial = own.squares[1];
    for (const NewtonSchulzRecipe::Step &step : recipe_.steps) {
      form_gram(a, own.x, team);
      form_polynomial(linear_, n_, polynomial, a, step.b, step.c, team);
      advance(own, step.a, polynomial, a, 1, team);
    }
  }

  void run_gram(const Buffers &own, Team *team) const {
    float *r = own.squares[0], *z = own.squares[1], *spare = own.squares[2], *q = own.squares[3];
    for (size_t i = 0; i < recipe_.steps.size(); ++i) {
      const NewtonSchulzRecipe::Step &step = recipe_.steps[i];
      const bool starts = i == 0 || is_restart(i);
      if (starts) {
        if (i > 0) apply(own, q, team);
        r = own.squares[0], z = own.squares[1], spare = own.squares[2], q = own.squares[3];
        form_gram(r, own.x, team);
      }
      form_polynomial(linear_, n_, z, r, step.b, step.c, team);
      if (starts) {
        std::memcpy(q, z, n_ * n_ * sizeof(float));
        for (size_t k = 0; k < n_; ++k) q[k * (n_ + 1)] += step.a;
      } else {
        multiply_by_polynomial(spare, q, step.a, z, team);
        std::swap(spare, q);
      }
      if (i + 1 == recipe_.steps.size() || is_restart(i + 1)) continue;
      multiply_by_polynomial(spare, r, step.a, z, team);
      multiply_by_polynomial(r, spare, step.a, z, team);
    }
    apply(own, q, team);
  }

  static bool is_restart(size_t step) {
    return step >= restart_first && (step - restart_first) % restart_interval == 0;
  }

  // gram = X X^T
  void form_gram(float *gram, const float *x, Team *team) const {
    LinearUpdate update;
    update.n = n_, update.inner = m_;
    update.factor = {x, m_, false};
    update.target = gram, update.target_stride = n_;
    linear_.update(update, team);
  }

  // target = source (a I + Z); the two commute.
  void multiply_by_polynomial(float *target, const float *source, float a, const float *z, Team *team) const {
    std::memcpy(target, source, n_ * n_ * sizeof(float));
    LinearProduct product;
    product.rows = product.columns = product.inner = n_;
    product.left = {source, n_, false}, product.right = {z, n_, false};
    product.target = target, product.target_stride = n_;
    product.beta = a;
    product.symmetric = true;
    linear_.multiply(product, team);
  }

  // X = QX. The other three squares are free; they lie side by side once Q is the last.
  void apply(const Buffers &own, const float *q, Team *team) const {
    float *const last = own.squares[3];
    if (q != last) std::memcpy(last, q, n_ * n_ * sizeof(float));
    advance(own, 0.0f, last, own.squares[0], 3, team);
  }

  // X = a X + factor X, as many columns at a time as the panel holds, or free squares where there is none.
  void advance(const Buffers &own, float a, const float *factor, float *free, size_t free_squares, Team *team) const {
    const bool has_panel = panel_bytes() > 0;
    const size_t width_max = has_panel ? panel_columns : free_squares * n_;
    float *const x = own.x;
    if (has_panel) free = own.panel;
    for (size_t first = 0; first < m_; first += width_max) {
      const size_t width = std::min(width_max, m_ - first);
      run_parts(team, divide_up(n_, tile), [&](size_t part) {
        for (size_t row = part * tile; row < std::min((part + 1) * tile, n_); ++row)
          std::memcpy(free + row * width, x + row * m_ + first, width * sizeof(float));
      });
      LinearProduct product;
      product.rows = product.inner = n_, product.columns = width;
      product.left = {factor, n_, false}, product.right = {free, width, false};
      product.target = x + first, product.target_stride = m_;
      product.beta = a;
      linear_.multiply(product, team);
    }
  }

  // Strips of 32 rows of X, which are columns of a source that is turned.
  void load(float *x, MatrixSource source, const NormScale &scale, Team *team) const {
    run_parts(team, divide_up(n_, tile), [&](size_t part) {
      const size_t first = part * tile, last = std::min(first + tile, n_);
      if (shape_.turned()) {
        for (size_t column = 0; column < m_; column += tile)
          for (size_t c = column; c < std::min(column + tile, m_); ++c)
            for (size_t r = first; r < last; ++r) x[r * m_ + c] = source.data[c * source.row_stride + r];
        scale_to_norm(x + first * m_, x + first * m_, (last - first) * m_, scale);
      } else {
        for (size_t r = first; r < last; ++r)
          scale_to_norm(x + r * m_, source.data + r * source.row_stride, m_, scale);
      }
    });
  }

  void store(MatrixTarget target, const float *x, Team *team) const {
    run_parts(team, divide_up(n_, tile), [&](size_t part) {
      const size_t first = part * tile, last = std::min(first + tile, n_);
      if (!shape_.turned()) {
        for (size_t r = first; r < last; ++r)
          std::memcpy(target.data + r * target.row_stride, x + r * m_, m_ * sizeof(float));
        return;
      }
      for (size_t c = 0; c < m_; ++c)
        for (size_t r = first; r < last; ++r) target.data[c * target.row_stride + r] = x[r * m_ + c];
    });
  }

  NewtonSchulzShape shape_;
  size_t n_, m_;
  NewtonSchulzRecipe recipe_;
  const Linear &linear_;
  Team *team_;
  bool gram_;
  std::string name_;
  std::vector<Buffers> buffers_;
};

}  // namespace

std::unique_ptr<Orthogonalizer> make_linear_orthogonalizer(NewtonSchulzShape shape, const NewtonSchulzRecipe &recipe,
                                                           bool gram, const Linear &linear, Team *team) {
  return std::make_unique<LinearOrthogonalizer>(shape, recipe, gram, linear, team);
}

}  // namespace mxs
