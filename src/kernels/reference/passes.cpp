// SPDX-License-Identifier: Apache-2.0
// The reference's element passes of optimizers: one element after the other, as the formulas stand in passes.hpp.
#include "kernels/reference/passes.hpp"

#include <bit>
#include <cmath>

#include "base/dtype.hpp"
#include "kernels/kernels.hpp"
#include "kernels/philox.hpp"

namespace mxs::reference {

namespace {

float load(const void *source, mxs_dtype dtype, size_t index) {
  if (dtype == MXS_F32) return static_cast<const float *>(source)[index];
  const uint16_t bits = static_cast<const uint16_t *>(source)[index];
  return dtype == MXS_BF16 ? float_from_bf16(bits) : float_from_f16(bits);
}

float lerp(float start, float end, Lerp lerp) {
  const float difference = end - start;
  return lerp.from_end ? end - difference * lerp.weight : start + difference * lerp.weight;
}

// The sum of squares of one chunk.
class Squares {
 public:
  void add(float value) {
    const double wide = static_cast<double>(value);
    lanes_[next_++ % norm_lanes] += wide * wide;
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

uint32_t random16(const RandomBits &random, uint64_t element) {
  const uint64_t block = element / 128 * 16 + element % 16;
  uint32_t words[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), random.counter[0],
                       random.counter[1]};
  philox(words, random.key[0], random.key[1]);
  const uint32_t word = words[element / 16 % 4];
  return element / 64 % 2 == 0 ? word & 0xffffu : word >> 16;
}

// The lower 16 bits say how far a number is from its neighbour towards zero: the sum carries as often as that.
uint16_t round_stochastically(float value, uint32_t random) {
  if (std::isnan(value)) return bf16_from_float(value);
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + random) >> 16);
}

float load_weight(const WeightForm &form, const WeightRun &run, size_t index) {
  switch (form.kind) {
    case WeightKind::f32: return load(run.weights, MXS_F32, index);
    case WeightKind::f32_copied:
    case WeightKind::bf16_master:
    case WeightKind::f16_master: return load(run.master, MXS_F32, index);
    case WeightKind::bf16_nearest:
    case WeightKind::bf16_stochastic: return load(run.weights, MXS_BF16, index);
    case WeightKind::f16_nearest: return load(run.weights, MXS_F16, index);
    case WeightKind::bf16_remainder: break;
  }
  const uint32_t high = static_cast<const uint16_t *>(run.weights)[index];
  return std::bit_cast<float>(high << 16 | static_cast<const uint16_t *>(run.master)[index]);
}

void store_weight(const WeightForm &form, const WeightRun &run, size_t index, float value) {
  float *const wide = static_cast<float *>(run.weights), *const master = static_cast<float *>(run.master);
  uint16_t *const half = static_cast<uint16_t *>(run.weights);
  switch (form.kind) {
    case WeightKind::f32: wide[index] = value; return;
    case WeightKind::f32_copied: master[index] = wide[index] = value; return;
    case WeightKind::bf16_master:
      master[index] = value;
      half[index] = bf16_from_float(value);
      return;
    case WeightKind::f16_master:
      master[index] = value;
      half[index] = f16_from_float(value);
      return;
    case WeightKind::bf16_nearest: half[index] = bf16_from_float(value); return;
    case WeightKind::f16_nearest: half[index] = f16_from_float(value); return;
    case WeightKind::bf16_stochastic:
      half[index] = round_stochastically(value, random16(form.random, run.first_element + index));
      return;
    case WeightKind::bf16_remainder: break;
  }
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  half[index] = static_cast<uint16_t>(bits >> 16);
  static_cast<uint16_t *>(run.master)[index] = static_cast<uint16_t>(bits);
}

// The gradient that a rule sees.
float load_gradient(const void *gradient, mxs_dtype dtype, float scale, float l2, const WeightForm &form,
                    const WeightRun &weights, size_t index) {
  const float scaled = load(gradient, dtype, index) * scale;
  return l2 == 0.0f ? scaled : scaled + load_weight(form, weights, index) * l2;
}

void apply_one(const ApplyPass &pass, const WeightRun &run, size_t index, float update) {
  const float weight = load_weight(pass.form, run, index);
  const float decay = pass.cautious && !(update * weight >= 0.0f) ? 1.0f : pass.decay;
  const float change = update * pass.update_factor;
  store_weight(pass.form, run, index, pass.decay_last ? (weight + change) * decay : weight * decay + change);
}

float direct_one(const AdamwPass &pass, const AdamwRun &run, size_t index) {
  const float gradient = load_gradient(run.gradient, pass.gradient_dtype, pass.gradient_scale, pass.l2,
                                       pass.apply.form, run.weights, index);
  const float second = run.exp_avg_sq[index] * pass.beta2 + gradient * pass.second_weight * gradient;
  run.exp_avg_sq[index] = second;
  float first;
  if (run.filtered) {
    first = run.filtered[index];
  } else {
    first = lerp(run.exp_avg[index], gradient, pass.first_lerp);
    run.exp_avg[index] = first;
  }
  return first * pass.direction_factor / (std::sqrt(second) / pass.correction2_root + pass.epsilon);
}

}  // namespace

double sum_of_squares(const void *gradient, mxs_dtype dtype, float scale, size_t count, bool *not_finite) {
  return sum_squares(count, [&](size_t i) {
    const float scaled = load(gradient, dtype, i) * scale;
    if (!std::isfinite(scaled)) *not_finite = true;
    return scaled;
  });
}

double momentum(const MomentumPass &pass, const MomentumRun &run) {
  return sum_squares(run.count, [&](size_t i) {
    const float gradient = load_gradient(run.gradient, pass.gradient_dtype, pass.gradient_scale, pass.l2, pass.form,
                                         run.weights, i);
    float momentum, update;
    if (pass.sgd) {
      momentum = run.momentum[i] * pass.momentum + gradient;
      update = pass.nesterov ? momentum * pass.momentum + gradient : momentum;
    } else {
      momentum = lerp(run.momentum[i], gradient, pass.momentum_lerp);
      update = pass.nesterov ? lerp(gradient, momentum, pass.nesterov_lerp) : momentum;
    }
    run.momentum[i] = momentum;
    run.update[i] = update;
    return update;
  });
}

double direction(const AdamwPass &pass, const AdamwRun &run) {
  return sum_squares(run.count, [&](size_t i) { return run.update[i] = direct_one(pass, run, i); });
}

void apply(const ApplyPass &pass, const ApplyRun &run) {
  for (size_t i = 0; i < run.count; ++i) apply_one(pass, run.weights, i, run.update[i] * run.row_factor);
}

void adamw(const AdamwPass &pass, const AdamwRun &run) {
  for (size_t i = 0; i < run.count; ++i) apply_one(pass.apply, run.weights, i, direct_one(pass, run, i));
}

void scale_weights(const WeightForm &form, const WeightRun &run, float factor, size_t count) {
  for (size_t i = 0; i < count; ++i) store_weight(form, run, i, load_weight(form, run, i) * factor);
}

void scale(float *values, float factor, size_t count) {
  for (size_t i = 0; i < count; ++i) values[i] *= factor;
}

}  // namespace mxs::reference
