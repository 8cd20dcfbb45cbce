// SPDX-License-Identifier: Apache-2.0
// DeviceStepper: a Stepper (stepper.hpp) whose arrays are in device memory, and which puts a step on a stream instead
// of carrying it out: nothing waits, nothing is read back, so that steps can be captured in a CUDA graph. What a step
// needs to know beside its arrays is in device memory, too: DeviceStepState, of the
// optimizer, and the values of its groups.
//
// State has the parts, names and bytes that the host's stepper has, so that checkpoints are the same.
#pragma once

#include <memory>

#include "device/device.hpp"
#include "matrixshard/kernels.h"
#include "optimizer/settings.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

// In device memory, one of an optimizer. A step first makes it what the agreement says, then steppers read it.
struct DeviceStepState {
  uint64_t step_number = 0;       // of this step, from 1; as before if it is skipped
  float gradient_scale = 1;       // clip factor included
  int32_t skip = 0;               // 1: leave everything as it is
  uint64_t failed = 0;            // pieces that could not be updated so far (momentum not finite, no decomposition)
  int64_t failed_piece = -1;      // the first of them, as the optimizer numbers them
};

struct DeviceStepCall {
  DeviceStepState *state_of_step = nullptr;       // device
  const mxs_group_values *values = nullptr;       // device: of this piece's group
  int64_t piece = 0;                              // for failed_piece
  const void *gradient = nullptr;                 // device, as in StepCall
  void *weights = nullptr, *master = nullptr;
  std::byte *state = nullptr, *workspace = nullptr;
};

class DeviceStepper {
 public:
  virtual ~DeviceStepper() = default;
  virtual mxs_rule rule() const = 0;
  virtual const std::vector<StatePart> &state_parts() const = 0;
  virtual uint64_t state_bytes() const = 0;
  virtual uint64_t workspace_bytes() const = 0;
  virtual mxs_status init(std::byte *state, DeviceStream stream) const = 0;
  virtual mxs_status enqueue(const DeviceStepCall &call, DeviceStream stream) = 0;
  virtual const char *backend() const = 0;
  virtual mxs_dtype product_dtype() const = 0;
  virtual double flops() const = 0;
  virtual uint64_t state_meaning() const { return 0; }
};

// As make_muon_stepper and the like. MXS_NOT_BUILT: a rule or an option that has no device form; the sentence says so.
mxs_status make_device_stepper(std::unique_ptr<DeviceStepper> *stepper, Device &device, mxs_rule rule,
                               const StepMatrices &matrices, const OptimizerSettings &settings);

// ---- the parts of a step that belong to the optimizer ----

// Adds the squares of scale * gradient to `words` (MXS_NORM_WORDS of an ExactSum, device memory); *found_inf = 1 if
// something is not finite. The same words as add_squares() gives.
mxs_status enqueue_squares(Device &device, const float *gradient, uint64_t elements, float scale, int64_t *words,
                           int64_t *found_inf, DeviceStream stream);

}  // namespace mxs
