// SPDX-License-Identifier: Apache-2.0
// The rules that have a form for CUDA memory, and what they have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/arithmetic.hpp"
#include "device/pass_arguments.hpp"
#include "kernels/passes.hpp"
#include "optimizer/device_stepper.hpp"

namespace mxs {

mxs_status make_device_adamw(std::unique_ptr<DeviceStepper> *stepper, Device &device, const StepMatrices &matrices,
                             const OptimizerSettings &settings, const Stepper &host);

mxs_status make_device_muon(std::unique_ptr<DeviceStepper> *stepper, Device &device, const StepMatrices &matrices,
                            const OptimizerSettings &settings, const Stepper &host);

mxs_status make_device_shampoo(std::unique_ptr<DeviceStepper> *stepper, Device &device, const StepMatrices &matrices,
                               const OptimizerSettings &settings, const Stepper &host);
mxs_status make_device_soap(std::unique_ptr<DeviceStepper> *stepper, Device &device, const StepMatrices &matrices,
                            const OptimizerSettings &settings, const Stepper &host);

mxs_status weights_for_passes(PassWeights *weights, const StepMatrices &matrices, mxs_decay decay);

inline PassStep pass_step(const DeviceStepCall &call) { return {call.state_of_step, call.values, call.piece}; }

inline PassWeights at(PassWeights weights, const DeviceStepCall &call) {
  weights.weights = call.weights;
  weights.master = call.master;
  return weights;
}

// Blocks for so many threads of work: enough to fill any device, each thread then takes several turns.
inline uint32_t pass_blocks(uint64_t threads) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(divide_up(threads, uint64_t{pass_threads}), 1, 4096));
}

template <class Arguments>
mxs_status launch_pass(Device &device, const char *kernel, const Arguments &arguments, uint64_t threads,
                       DeviceStream stream) {
  return device.launch(kernel, &arguments, sizeof arguments, pass_blocks(threads), pass_threads, stream);
}

}  // namespace mxs
