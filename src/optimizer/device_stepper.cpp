// SPDX-License-Identifier: Apache-2.0
#include "optimizer/device_stepper.hpp"

#include "base/status.hpp"
#include "matrixshard/kernels.h"
#include "optimizer/device_steppers.hpp"

namespace mxs {

mxs_status make_device_stepper(std::unique_ptr<DeviceStepper> *stepper, Device &device, mxs_rule rule,
                               const StepMatrices &matrices, const OptimizerSettings &settings, const Stepper &host) {
  if (matrices.gradient_dtype != MXS_F32 || matrices.count != 1 || matrices.weight_row != matrices.columns ||
      matrices.gradient_row != matrices.columns)
    return set_error(MXS_NOT_BUILT, "matrices with gaps, batches and 16-bit gradients are not stepped in CUDA memory");
  switch (rule) {
    case MXS_RULE_MUON: return make_device_muon(stepper, device, matrices, settings, host);
    case MXS_RULE_SHAMPOO: return make_device_shampoo(stepper, device, matrices, settings, host);
    case MXS_RULE_SOAP: return make_device_soap(stepper, device, matrices, settings, host);
    case MXS_RULE_ADAMW: return make_device_adamw(stepper, device, matrices, settings, host);
    default:
      return set_error(MXS_NOT_BUILT, "rule %s is not stepped in CUDA memory by this release", mxs_rule_name(rule));
  }
}

mxs_status weights_for_passes(PassWeights *weights, const StepMatrices &matrices, mxs_decay decay) {
  WeightForm form;
  const mxs_status status = weight_form(&form, matrices.dtype, matrices.weights, matrices.rounding);
  if (status != MXS_OK) return status;
  weights->kind = static_cast<int32_t>(form.kind);
  weights->decay = decay;
  weights->seed = matrices.seed;
  weights->tensor_id = matrices.tensor_id;
  weights->first_element = matrices.first_element;
  return MXS_OK;
}

}  // namespace mxs
