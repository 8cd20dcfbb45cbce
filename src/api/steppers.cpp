// SPDX-License-Identifier: Apache-2.0
// The door of kernels.h's steppers.
#include "matrixshard/kernels.h"

#include "api/door.hpp"
#include "base/status.hpp"

using namespace mxs;

namespace {

mxs_status not_built() { return set_error(MXS_NOT_BUILT, "steppers are not in this release"); }

}  // namespace

mxs_status mxs_muon_create(mxs_stepper **, const mxs_matrices *, const mxs_muon_options *) { return not_built(); }
mxs_status mxs_shampoo_create(mxs_stepper **, const mxs_matrices *, const mxs_shampoo_options *) { return not_built(); }
mxs_status mxs_soap_create(mxs_stepper **, const mxs_matrices *, const mxs_soap_options *) { return not_built(); }
mxs_status mxs_adamw_create(mxs_stepper **, const mxs_matrices *, const mxs_adamw_options *) { return not_built(); }
void mxs_stepper_destroy(mxs_stepper **) {}
uint64_t mxs_stepper_state_bytes(const mxs_stepper *) { return 0; }
uint64_t mxs_stepper_workspace_bytes(const mxs_stepper *) { return 0; }
uint64_t mxs_stepper_state_count(const mxs_stepper *) { return 0; }
mxs_status mxs_stepper_state(const mxs_stepper *, uint64_t, mxs_state_part *) { return not_built(); }
mxs_status mxs_stepper_init(const mxs_stepper *, void *) { return not_built(); }
mxs_status mxs_stepper_check_state(const mxs_stepper *, const void *, uint64_t) { return not_built(); }
mxs_status mxs_stepper_step(const mxs_stepper *, const mxs_step_call *, mxs_step_result *) { return not_built(); }
mxs_status mxs_stepper_update(const mxs_stepper *, const mxs_step_call *, float *, mxs_step_result *) {
  return not_built();
}
mxs_status mxs_stepper_apply(const mxs_stepper *, const mxs_step_call *, const float *) { return not_built(); }
mxs_status mxs_stepper_describe(const mxs_stepper *, mxs_stepper_info *) { return not_built(); }
mxs_status mxs_scale_heads(const mxs_matrices *, void *, void *, const float *, int32_t, uint64_t) {
  return not_built();
}
