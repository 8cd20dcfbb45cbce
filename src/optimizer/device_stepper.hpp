// SPDX-License-Identifier: Apache-2.0
// DeviceStepper: a Stepper (stepper.hpp) whose arrays are in device memory, and which puts a step on a stream instead
// of carrying it out: nothing waits, nothing is read back, so that steps can be captured in a CUDA graph. What a step
// needs to know beside its arrays is in device memory, too: DeviceStepState, of the optimizer, and the values of its
// groups (device/step_arguments.hpp).
//
// State has the parts, names and bytes that the host's stepper has, so that checkpoints are the same: a host stepper of
// the same shape, on the reference kernels, describes it and makes its first bytes.
#pragma once

#include <memory>

#include "device/device.hpp"
#include "device/step_arguments.hpp"
#include "matrixshard/kernels.h"
#include "optimizer/settings.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

struct DeviceStepCall {
  DeviceStepState *state_of_step = nullptr;       // device
  const mxs_group_values *values = nullptr;       // device: of this piece's group
  int64_t piece = 0;                              // for failed_piece
  const void *gradient = nullptr;                 // device, as in StepCall
  void *weights = nullptr, *master = nullptr;
  std::byte *state = nullptr, *workspace = nullptr;  // device, at 256-byte borders
  // For steppers that wait: what the host knows of the step.
  uint64_t step_number = 0;
  const mxs_group_values *host_values = nullptr;
};

class DeviceStepper {
 public:
  virtual ~DeviceStepper() = default;
  virtual uint64_t workspace_bytes() const = 0;  // device; of one call
  virtual mxs_status enqueue(const DeviceStepCall &call, DeviceStream stream) = 0;
  virtual const char *backend() const = 0;
  virtual mxs_dtype product_dtype() const = 0;
  virtual double flops() const = 0;
  // Its steps hang on what the host knows, so that they wait for the agreement, and are enqueued only if they count.
  virtual bool waits() const { return false; }
};

// As make_muon_stepper and the like. `host` has been made of the same matrices and options: its state parts are the
// state's. MXS_NOT_BUILT: a rule or an option that has no device form; the sentence says so.
mxs_status make_device_stepper(std::unique_ptr<DeviceStepper> *stepper, Device &device, mxs_rule rule,
                               const StepMatrices &matrices, const OptimizerSettings &settings, const Stepper &host);

}  // namespace mxs
