// SPDX-License-Identifier: Apache-2.0
// The door to NCCL for the rest of this library.
#pragma once

#include <cuda.h>

#include <memory>
#include <string>

#include "device/group.hpp"

namespace mxs {

struct Driver;

// 23004; 0 and *why_not if NCCL can't be had. Loads it.
int nccl_version(std::string *why_not);

// As Device::make_group: collective over the group's ranks. `context` is the device's primary context, which is made
// current around NCCL's calls.
mxs_status make_nccl_group(std::unique_ptr<DeviceGroup> *group, const Driver &driver, CUcontext context, int device,
                           const GroupOptions &options);

}  // namespace mxs
