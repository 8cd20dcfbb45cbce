// SPDX-License-Identifier: Apache-2.0
// Shampoo: the local step of a batch of matrices. Formulas and constants: docs/optimizers.md.
#include "base/status.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

mxs_status make_shampoo_stepper(std::unique_ptr<Stepper> *, const StepMatrices &, const mxs_shampoo_options &, Team *) {
  return set_error(MXS_NOT_BUILT, "steppers of the rule shampoo are not in this release");
}

}  // namespace mxs
