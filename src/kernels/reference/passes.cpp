// SPDX-License-Identifier: Apache-2.0
// The reference's element passes of optimizers: one element after the other. What becomes of each: elements.hpp.
#include "kernels/reference/passes.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/elements.hpp"

namespace mxs::reference {

namespace {

// The sum of squares of one chunk.
class Squares {
 public:
  void add(float value) {
    lanes_[next_++ % norm_lanes] += element::squared(value);
  }
  // Lane i gets lane i + 16, then i + 8, ... i + 1.
  double total() {
    for (size_t half = norm_lanes / 2; half > 0; half /= 2)
      for (size_t lane = 0; lane < half; ++lane) lanes_[lane] += lanes_[lane + half];
    return lanes_[0];
  }

 private:
  double lanes_[norm_lanes] = {};
  size_t next_ = 0;
};

// body(index) gives the value of each element; chunks are added one after the other.
template <class Body>
double sum_squares(size_t count, Body &&body) {
  double sum = 0.0;
  for (size_t first = 0; first < count; first += norm_chunk) {
    Squares squares;
    for (size_t i = first; i < std::min(first + norm_chunk, count); ++i) squares.add(body(i));
    sum += squares.total();
  }
  return sum;
}

}  // namespace

double sum_of_squares(const void *gradient, mxs_dtype dtype, float scale, size_t count, bool *not_finite) {
  return sum_squares(count, [&](size_t i) {
    const float scaled = element::load(gradient, dtype, i) * scale;
    if (!std::isfinite(scaled)) *not_finite = true;
    return scaled;
  });
}

double momentum(const MomentumPass &pass, const MomentumRun &run) {
  return sum_squares(run.count, [&](size_t i) { return element::momentum(pass, run, i); });
}

double direction(const AdamwPass &pass, const AdamwRun &run) {
  return sum_squares(run.count, [&](size_t i) { return run.update[i] = element::direction(pass, run, i); });
}

void apply(const ApplyPass &pass, const ApplyRun &run) {
  for (size_t i = 0; i < run.count; ++i) element::apply(pass, run.weights, i, run.update[i] * run.row_factor);
}

void adamw(const AdamwPass &pass, const AdamwRun &run) {
  for (size_t i = 0; i < run.count; ++i)
    element::apply(pass.apply, run.weights, i, element::direction(pass, run, i));
}

void scale_weights(const WeightForm &form, const WeightRun &run, float factor, size_t count) {
  for (size_t i = 0; i < count; ++i) element::scale_weight(form, run, i, factor);
}

void scale(float *values, float factor, size_t count) {
  for (size_t i = 0; i < count; ++i) values[i] *= factor;
}

}  // namespace mxs::reference
