// SPDX-License-Identifier: Apache-2.0
// Makes a device's DeviceKernels, which launch kernels of src/cuda/kernels.
#pragma once

#include <memory>

#include "device/kernels.hpp"

namespace mxs {

std::unique_ptr<DeviceKernels> make_device_kernels(Device &device);

}  // namespace mxs
