// SPDX-License-Identifier: Apache-2.0
// Scalars of the element passes (pass_scalars.hpp), and mxs_elements on top of them.
#include "kernels/passes.hpp"

#include "base/status.hpp"
#include "kernels/elements.hpp"
#include "kernels/kernels.hpp"
#include "kernels/pass_scalars.hpp"

namespace mxs {

// ---- weights -------------------------------------------------------------------------------------------------------

RandomBits random_bits(uint64_t seed, uint64_t tensor_id, uint64_t step_number) {
  return scalar::random_bits(seed, tensor_id, step_number);
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
  return element::later(form, run, elements);
}

float decay_factor(mxs_decay decay, const mxs_group_values &values) { return scalar::decay_factor(decay, values); }

// ---- scalars -------------------------------------------------------------------------------------------------------

Lerp lerp_of(double weight) { return scalar::lerp_of(weight); }

MomentumPass momentum_pass(mxs_momentum_kind kind, bool nesterov, mxs_decay decay, const mxs_group_values &values) {
  return scalar::momentum_pass(kind, nesterov, decay, values);
}

ApplyPass apply_pass(const WeightForm &form, mxs_decay decay, double update_scale, const mxs_group_values &values) {
  return scalar::apply_pass(form, decay, update_scale, values);
}

AdamwPass adamw_pass(const ApplyPass &apply, mxs_decay decay, bool epsilon_before, uint64_t step_number,
                     const mxs_group_values &values) {
  return scalar::adamw_pass(apply, decay, epsilon_before, step_number, values);
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
