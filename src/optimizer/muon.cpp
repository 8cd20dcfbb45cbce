// SPDX-License-Identifier: Apache-2.0
// Muon: the local step of a batch of matrices. Formulas and constants: docs/optimizers.md.
#include "base/status.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

mxs_status make_muon_stepper(std::unique_ptr<Stepper> *, const StepMatrices &, const mxs_muon_options &, Team *) {
  return set_error(MXS_NOT_BUILT, "steppers of the rule muon are not in this release");
}

}  // namespace mxs
