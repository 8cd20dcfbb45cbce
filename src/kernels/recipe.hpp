// SPDX-License-Identifier: Apache-2.0
// Recipe: what a preset or a caller's options mean for Newton-Schulz and for the update's scale, with every field
// decided. The numbers are those of the published sources; docs/optimizers.md has them in a table.
#pragma once

#include <cstdint>
#include <vector>

#include "matrixshard/kernels.h"

namespace mxs {

constexpr int newton_schulz_steps_max = 32;

struct NewtonSchulzRecipe {
  struct Step {
    float a, b, c;
  };
  std::vector<Step> steps;
  bool adds_epsilon = false;  // X = source / (norm * safety + epsilon), else / max(norm * safety, epsilon)
  double epsilon = 0;
  double safety = 1;
};

// options.backend, algorithm and thread_count are not looked at.
// MXS_INVALID_ARGUMENT: a field out of its range, or a table that diverges or turns signs for singular values that the
// normalisation lets through.
mxs_status make_recipe(const mxs_newton_schulz &options, NewtonSchulzRecipe *recipe);
// Of a preset that has been checked.
NewtonSchulzRecipe recipe_of(mxs_preset preset);

// Beside lr, of a whole matrix as (out, in). scale: not MXS_SCALE_PRESET.
float update_scale(mxs_scale scale, int64_t rows, int64_t columns);
// What a Muon preset takes.
mxs_scale scale_of(mxs_preset preset);

}  // namespace mxs
