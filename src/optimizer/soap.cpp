// SPDX-License-Identifier: Apache-2.0
// SOAP: the local step of a batch of matrices. Formulas and constants: docs/optimizers.md.
#include "base/status.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

mxs_status make_soap_stepper(std::unique_ptr<Stepper> *, const StepMatrices &, const mxs_soap_options &, Team *) {
  return set_error(MXS_NOT_BUILT, "steppers of the rule soap are not in this release");
}

}  // namespace mxs
