// SPDX-License-Identifier: Apache-2.0
// What all elements of a step have in common, from its values: source for host and device. Formed in fp64, as Python
// does, and rounded once. passes.hpp and newton_schulz.hpp offer it to the host under the same names.
//
// Bits on the device are the host's but for those that hang on pow, AdamW's bias corrections: it is within an ulp of
// fp64 on either side, of which rounding to fp32 leaves a trace once in some 2^29 steps.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/both.hpp"
#include "kernels/pass_types.hpp"
#include "kernels/philox.hpp"
#include "matrixshard/kernels.h"

namespace mxs::scalar {

MXS_BOTH inline RandomBits random_bits(uint64_t seed, uint64_t tensor_id, uint64_t step_number) {
  uint32_t words[4] = {static_cast<uint32_t>(tensor_id), static_cast<uint32_t>(tensor_id >> 32),
                       static_cast<uint32_t>(step_number), static_cast<uint32_t>(step_number >> 32)};
  philox(words, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return {{words[0], words[1]}, {words[2], words[3]}};
}

MXS_BOTH inline float decay_factor(mxs_decay decay, const mxs_group_values &values) {
  const double lr = static_cast<double>(values.lr), weight_decay = static_cast<double>(values.weight_decay);
  switch (decay) {
    case MXS_DECAY_INDEPENDENT: return static_cast<float>(1.0 - weight_decay);
    case MXS_DECAY_PALM: return static_cast<float>(1.0 - lr * lr * weight_decay);
    case MXS_DECAY_L2: return 1.0f;
    default: return static_cast<float>(1.0 - lr * weight_decay);
  }
}

MXS_BOTH inline Lerp lerp_of(double weight) {
  if (weight < 0.5) return {static_cast<float>(weight), false};
  return {static_cast<float>(1.0 - weight), true};
}

MXS_BOTH inline MomentumPass momentum_pass(mxs_momentum_kind kind, bool nesterov, mxs_decay decay,
                                           const mxs_group_values &values) {
  const double momentum = static_cast<double>(values.momentum);
  MomentumPass pass;
  pass.l2 = decay == MXS_DECAY_L2 ? values.weight_decay : 0.0f;
  pass.sgd = kind == MXS_MOMENTUM_SGD;
  pass.nesterov = nesterov;
  pass.momentum_lerp = lerp_of(1.0 - momentum);
  pass.nesterov_lerp = lerp_of(momentum);
  pass.momentum = values.momentum;
  return pass;
}

MXS_BOTH inline ApplyPass apply_pass(const WeightForm &form, mxs_decay decay, double update_scale,
                                     const mxs_group_values &values) {
  ApplyPass pass;
  pass.form = form;
  pass.decay = decay_factor(decay, values);
  pass.update_factor = static_cast<float>(-(static_cast<double>(values.lr) * update_scale));
  pass.cautious = decay == MXS_DECAY_CAUTIOUS;
  return pass;
}

MXS_BOTH inline AdamwPass adamw_pass(const ApplyPass &apply, mxs_decay decay, bool epsilon_before,
                                     uint64_t step_number, const mxs_group_values &values) {
  const double step = static_cast<double>(step_number);
  const double beta1 = static_cast<double>(values.beta1), beta2 = static_cast<double>(values.beta2);
  const double correction1 = 1.0 - std::pow(beta1, step), root2 = std::sqrt(1.0 - std::pow(beta2, step));
  AdamwPass pass;
  pass.l2 = decay == MXS_DECAY_L2 ? values.weight_decay : 0.0f;
  pass.first_lerp = lerp_of(1.0 - beta1);
  pass.beta2 = values.beta2;
  pass.second_weight = static_cast<float>(1.0 - beta2);
  pass.correction2_root = epsilon_before ? 1.0f : static_cast<float>(root2);
  pass.epsilon = values.epsilon;
  pass.direction_factor = static_cast<float>((epsilon_before ? root2 : 1.0) / correction1);
  pass.apply = apply;
  return pass;
}

// ---- NorMuon: normuon.cpp ----

// As dion: a norm below it counts as this. Keeps a matrix of zeros at zero.
constexpr double normuon_norm_least = 1e-8;

MXS_BOTH inline float normuon_second(float second_momentum, double row_squares, double columns, double beta2) {
  const double mean = row_squares / columns, second = second_momentum;
  return static_cast<float>(second + (mean - second) * (1.0 - beta2));
}

MXS_BOTH inline double normuon_reciprocal(float second_momentum, double epsilon) {
  const double divisor = std::sqrt(static_cast<double>(second_momentum)) + epsilon;
  return divisor > 0.0 ? 1.0 / divisor : 0.0;
}

MXS_BOTH inline double normuon_back(double old_squares, double new_squares) {
  const double norm = std::sqrt(new_squares);
  return std::sqrt(old_squares) / (norm < normuon_norm_least ? normuon_norm_least : norm);
}

MXS_BOTH inline float normuon_factor(double reciprocal, double back) {
  constexpr double largest = 0x1.fffffep127;  // of fp32
  const double factor = reciprocal * back;
  return static_cast<float>(largest < factor ? largest : factor);
}

}  // namespace mxs::scalar
