// SPDX-License-Identifier: Apache-2.0
// The element passes of a step and its norm, alone: 50 steps beside fp64, and what is refused.
//
//   passes FOLDER
#include <cmath>
#include <random>
#include <vector>

#include "base/dtype.hpp"
#include "matrixshard/kernels.h"
#include "support/trajectory.hpp"
#include "support/cmocka_all.h"

namespace {

using namespace mxs::test;

constexpr size_t count = 257;

const char *folder = nullptr;

// The passes of a step one by one, as whoever has no stepper calls them, on the fp64 trajectories of presets.cpp.
const Trajectory *find(const std::vector<Trajectory> &trajectories, const char *name) {
  for (const Trajectory &trajectory : trajectories)
    if (trajectory.name == name) return &trajectory;
  print_error("%s has no trajectory %s\n", folder, name);
  return nullptr;
}

bool is_near(const Trajectory &trajectory, int step, const std::vector<float> &got) {
  const auto found = trajectory.weights.find(step);
  if (found == trajectory.weights.end()) return true;
  const std::vector<float> start = trajectory.first_weights();
  double off = 0, moved = 0;
  for (size_t i = 0; i < found->second.size(); ++i) {
    const double wanted = found->second[i];
    off += std::pow(static_cast<double>(got[i]) - wanted, 2);
    moved += std::pow(wanted - static_cast<double>(start[i]), 2);
  }
  if (std::sqrt(off) <= trajectory.number("bound_fp32") * std::sqrt(moved)) return true;
  print_error("%s, step %d: off by %.3g of what steps did\n", trajectory.name.c_str(), step, std::sqrt(off / moved));
  return false;
}

// gradients come 4 times as large, with a scale of 1/4, which rounds nothing.
mxs_elements elements_of(const Trajectory &trajectory, int step, std::vector<float> *gradient) {
  *gradient = trajectory.gradient(step);
  for (float &value : *gradient) value *= 4;
  mxs_elements elements = MXS_ELEMENTS_INIT;
  elements.dtype = MXS_F32;
  elements.count = trajectory.elements();
  elements.gradient = gradient->data();
  elements.gradient_scale = 0.25f;
  elements.step_number = static_cast<uint64_t>(step);
  return elements;
}

bool adamw_follows_the_trajectory() {
  const std::vector<Trajectory> trajectories = read_trajectories(folder + std::string("/torch-adamw.txt"));
  const Trajectory *const trajectory = find(trajectories, "matrix");
  if (!trajectory) return false;
  std::vector<float> weights = trajectory->first_weights(), first(weights.size()), second(weights.size()), gradient;
  for (int step = 1; step <= trajectory_steps; ++step) {
    mxs_elements elements = elements_of(*trajectory, step, &gradient);
    elements.exp_avg = first.data();
    elements.exp_avg_sq = second.data();
    elements.weights = weights.data();
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    values.lr = trajectory->lr(step);
    values.weight_decay = trajectory->weight_decay(step);
    if (mxs_adamw(&elements, &values) != MXS_OK || !is_near(*trajectory, step, weights)) return false;
  }
  return true;
}

bool muon_follows_the_trajectory() {
  const std::vector<Trajectory> trajectories = read_trajectories(folder + std::string("/torch-muon.txt"));
  const Trajectory *const trajectory = find(trajectories, "tall");
  if (!trajectory) return false;
  std::vector<float> weights = trajectory->first_weights(), momentum(weights.size()), update(weights.size()), gradient;
  mxs_newton_schulz options = MXS_NEWTON_SCHULZ_INIT;
  options.preset = MXS_PRESET_TORCH_MUON;
  options.backend = MXS_BACKEND_REFERENCE;
  mxs_orthogonalizer *orthogonalizer = nullptr;
  bool near = mxs_orthogonalizer_create(&orthogonalizer, trajectory->rows(), trajectory->columns(), &options) == MXS_OK;
  for (int step = 1; step <= trajectory_steps && near; ++step) {
    mxs_elements elements = elements_of(*trajectory, step, &gradient);
    elements.momentum = momentum.data();
    elements.update = update.data();
    elements.update_scale = mxs_muon_scale(options.preset, trajectory->rows(), trajectory->columns());
    elements.weights = weights.data();
    mxs_group_values values = MXS_GROUP_VALUES_INIT;
    values.lr = trajectory->lr(step);
    values.weight_decay = trajectory->weight_decay(step);
    near = mxs_muon_momentum(&elements, &values) == MXS_OK &&
           mxs_orthogonalize(orthogonalizer, update.data(), update.data()) == MXS_OK &&
           mxs_muon_apply(&elements, &values) == MXS_OK && is_near(*trajectory, step, weights);
  }
  mxs_orthogonalizer_destroy(&orthogonalizer);
  return near;
}

// Updates far below a bf16 step add up in the fp32 master; the weights are the rounded master at every step.
bool masters_keep_what_weights_lose() {
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  values.lr = 1e-4f;
  values.weight_decay = 0;
  std::vector<float> master(count, 1.0f), update(count, 1.0f);
  std::vector<uint16_t> weights(count, 0);
  mxs_elements elements = MXS_ELEMENTS_INIT;
  elements.dtype = MXS_BF16;
  elements.count = count;
  elements.update = update.data();
  elements.update_scale = 1.0f;
  elements.master = master.data();
  elements.weights = weights.data();
  for (int step = 0; step < 100; ++step) {
    if (mxs_muon_apply(&elements, &values) != MXS_OK) return false;
    for (size_t i = 0; i < count; ++i)
      if (weights[i] != mxs::bf16_from_float(master[i])) return false;
  }
  return std::fabs(master[0] - 0.99f) < 1e-5f && weights[0] == mxs::bf16_from_float(0.99f);
}

bool passes_refuse_what_is_missing() {
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  std::vector<float> numbers(count, 1.0f);
  const auto whole = [&] {
    mxs_elements elements = MXS_ELEMENTS_INIT;
    elements.dtype = MXS_F32;
    elements.count = count;
    elements.gradient = numbers.data();
    elements.momentum = elements.update = elements.exp_avg = elements.exp_avg_sq = numbers.data();
    elements.weights = numbers.data();
    elements.step_number = 1;
    return elements;
  };
  using Pass = mxs_status (*)(const mxs_elements *, const mxs_group_values *);
  const auto refused = [&](Pass pass, const mxs_elements &elements) {
    return pass(&elements, &values) == MXS_INVALID_ARGUMENT;
  };
  for (Pass pass : {mxs_muon_momentum, mxs_muon_apply, mxs_adamw}) {
    const mxs_elements good = whole();
    mxs_elements short_one = good;
    short_one.size = 8;
    if (pass(nullptr, &values) != MXS_INVALID_ARGUMENT || pass(&good, nullptr) != MXS_INVALID_ARGUMENT ||
        !refused(pass, short_one))
      return false;
  }
  mxs_elements elements = whole();
  elements.gradient = nullptr;
  if (!refused(mxs_muon_momentum, elements) || !refused(mxs_adamw, elements)) return false;
  elements = whole();
  elements.update = nullptr;
  if (!refused(mxs_muon_momentum, elements) || !refused(mxs_muon_apply, elements)) return false;
  elements = whole();
  elements.dtype = MXS_BF16;  // without a master
  if (!refused(mxs_muon_apply, elements) || !refused(mxs_adamw, elements)) return false;
  elements.dtype = MXS_U8;
  if (!refused(mxs_muon_apply, elements)) return false;
  elements = whole();
  elements.step_number = 0;
  if (!refused(mxs_adamw, elements)) return false;
  mxs_elements nothing = MXS_ELEMENTS_INIT;
  nothing.dtype = MXS_F32;
  nothing.step_number = 1;
  return mxs_adamw(&nothing, &values) == MXS_OK && mxs_muon_apply(&nothing, &values) == MXS_OK &&
         mxs_muon_momentum(&nothing, &values) == MXS_OK;
}

// As a step refuses them: NaN, infinite, negative, or a beta of 1, by which AdamW would divide by zero.
bool passes_refuse_nonsense() {
  mxs_elements nothing = MXS_ELEMENTS_INIT;
  nothing.dtype = MXS_F32;
  nothing.step_number = 1;
  float mxs_group_values::*const fields[] = {&mxs_group_values::lr,    &mxs_group_values::weight_decay,
                                             &mxs_group_values::momentum, &mxs_group_values::beta1,
                                             &mxs_group_values::beta2, &mxs_group_values::epsilon};
  for (const auto field : fields)
    for (const float value : {NAN, INFINITY, -INFINITY, -1e-3f}) {
      mxs_group_values values = MXS_GROUP_VALUES_INIT;
      values.*field = value;
      for (const auto pass : {mxs_adamw, mxs_muon_apply, mxs_muon_momentum})
        if (pass(&nothing, &values) != MXS_INVALID_ARGUMENT) return false;
    }
  for (float mxs_elements::*const field : {&mxs_elements::gradient_scale, &mxs_elements::update_scale})
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      mxs_elements scaled = nothing;
      scaled.*field = value;
      const mxs_group_values values = MXS_GROUP_VALUES_INIT;
      for (const auto pass : {mxs_adamw, mxs_muon_apply, mxs_muon_momentum})
        if (pass(&scaled, &values) != MXS_INVALID_ARGUMENT) return false;
    }
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  values.beta2 = 1;
  return mxs_adamw(&nothing, &values) == MXS_INVALID_ARGUMENT;
}

