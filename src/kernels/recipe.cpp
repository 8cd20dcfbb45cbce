// SPDX-License-Identifier: Apache-2.0
#include "kernels/recipe.hpp"

#include <algorithm>
#include <cmath>

#include "base/status.hpp"

namespace mxs {

namespace {

// Five different polynomials: singular values from 1e-2 on come to within [0.978, 1.032].
NewtonSchulzRecipe you() {
  NewtonSchulzRecipe recipe;
  recipe.steps = {{4.0848f, -6.8946f, 2.9270f},
                  {3.9505f, -6.3029f, 2.6377f},
                  {3.7418f, -5.5913f, 2.3037f},
                  {2.8769f, -3.1427f, 1.2046f},
                  {2.8366f, -3.0525f, 1.2012f}};
  return recipe;
}

NewtonSchulzRecipe torch() {
  NewtonSchulzRecipe recipe;
  recipe.steps.assign(5, {3.4445f, -4.7750f, 2.0315f});
  recipe.epsilon = 1e-7;
  return recipe;
}

}  // namespace

NewtonSchulzRecipe recipe_of(mxs_preset preset) { return preset == MXS_PRESET_TORCH_MUON ? torch() : you(); }

mxs_status make_recipe(const mxs_newton_schulz &options, NewtonSchulzRecipe *recipe) {
  if (options.table != MXS_TABLE_PRESET || options.step_count != 0 || options.coefficients ||
      options.epsilon_kind != MXS_EPSILON_PRESET || options.safety != 0)
    return set_error(MXS_NOT_BUILT, "tables, steps, epsilon and safety of one's own are not in this release");
  *recipe = recipe_of(options.preset);
  return MXS_OK;
}

mxs_scale scale_of(mxs_preset preset) { return preset == MXS_PRESET_TORCH_MUON ? MXS_SCALE_SHAPE : MXS_SCALE_RMS; }

float update_scale(mxs_scale scale, int64_t rows, int64_t columns) {
  if (rows < 1 || columns < 1) return 0.0f;
  const double r = static_cast<double>(rows), c = static_cast<double>(columns);
  switch (scale) {
    case MXS_SCALE_SHAPE: return static_cast<float>(std::sqrt(std::max(1.0, r / c)));
    case MXS_SCALE_MAX: return static_cast<float>(std::sqrt(std::max(r, c)));
    case MXS_SCALE_RATIO: return static_cast<float>(std::sqrt(r / c));
    // An update of the root mean square that AdamW's have.
    case MXS_SCALE_RMS: return static_cast<float>(0.2 * std::sqrt(std::max(r, c)));
    default: return 1.0f;
  }
}

}  // namespace mxs
