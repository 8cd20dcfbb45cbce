// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz in fp32 by our own products: the bits of the host's reference, whose arrangements these are
// (kernels/reference/newton_schulz.cpp, kernels/linear_newton_schulz.cpp). All matrices of a call go together; each
// line of an arrangement is one launch, out of place.
#include <utility>

#include "base/arithmetic.hpp"
#include "cuda/linear_launches.hpp"
#include "cuda/orthogonalizer.hpp"

namespace mxs {

namespace {

constexpr uint64_t border = 256;

// As the host's: before these steps the Gram matrix is formed anew.
constexpr size_t restart_first = 2, restart_interval = 3;
// As the host's reference decides it.
constexpr uint64_t gram_rows_below = 32, gram_sides_least = 3;

bool takes_gram(const NewtonSchulzShape &shape, mxs_algorithm algorithm) {
  if (algorithm != MXS_ALGORITHM_AUTO) return algorithm == MXS_ALGORITHM_GRAM;
  return shape.n() < gram_rows_below && shape.m() >= gram_sides_least * shape.n();
}

// One call: where it is, and the first failure, after which nothing is launched.
struct Call {
  float *matrices;
  uint32_t count;
  const double *squares;
  const int32_t *skip;
  DeviceStream stream;
  mxs_status status = MXS_OK;
};

class ReferenceDeviceOrthogonalizer final : public DeviceOrthogonalizer {
 public:
  ReferenceDeviceOrthogonalizer(Device &device, const DeviceNewtonSchulz &wanted)
      : device_(device), wanted_(wanted), gram_(takes_gram(wanted.shape, wanted.algorithm)), n_(wanted.shape.n()),
        m_(wanted.shape.m()) {}

  uint64_t workspace_bytes() const override { return 2 * x_bytes() + (gram_ ? 4 : 2) * square_bytes(); }
  const char *backend() const override { return gram_ ? "reference gram" : "reference standard"; }
  mxs_dtype product_dtype() const override { return MXS_F32; }

  mxs_status enqueue(float *matrices, uint64_t count, const double *squares, const int32_t *skip,
                     std::byte *workspace, DeviceStream stream) override {
    Call call{matrices, static_cast<uint32_t>(count), squares, skip, stream};
    float *x = reinterpret_cast<float *>(workspace), *spare = reinterpret_cast<float *>(workspace + x_bytes());
    float *const rest = reinterpret_cast<float *>(workspace + 2 * x_bytes());
    move(call, x, true);
    if (gram_)
      run_gram(call, &x, &spare, rest);
    else
      run_standard(call, &x, &spare, rest);
    move(call, x, false);
    return call.status;
  }

 private:
  uint64_t x_bytes() const { return align_up(wanted_.count_most * n_ * m_ * sizeof(float), border); }
  uint64_t square_bytes() const { return align_up(wanted_.count_most * n_ * n_ * sizeof(float), border); }

  void move(Call &call, float *x, bool loads) const {
    const uint64_t rows = static_cast<uint64_t>(wanted_.shape.rows);
    const uint64_t columns = static_cast<uint64_t>(wanted_.shape.columns);
    MoveArguments a;
    a.rows = rows, a.columns = columns;
    a.turned = wanted_.shape.turned();
    a.norm = {call.squares, wanted_.recipe.epsilon, wanted_.recipe.safety, wanted_.recipe.adds_epsilon};
    a.count = call.count, a.skip = call.skip;
    a.source = loads ? call.matrices : x, a.target = loads ? x : call.matrices;
    a.source_stride = loads ? columns : m_, a.target_stride = loads ? m_ : columns;
    a.source_matrix = a.target_matrix = rows * columns;
    if (call.status == MXS_OK)
      call.status = loads ? launch_load(device_, a, call.stream) : launch_store(device_, a, call.stream);
  }

