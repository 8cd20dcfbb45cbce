// SPDX-License-Identifier: Apache-2.0
// Presets: whose optimizer it is, and what every option that a caller leaves zero takes from it. One table has all of
// them; docs/optimizers.md shows it.
//
// `complete` turns a caller's options into options in which nothing is left open: the same struct where its fields say
// it all, a recipe for Muon. What is out of range is MXS_INVALID_ARGUMENT with a sentence. options.size and nested
// structs have been read at the door: they are of this release's size.
#pragma once

#include <cstdint>

#include "kernels/kernels.hpp"
#include "kernels/recipe.hpp"
#include "matrixshard/kernels.h"

namespace mxs {

struct Preset {
  mxs_preset preset;
  const char *name;
  mxs_rule rule;             // AUTO: DEFAULT, of every rule
  mxs_group_values values;   // published defaults; betas and epsilon of Muon's: of the AdamW beside it
  // Of Muon's, and of DEFAULT.
  struct {
    mxs_momentum_kind momentum;
    bool nesterov;
    mxs_table table;
    mxs_epsilon_kind epsilon_kind;
    double epsilon;
    mxs_scale scale;
    bool normuon;
  } muon;
  // Of SHAMPOO, and of DEFAULT.
  struct {
    int interval;
    mxs_grafting grafting;
  } shampoo;
};

// nullptr: there is none of this number.
const Preset *find_preset(mxs_preset preset);
// All of them, in the order of their numbers.
const Preset *all_presets(int *count);

// Is it one of the rule's, or DEFAULT?
mxs_status check_preset(mxs_rule rule, mxs_preset preset);
mxs_status check_backend(mxs_backend backend);
mxs_status check_threads(int32_t thread_count);

// mxs_muon_options with every field decided.
struct MuonRecipe {
  mxs_preset preset = MXS_PRESET_DEFAULT;
  mxs_momentum_kind momentum = MXS_MOMENTUM_EMA;
  bool nesterov = true;
  mxs_scale scale = MXS_SCALE_RMS;
  float scale_factor = 1;  // beside update_scale(scale, ...)
  mxs_decay decay = MXS_DECAY_DECOUPLED;
  bool normuon = false;
  float normuon_beta2 = 0.95f, normuon_epsilon = 1e-10f;
  NewtonSchulzRecipe newton_schulz;
  OrthogonalizerChoice choice;
  int thread_count = 1;
};
mxs_status complete(const mxs_muon_options &options, MuonRecipe *recipe);

// After these no field is zero but momentum (none), and soap's factor_beta (beta2, whatever it is at each step).
mxs_status complete(mxs_shampoo_options *options);
mxs_status complete(mxs_soap_options *options);
mxs_status complete(mxs_adamw_options *options);

}  // namespace mxs