bool norms_add_up() {
  std::vector<float> gradient(10000);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (float &value : gradient) value = normal(random);
  int64_t whole[MXS_NORM_WORDS] = {}, parts[2][MXS_NORM_WORDS] = {};
  int32_t not_finite = 0;
  double exact = 0;
  for (float value : gradient) exact += static_cast<double>(value * 0.5f) * static_cast<double>(value * 0.5f);
  if (mxs_norm_add(whole, gradient.data(), 10000, 0.5f, &not_finite) != MXS_OK) return false;
  // Cut at a chunk's border, added in the other order.
  if (mxs_norm_add(parts[0], gradient.data() + 4096, 5904, 0.5f, &not_finite) != MXS_OK) return false;
  if (mxs_norm_add(parts[1], gradient.data(), 4096, 0.5f, &not_finite) != MXS_OK) return false;
  for (int i = 0; i < MXS_NORM_WORDS; ++i) parts[0][i] += parts[1][i];
  if (not_finite || mxs_norm_value(whole) != mxs_norm_value(parts[0])) return false;
  if (std::fabs(mxs_norm_value(whole) - std::sqrt(exact)) > 1e-12 * std::sqrt(exact)) return false;
  gradient[9999] = INFINITY;
  if (mxs_norm_add(whole, gradient.data(), 10000, 0.5f, &not_finite) != MXS_OK || not_finite != 1) return false;
  return mxs_norm_add(nullptr, gradient.data(), 1, 1, &not_finite) == MXS_INVALID_ARGUMENT &&
         mxs_norm_add(whole, nullptr, 1, 1, &not_finite) == MXS_INVALID_ARGUMENT &&
         mxs_norm_add(whole, gradient.data(), 1, 1, nullptr) == MXS_INVALID_ARGUMENT &&
         mxs_norm_add(whole, nullptr, 0, 1, &not_finite) == MXS_OK && mxs_norm_value(nullptr) == 0.0 &&
         mxs_clip_factor(4.0, 1.0f) == static_cast<float>(1.0 / (4.0 + 1e-6)) && mxs_clip_factor(0.5, 1.0f) == 1.0f &&
         mxs_clip_factor(4.0, 0.0f) == 1.0f;
}

