// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/device.hpp"

namespace mxs {

// Before anything else here is called.
void borrow_services(const DeviceServices &services);

}  // namespace mxs