  MultiplyArguments product_of(const Call &call, float *target, const float *left, uint64_t left_columns,
                               const float *right, uint64_t columns) const {
    MultiplyArguments a;
    a.rows = n_, a.columns = columns, a.inner = left_columns;
    a.left = {left, left_columns, n_ * left_columns, 0};
    a.right = {right, columns, left_columns * columns, 0};
    a.target = target, a.target_stride = columns, a.target_matrix = n_ * columns;
    a.count = call.count, a.skip = call.skip;
    return a;
  }
  void launch(Call &call, const MultiplyArguments &a) const {
    if (call.status == MXS_OK) call.status = launch_multiply(device_, a, call.stream);
  }

  // gram = X X^T
  void form_gram(Call &call, float *gram, const float *x) const {
    MultiplyArguments a = product_of(call, gram, x, m_, x, n_);
    a.right = {x, m_, n_ * m_, 1};
    a.symmetric = 1;
    launch(call, a);
  }
  // target = alpha * left * right + beta * addend, n x n and symmetric
  void multiply_squares(Call &call, float *target, float alpha, const float *left, const float *right, float beta,
                        const float *addend) const {
    MultiplyArguments a = product_of(call, target, left, n_, right, n_);
    a.alpha = alpha, a.beta = beta;
    a.addend = addend, a.addend_stride = n_, a.addend_matrix = n_ * n_;
    a.symmetric = 1;
    launch(call, a);
  }
  // X = factor X + a X; of a gram's end without the latter
  void advance(Call &call, float **x, float **spare, const float *factor, float beta, bool adds) const {
    MultiplyArguments a = product_of(call, *spare, factor, n_, *x, m_);
    a.beta = beta;
    if (adds) a.addend = *x, a.addend_stride = m_, a.addend_matrix = n_ * m_;
    launch(call, a);
    std::swap(*x, *spare);
  }

  void run_standard(Call &call, float **x, float **spare, float *rest) const {
    float *const gram = rest, *const polynomial = rest + square_bytes() / sizeof(float);
    for (const NewtonSchulzRecipe::Step &step : wanted_.recipe.steps) {
      form_gram(call, gram, *x);
      multiply_squares(call, polynomial, step.c, gram, gram, step.b, gram);
      advance(call, x, spare, polynomial, step.a, true);
    }
  }

  static bool is_restart(size_t step) {
    return step >= restart_first && (step - restart_first) % restart_interval == 0;
  }

  void run_gram(Call &call, float **x, float **spare, float *rest) const {
    const uint64_t square = square_bytes() / sizeof(float);
    float *r = rest, *z = rest + square, *other = rest + 2 * square, *q = rest + 3 * square;
    const std::vector<NewtonSchulzRecipe::Step> &steps = wanted_.recipe.steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool starts = i == 0 || is_restart(i);
      if (starts) {
        if (i > 0) advance(call, x, spare, q, 0, false);
        form_gram(call, r, *x);
      }
      multiply_squares(call, z, steps[i].c, r, r, steps[i].b, steps[i].b == 0 ? nullptr : r);
      if (starts) {
        add_diagonal(call, q, z, steps[i].a);
      } else {
        multiply_squares(call, other, 1, q, z, steps[i].a, steps[i].a == 0 ? nullptr : q);
        std::swap(other, q);
      }
      if (i + 1 == steps.size() || is_restart(i + 1)) continue;
      multiply_squares(call, other, 1, r, z, steps[i].a, steps[i].a == 0 ? nullptr : r);
      multiply_squares(call, r, 1, other, z, steps[i].a, steps[i].a == 0 ? nullptr : other);
    }
    advance(call, x, spare, q, 0, false);
  }

  void add_diagonal(Call &call, float *target, const float *source, float a) const {
    AddDiagonalArguments arguments;
    arguments.target = target, arguments.source = source;
    arguments.a = a, arguments.n = n_, arguments.count = call.count, arguments.skip = call.skip;
    if (call.status == MXS_OK) call.status = launch_add_diagonal(device_, arguments, call.stream);
  }

  Device &device_;
  const DeviceNewtonSchulz wanted_;
  const bool gram_;
  const uint64_t n_, m_;
};

}  // namespace

std::unique_ptr<DeviceOrthogonalizer> make_reference_device_orthogonalizer(Device &device,
                                                                           const DeviceNewtonSchulz &wanted) {
  return std::make_unique<ReferenceDeviceOrthogonalizer>(device, wanted);
}

}  // namespace mxs
