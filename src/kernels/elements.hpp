// SPDX-License-Identifier: Apache-2.0
// The passes of passes.hpp for one element each, as the formulas stand there: source for the reference table and for
// the kernels of the device, which thereby give the same bits. Neither contracts a product and a sum.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/both.hpp"
#include "base/dtype.hpp"
#include "base/half.hpp"
#include "kernels/pass_types.hpp"
#include "kernels/philox.hpp"

namespace mxs::element {

// ---- numbers ----

MXS_BOTH inline float load(const void *source, mxs_dtype dtype, size_t index) {
  if (dtype == MXS_F32) return static_cast<const float *>(source)[index];
  const uint16_t bits = static_cast<const uint16_t *>(source)[index];
  return dtype == MXS_BF16 ? float_from_bf16(bits) : float_of_half(bits);
}

MXS_BOTH inline void store(void *target, mxs_dtype dtype, size_t index, float value) {
  if (dtype == MXS_F32)
    static_cast<float *>(target)[index] = value;
  else
    static_cast<uint16_t *>(target)[index] = dtype == MXS_BF16 ? bf16_from_float(value) : half_of_float(value);
}

MXS_BOTH inline float lerp(float start, float end, Lerp lerp) {
  const float difference = end - start;
  return lerp.from_end ? end - difference * lerp.weight : start + difference * lerp.weight;
}

MXS_BOTH inline double squared(float value) {
  const double wide = static_cast<double>(value);
  return wide * wide;
}

// ((base + sources[0]) + sources[1]) + ...
MXS_BOTH inline float sum_in_order(const float *base, const void *const *sources, int count, mxs_dtype dtype,
                                   size_t index) {
  float sum = base ? base[index] : 0.0f;
  for (int source = 0; source < count; ++source) sum += load(sources[source], dtype, index);
  return sum;
}

// ---- weights ----

MXS_BOTH inline uint32_t random16(const RandomBits &random, uint64_t element) {
  const uint64_t block = element / 128 * 16 + element % 16;
  uint32_t words[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), random.counter[0],
                       random.counter[1]};
  philox(words, random.key[0], random.key[1]);
  const uint32_t word = words[element / 16 % 4];
  return element / 64 % 2 == 0 ? word & 0xffffu : word >> 16;
}

// The lower 16 bits say how far a number is from its neighbour towards zero: the sum carries as often as that.
MXS_BOTH inline uint16_t round_stochastically(float value, uint32_t random) {
  if (std::isnan(value)) return bf16_from_float(value);
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + random) >> 16);
}

MXS_BOTH inline float load_weight(const WeightForm &form, const WeightRun &run, size_t index) {
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

MXS_BOTH inline void store_weight(const WeightForm &form, const WeightRun &run, size_t index, float value) {
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
      half[index] = half_of_float(value);
      return;
    case WeightKind::bf16_nearest: half[index] = bf16_from_float(value); return;
    case WeightKind::f16_nearest: half[index] = half_of_float(value); return;
    case WeightKind::bf16_stochastic:
      half[index] = round_stochastically(value, random16(form.random, run.first_element + index));
      return;
    case WeightKind::bf16_remainder: break;
  }
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  half[index] = static_cast<uint16_t>(bits >> 16);
  static_cast<uint16_t *>(run.master)[index] = static_cast<uint16_t>(bits);
}

MXS_BOTH inline WeightRun later(const WeightForm &form, const WeightRun &run, size_t elements) {
  const bool wide = form.kind == WeightKind::f32 || form.kind == WeightKind::f32_copied;
  const size_t master_bytes = form.kind == WeightKind::bf16_remainder ? 2 : 4;
  WeightRun moved = run;
  moved.weights = static_cast<std::byte *>(run.weights) + elements * (wide ? 4 : 2);
  if (run.master) moved.master = static_cast<std::byte *>(run.master) + elements * master_bytes;
  moved.first_element += elements;
  return moved;
}

// ---- passes ----

// The gradient that a rule sees.
MXS_BOTH inline float load_gradient(const void *gradient, mxs_dtype dtype, float scale, float l2,
                                    const WeightForm &form, const WeightRun &weights, size_t index) {
  const float scaled = load(gradient, dtype, index) * scale;
  return l2 == 0.0f ? scaled : scaled + load_weight(form, weights, index) * l2;
}

// Returns the update.
MXS_BOTH inline float momentum(const MomentumPass &pass, const MomentumRun &run, size_t index) {
  const float gradient = load_gradient(run.gradient, pass.gradient_dtype, pass.gradient_scale, pass.l2, pass.form,
                                       run.weights, index);
  float momentum, update;
  if (pass.sgd) {
    momentum = run.momentum[index] * pass.momentum + gradient;
    update = pass.nesterov ? momentum * pass.momentum + gradient : momentum;
  } else {
    momentum = lerp(run.momentum[index], gradient, pass.momentum_lerp);
    update = pass.nesterov ? lerp(gradient, momentum, pass.nesterov_lerp) : momentum;
  }
  run.momentum[index] = momentum;
  run.update[index] = update;
  return update;
}

MXS_BOTH inline void apply(const ApplyPass &pass, const WeightRun &run, size_t index, float update) {
  const float weight = load_weight(pass.form, run, index);
  const float decay = pass.cautious && !(update * weight >= 0.0f) ? 1.0f : pass.decay;
  const float change = update * pass.update_factor;
  store_weight(pass.form, run, index, pass.decay_last ? (weight + change) * decay : weight * decay + change);
}

// Returns the update, which it stores nowhere.
MXS_BOTH inline float direction(const AdamwPass &pass, const AdamwRun &run, size_t index) {
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

MXS_BOTH inline void scale_weight(const WeightForm &form, const WeightRun &run, size_t index, float factor) {
  store_weight(form, run, index, load_weight(form, run, index) * factor);
}

}  // namespace mxs::element
