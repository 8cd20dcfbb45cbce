// SPDX-License-Identifier: Apache-2.0
// Scalars of the element passes, and mxs_elements on top of them.
#include "kernels/passes.hpp"

#include <cmath>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "kernels/kernels.hpp"
#include "kernels/philox.hpp"

namespace mxs {

// ---- weights -------------------------------------------------------------------------------------------------------

RandomBits random_bits(uint64_t seed, uint64_t tensor_id, uint64_t step_number) {
  uint32_t words[4] = {static_cast<uint32_t>(tensor_id), static_cast<uint32_t>(tensor_id >> 32),
                       static_cast<uint32_t>(step_number), static_cast<uint32_t>(step_number >> 32)};
  philox(words, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return {{words[0], words[1]}, {words[2], words[3]}};
}

namespace {

struct KnownForm {
  mxs_dtype dtype;
  mxs_weights weights;
  mxs_rounding rounding;
  WeightKind kind;
};

constexpr KnownForm known_forms[] = {
    {MXS_F32, MXS_WEIGHTS_ALONE, MXS_ROUND_NEAREST, WeightKind::f32},
    {MXS_F32, MXS_WEIGHTS_MASTER, MXS_ROUND_NEAREST, WeightKind::f32_copied},
    {MXS_BF16, MXS_WEIGHTS_MASTER, MXS_ROUND_NEAREST, WeightKind::bf16_master},
    {MXS_F16, MXS_WEIGHTS_MASTER, MXS_ROUND_NEAREST, WeightKind::f16_master},
    {MXS_BF16, MXS_WEIGHTS_REMAINDER, MXS_ROUND_NEAREST, WeightKind::bf16_remainder},
    {MXS_BF16, MXS_WEIGHTS_ALONE, MXS_ROUND_NEAREST, WeightKind::bf16_nearest},
    {MXS_F16, MXS_WEIGHTS_ALONE, MXS_ROUND_NEAREST, WeightKind::f16_nearest},
    {MXS_BF16, MXS_WEIGHTS_ALONE, MXS_ROUND_STOCHASTIC, WeightKind::bf16_stochastic},
};

const char *name_of(mxs_weights weights) {
  switch (weights) {
    case MXS_WEIGHTS_ALONE: return "alone";
    case MXS_WEIGHTS_MASTER: return "with an fp32 master";
    case MXS_WEIGHTS_REMAINDER: return "with a 16-bit remainder";
    default: return "in an unknown form";
  }
}

}  // namespace

mxs_status weight_form(WeightForm *form, mxs_dtype dtype, mxs_weights weights, mxs_rounding rounding) {
  for (const KnownForm &known : known_forms)
    if (known.dtype == dtype && known.weights == weights && known.rounding == rounding) {
      *form = WeightForm{};
      form->kind = known.kind;
      return MXS_OK;
    }
  return set_error(MXS_INVALID_ARGUMENT,
                   "weights of dtype %s %s, rounded %s, are none that can be stepped: f32, bf16 and f16 may be alone "
                   "or have an fp32 master, bf16 may have a remainder, and bf16 alone may be rounded stochastically",
                   mxs_dtype_name(dtype), name_of(weights),
                   rounding == MXS_ROUND_NEAREST      ? "to nearest"
                   : rounding == MXS_ROUND_STOCHASTIC ? "stochastically"
                                                      : "in an unknown way");
}

WeightRun later(const WeightForm &form, const WeightRun &run, size_t elements) {
  const bool wide = form.kind == WeightKind::f32 || form.kind == WeightKind::f32_copied;
  const size_t master_bytes = form.kind == WeightKind::bf16_remainder ? 2 : 4;
  WeightRun moved = run;
  moved.weights = static_cast<std::byte *>(run.weights) + elements * (wide ? 4 : 2);
  if (run.master) moved.master = static_cast<std::byte *>(run.master) + elements * master_bytes;
  moved.first_element += elements;
  return moved;
}

float decay_factor(mxs_decay decay, const mxs_group_values &values) {
  const double lr = static_cast<double>(values.lr), weight_decay = static_cast<double>(values.weight_decay);
  switch (decay) {
    case MXS_DECAY_INDEPENDENT: return static_cast<float>(1.0 - weight_decay);
    case MXS_DECAY_PALM: return static_cast<float>(1.0 - lr * lr * weight_decay);
    case MXS_DECAY_L2: return 1.0f;
    default: return static_cast<float>(1.0 - lr * weight_decay);
  }
}

// ---- scalars -------------------------------------------------------------------------------------------------------

Lerp lerp_of(double weight) {
  if (weight < 0.5) return {static_cast<float>(weight), false};
  return {static_cast<float>(1.0 - weight), true};
}

MomentumPass momentum_pass(mxs_momentum_kind kind, bool nesterov, mxs_decay decay, const mxs_group_values &values) {
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

ApplyPass apply_pass(const WeightForm &form, mxs_decay decay, double update_scale, const mxs_group_values &values) {
  ApplyPass pass;
  pass.form = form;
  pass.decay = decay_factor(decay, values);
  pass.update_factor = static_cast<float>(-(static_cast<double>(values.lr) * update_scale));
  pass.cautious = decay == MXS_DECAY_CAUTIOUS;
  return pass;
}

AdamwPass adamw_pass(const ApplyPass &apply, mxs_decay decay, bool epsilon_before, uint64_t step_number,
                     const mxs_group_values &values) {
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

// ---- mxs_elements --------------------------------------------------------------------------------------------------

namespace {

// The door has checked: f32, or 16 bits with a master.
WeightForm form_of(const mxs_elements &elements) {
  WeightForm form;
  form.kind = elements.dtype == MXS_F32    ? (elements.master ? WeightKind::f32_copied : WeightKind::f32)
              : elements.dtype == MXS_BF16 ? WeightKind::bf16_master
                                           : WeightKind::f16_master;
  return form;
}

}  // namespace

void muon_momentum(const mxs_elements &elements, const mxs_group_values &values) {
  MomentumPass pass = momentum_pass(MXS_MOMENTUM_EMA, true, MXS_DECAY_DECOUPLED, values);
  pass.gradient_scale = elements.gradient_scale;
  kernels().momentum(pass, {elements.gradient, elements.momentum, elements.update, {}, elements.count});
}

void muon_apply(const mxs_elements &elements, const mxs_group_values &values) {
  const ApplyPass pass = apply_pass(form_of(elements), MXS_DECAY_DECOUPLED,
                                    static_cast<double>(elements.update_scale), values);
  kernels().apply(pass, {{elements.weights, elements.master, 0}, elements.update, 1.0f, elements.count});
}

void adamw(const mxs_elements &elements, const mxs_group_values &values) {
  const ApplyPass apply = apply_pass(form_of(elements), MXS_DECAY_DECOUPLED, 1.0, values);
  AdamwPass pass = adamw_pass(apply, MXS_DECAY_DECOUPLED, false, elements.step_number, values);
  pass.gradient_scale = elements.gradient_scale;
  AdamwRun run;
  run.gradient = elements.gradient;
  run.exp_avg = elements.exp_avg;
  run.exp_avg_sq = elements.exp_avg_sq;
  run.weights = {elements.weights, elements.master, 0};
  run.count = elements.count;
  kernels().adamw(pass, run);
}

}  // namespace mxs
