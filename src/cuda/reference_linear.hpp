// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "device/linear.hpp"

namespace mxs {

std::unique_ptr<DeviceLinear> make_reference_device_linear(Device &device);

}  // namespace mxs
