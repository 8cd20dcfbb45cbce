// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cuda/device.hpp"
#include "device/linear.hpp"

namespace mxs {

// MXS_NOT_BUILT: cuSOLVER can't be loaded.
mxs_status make_cusolver_linear(std::unique_ptr<DeviceLinear> *linear, CudaDevice &device);

}  // namespace mxs
