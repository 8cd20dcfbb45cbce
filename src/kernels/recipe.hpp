// SPDX-License-Identifier: Apache-2.0
// Recipe: what a caller's options mean for Newton-Schulz, with every field decided, and scales of updates. The tables
// are those of the published sources; docs/optimizers.md shows them.
//
// A table is good for the singular values that it was made for, and mad beyond: CANS turns 1.0039 into 1e28. So
// make_recipe follows singular values through the table in fp64, up to what the normalisation lets through, and refuses
// a table that diverges or turns signs there.
#pragma once

#include <cstdint>
#include <vector>

#include "matrixshard/kernels.h"

namespace mxs {

constexpr int newton_schulz_steps_max = 32;

// The norm is one of unrounded numbers, and a bf16 number is within 2^-8 of what it stands for. So this much above 1
// may go into a table, with whatever backend: a table must not be good here and refused there.
constexpr double rounding_slack = 0x1p-8;

// No published table has a value above 1.992 on its way, nor above 1.31 at its end.
constexpr double divergence_bound = 4;

struct NewtonSchulzRecipe {
  struct Step {
    float a, b, c;
  };
  std::vector<Step> steps;
  bool adds_epsilon = false;  // X = source / (norm * safety + epsilon), else / max(norm * safety, epsilon)
  double epsilon = 0;
  double safety = 1;  // of the norm; Polar Express has its own within the coefficients
};

// options.algorithm and thread_count are not looked at. A table that may diverge by bf16's rounding is warned of in the
// log, unless the backend is an fp32 one.
// MXS_INVALID_ARGUMENT: a field out of its range, or a table that diverges or turns signs for singular values that the
// normalisation lets through.
mxs_status make_recipe(const mxs_newton_schulz &options, NewtonSchulzRecipe *recipe);
// Of one of Muon's presets.
NewtonSchulzRecipe recipe_of(mxs_preset preset);

// What becomes of a singular value, in fp64: of X, after normalisation.
double scalar_map(const NewtonSchulzRecipe &recipe, double sigma);
double slope_at_zero(const NewtonSchulzRecipe &recipe);

// Beside lr, of a whole matrix as (out, in). scale: not MXS_SCALE_PRESET.
float update_scale(mxs_scale scale, int64_t rows, int64_t columns);
// What a Muon preset takes.
mxs_scale scale_of(mxs_preset preset);

}  // namespace mxs
