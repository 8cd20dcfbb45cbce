// SPDX-License-Identifier: Apache-2.0
// AdamW: the local step of a batch of matrices. Formulas and constants: docs/optimizers.md.
#include "base/status.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

mxs_status make_adamw_stepper(std::unique_ptr<Stepper> *, const StepMatrices &, const mxs_adamw_options &, Team *) {
  return set_error(MXS_NOT_BUILT, "steppers of the rule adamw are not in this release");
}

}  // namespace mxs
