// SPDX-License-Identifier: Apache-2.0
// The scalars of one step, formed in fp64 as Python does and rounded once to fp32, so that every table starts from the
// same bits. Static functions: this header is compiled for several CPU levels, and a shared copy could be of any.
#pragma once

#include <cmath>

#include "matrixshard/optimizer.h"

namespace mxs {
namespace {

// start + weight * (end - start), on the side that torch takes: exact at weight 0 and 1.
struct Lerp {
  float weight;  // from the nearer end
  bool from_end;
};

inline Lerp lerp_of(double weight) {
  if (weight < 0.5) return {static_cast<float>(weight), false};
  return {static_cast<float>(1.0 - weight), true};
}

inline float lerp(float start, float end, Lerp lerp) {
  const float difference = end - start;
  return lerp.from_end ? end - difference * lerp.weight : start + difference * lerp.weight;
}

struct MomentumScalars {
  Lerp momentum_lerp, nesterov_lerp;
};

inline MomentumScalars momentum_scalars(const mxs_group_values &values) {
  const double momentum = static_cast<double>(values.momentum);
  return {lerp_of(1.0 - momentum), lerp_of(momentum)};
}

struct ApplyScalars {
  float decay, update_factor;
};

inline float decay_of(const mxs_group_values &values) {
  return static_cast<float>(1.0 - static_cast<double>(values.lr) * static_cast<double>(values.weight_decay));
}

inline ApplyScalars apply_scalars(const mxs_elements &elements, const mxs_group_values &values) {
  return {decay_of(values),
          static_cast<float>(-(static_cast<double>(values.lr) * static_cast<double>(elements.update_scale)))};
}

struct AdamwScalars {
  float decay, beta2, second_weight, correction2_root, epsilon, step_factor;
  Lerp first_lerp;
};

inline AdamwScalars adamw_scalars(const mxs_elements &elements, const mxs_group_values &values) {
  const double step = static_cast<double>(elements.step_number);
  const double beta1 = static_cast<double>(values.beta1), beta2 = static_cast<double>(values.beta2);
  AdamwScalars scalars;
  scalars.decay = decay_of(values);
  scalars.beta2 = values.beta2;
  scalars.second_weight = static_cast<float>(1.0 - beta2);
  scalars.correction2_root = static_cast<float>(::sqrt(1.0 - ::pow(beta2, step)));
  scalars.epsilon = values.epsilon;
  scalars.step_factor = static_cast<float>(-(static_cast<double>(values.lr) / (1.0 - ::pow(beta1, step))));
  scalars.first_lerp = lerp_of(1.0 - beta1);
  return scalars;
}

}  // namespace
}  // namespace mxs
