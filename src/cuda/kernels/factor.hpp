// SPDX-License-Identifier: Apache-2.0
// What single lanes do in the launches of device/factor_arguments.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/kernels/pass.hpp"
#include "device/factor_arguments.hpp"

namespace mxs {

MXS_BOTH inline uint64_t place_of(const FactorPlace &place, uint64_t row, uint64_t column) {
  return place.first + row * place.stride + column;
}
MXS_BOTH inline uint64_t place_of(const FactorPlace &place, uint64_t element) {
  return place_of(place, element / place.columns, element % place.columns);
}

// As a momentum of 0 makes it.
MXS_BOTH inline MomentumPass gradient_pass(const FactorGradientArguments &a) {
  const DeviceStepState &state = *a.step.state;
  mxs_group_values values = *a.step.values;
  values.momentum = 0;
  MomentumPass pass = scalar::momentum_pass(MXS_MOMENTUM_SGD, false, a.weights.decay, values);
  pass.gradient_scale = state.gradient_scale;
  pass.form = form_of(a.weights, state.step_number);
  return pass;
}

MXS_BOTH inline void gradient_element(const FactorGradientArguments &a, const MomentumPass &pass, uint64_t element) {
  const uint64_t place = place_of(a.place, element);
  float momentum = 0.0f;
  MomentumRun run;
  run.gradient = a.gradient + place;
  run.momentum = &momentum;
  run.update = a.target + element;
  if (pass.l2 != 0) run.weights = element::later(pass.form, run_of(a.weights), place);
  element::momentum(pass, run, 0);
}

struct FilterPass {
  MomentumPass momentum;
  float factor = 1;
};

MXS_BOTH inline FilterPass filter_pass(const FactorFilterArguments &a) {
  mxs_group_values values = *a.step.values;
  values.momentum = values.beta1;
  FilterPass pass;
  pass.momentum = scalar::momentum_pass(MXS_MOMENTUM_EMA, false, MXS_DECAY_DECOUPLED, values);
  const double beta1 = static_cast<double>(values.beta1), step = static_cast<double>(a.step.state->step_number);
  pass.factor = static_cast<float>(1 / (1 - std::pow(beta1, step)));
  return pass;
}

MXS_BOTH inline void filter_element(const FactorFilterArguments &a, const FilterPass &pass, uint64_t element) {
  MomentumRun run;
  run.gradient = a.gradient + element;
  run.momentum = a.average + place_of(a.place, element);
  run.update = a.target + element;
  element::momentum(pass.momentum, run, 0);
  a.target[element] *= pass.factor;
}

MXS_BOTH inline AdamwPass direction_pass(const FactorDirectionArguments &a) {
  mxs_group_values values = *a.step.values;
  const uint64_t step = a.step.state->step_number;
  if (!a.grafts) return scalar::adamw_pass(ApplyPass(), MXS_DECAY_DECOUPLED, true, step - 1, values);
  values.beta1 = 0, values.beta2 = 0.999f, values.epsilon = 1e-10f;
  return scalar::adamw_pass(ApplyPass(), MXS_DECAY_DECOUPLED, false, step, values);
}

// Every 32nd element of a run from `lane` on; their squares.
MXS_BOTH inline double direction_lane(const FactorDirectionArguments &a, const AdamwPass &pass,
                                      const MatrixRuns::Run &cut, uint32_t lane) {
  const uint64_t dense = cut.row * a.place.columns + cut.column, place = place_of(a.place, cut.row, cut.column);
  AdamwRun run;
  run.gradient = a.update + dense;
  if (a.filtered) run.filtered = a.filtered + dense;
  if (a.average) run.exp_avg = a.average + place;
  run.exp_avg_sq = a.average_squares + place;
  double sum = 0.0;
  for (uint64_t i = lane; i < cut.count; i += norm_lanes) {
    const float update = element::direction(pass, run, i);
    a.update[dense + i] = update;
    sum += element::squared(update);
  }
  return sum;
}

MXS_BOTH inline MomentumPass buffer_pass(const FactorBufferArguments &a) {
  mxs_group_values values = *a.step.values;
  values.momentum = a.momentum;
  MomentumPass pass = scalar::momentum_pass(MXS_MOMENTUM_SGD, a.nesterov != 0, a.weights.decay, values);
  pass.form = form_of(a.weights, a.step.state->step_number);
  return pass;
}

MXS_BOTH inline void buffer_element(const FactorBufferArguments &a, const MomentumPass &pass, uint64_t element) {
  const uint64_t place = place_of(a.place, element);
  MomentumRun run;
  run.gradient = run.update = a.update + element;
  run.momentum = a.buffer + place;
  if (pass.l2 != 0) run.weights = element::later(pass.form, run_of(a.weights), place);
  element::momentum(pass, run, 0);
}

MXS_BOTH inline ApplyPass factor_apply_pass(const FactorApplyArguments &a) {
  mxs_group_values values = *a.step.values;
  if (a.no_decay) values.weight_decay = 0;
  ApplyPass pass = scalar::apply_pass(form_of(a.weights, a.step.state->step_number), a.weights.decay, 1.0, values);
  pass.decay_last = a.decay_last != 0;
  return pass;
}

MXS_BOTH inline void find_powers(const FactorPowersArguments &a) {
  const double least = static_cast<double>(a.values[0]);
  const double shift = least < a.epsilon ? -least : 0.0, lift = least < a.epsilon ? a.epsilon : 0.0;
  for (uint64_t i = 0; i < a.n; ++i) {
    const double value = static_cast<double>(a.values[i]) + shift + lift;
    a.powers[i] = std::pow(value, -a.exponent / 2);
    if (!(value > 0) || !(a.powers[i] * a.powers[i] <= a.largest)) *a.failed = 1;
  }
}

}  // namespace mxs
