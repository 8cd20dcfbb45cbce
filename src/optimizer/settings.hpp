// SPDX-License-Identifier: Apache-2.0
// Settings: how an optimizer's rules step, for the time of making it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "matrixshard/optimizer.h"
#include "optimizer/stepper.hpp"

namespace mxs {

// mxs_optimizer_options. Where a caller gave none for a rule, its INIT; preset and backend of the whole are filled in
// where they were left to it. Pointers are the caller's.
struct OptimizerSettings {
  mxs_muon_options muon = MXS_MUON_OPTIONS_INIT;
  mxs_shampoo_options shampoo = MXS_SHAMPOO_OPTIONS_INIT;
  mxs_soap_options soap = MXS_SOAP_OPTIONS_INIT;
  mxs_adamw_options adamw = MXS_ADAMW_OPTIONS_INIT;
  mxs_backend backend = MXS_BACKEND_AUTO;
  mxs_rounding rounding = MXS_ROUND_NEAREST;
  uint64_t seed = 0;
  bool backup = false;
};

// What must be equal on all ranks, by what a sentence can name.
struct OptionHashes {
  uint64_t muon = 0, shampoo = 0, soap = 0, adamw = 0, rounding = 0;
  uint64_t value() const;
  // What `other` has that this hasn't, to follow "makes its optimizer with"; "" if they are equal.
  const char *difference(const OptionHashes &other) const;
};
OptionHashes option_hashes(const OptimizerSettings &settings);

mxs_status make_stepper(std::unique_ptr<Stepper> *stepper, mxs_rule rule, const StepMatrices &matrices,
                        const OptimizerSettings &settings, Team *team);

// Of a rule that steps something.
mxs_preset preset_of(const OptimizerSettings &settings, mxs_rule rule);

// Does any rank step under such a rule? Where none does, nothing may load OpenBLAS, which would come with a thread for
// each core, and those with 100 ms of spinning.
struct RulesUsed {
  bool decomposes = false;      // shampoo, soap
  bool orthogonalizes = false;  // muon
};

// Are options good, also those of rules that this rank steps nothing under? Tried on a matrix of one element. What this
// build lacks is refused where it is needed, with the tensor's name. took(rule, stepper) of each that could be made.
mxs_status check_options(const OptimizerSettings &settings, RulesUsed used, Team *team,
                         const std::function<void(mxs_rule rule, const Stepper &stepper)> &took);

}  // namespace mxs
