// SPDX-License-Identifier: Apache-2.0
// AdamW in CUDA memory: one launch for a placement.
#include "kernels/presets.hpp"
#include "optimizer/device_steppers.hpp"

namespace mxs {

namespace {

class DeviceAdamw final : public DeviceStepper {
 public:
  DeviceAdamw(Device &device, const StepMatrices &matrices, const Stepper &host)
      : device_(device), elements_(matrices.elements()), parts_(host.state_parts()), flops_(host.flops()) {}

  mxs_status prepare(const StepMatrices &matrices, mxs_adamw_options options) {
    mxs_status status = complete(&options);
    if (status == MXS_OK) status = weights_for_passes(&weights_, matrices, options.decay);
    epsilon_before_ = options.epsilon_before == MXS_ON;
    return status;
  }

  uint64_t workspace_bytes() const override { return 0; }
  const char *backend() const override { return "cuda"; }
  mxs_dtype product_dtype() const override { return MXS_F32; }
  double flops() const override { return flops_; }

  mxs_status enqueue(const DeviceStepCall &call, DeviceStream stream) override {
    AdamwArguments arguments;
    arguments.step = pass_step(call);
    arguments.weights = at(weights_, call);
    arguments.epsilon_before = epsilon_before_;
    arguments.gradient = static_cast<const float *>(call.gradient);
    arguments.exp_avg = reinterpret_cast<float *>(call.state + parts_[0].offset);
    arguments.exp_avg_sq = reinterpret_cast<float *>(call.state + parts_[1].offset);
    arguments.elements = elements_;
    return launch_pass(device_, "mxs_pass_adamw", arguments, elements_, stream);
  }

 private:
  Device &device_;
  const uint64_t elements_;
  const std::vector<StatePart> parts_;
  const double flops_;
  PassWeights weights_;
  bool epsilon_before_ = false;
};

}  // namespace

mxs_status make_device_adamw(std::unique_ptr<DeviceStepper> *stepper, Device &device, const StepMatrices &matrices,
                             const OptimizerSettings &settings, const Stepper &host) {
  auto made = std::make_unique<DeviceAdamw>(device, matrices, host);
  const mxs_status status = made->prepare(matrices, settings.adamw);
  if (status == MXS_OK) *stepper = std::move(made);
  return status;
}

}  // namespace mxs