bool scales_are_those_of_the_presets() {
  return mxs_muon_scale(MXS_PRESET_DEFAULT, 100, 25) == 2.0f && mxs_muon_scale(MXS_PRESET_DEFAULT, 25, 100) == 2.0f &&
         mxs_muon_scale(MXS_PRESET_TORCH_MUON, 100, 25) == 2.0f &&
         mxs_muon_scale(MXS_PRESET_TORCH_MUON, 25, 100) == 1.0f;
}

void adamw_agrees_with_fp64_for_50_steps(void **) { assert_true(adamw_follows_the_trajectory()); }
void muon_agrees_with_fp64_for_50_steps(void **) { assert_true(muon_follows_the_trajectory()); }
void small_updates_are_not_lost_beside_bf16_weights(void **) { assert_true(masters_keep_what_weights_lose()); }
void a_pass_without_its_arrays_is_refused(void **) { assert_true(passes_refuse_what_is_missing()); }
void a_pass_with_values_that_make_no_sense_is_refused(void **) { assert_true(passes_refuse_nonsense()); }
void a_norm_does_not_depend_on_how_it_is_cut(void **) { assert_true(norms_add_up()); }
void an_update_is_scaled_by_the_preset(void **) { assert_true(scales_are_those_of_the_presets()); }

}  // namespace

int main(int argument_count, char **arguments) {
  if (argument_count != 2) return 2;
  folder = arguments[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(adamw_agrees_with_fp64_for_50_steps),
      cmocka_unit_test(muon_agrees_with_fp64_for_50_steps),
      cmocka_unit_test(small_updates_are_not_lost_beside_bf16_weights),
      cmocka_unit_test(a_pass_without_its_arrays_is_refused),
      cmocka_unit_test(a_pass_with_values_that_make_no_sense_is_refused),
      cmocka_unit_test(a_norm_does_not_depend_on_how_it_is_cut),
      cmocka_unit_test(an_update_is_scaled_by_the_preset),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
