// SPDX-License-Identifier: Apache-2.0
// DeviceKernels: sums and conversions of device memory, in stream order. They give the bits of kernels/kernels.hpp's
// functions of the same name: no contraction, one order of addition.
#pragma once

#include <cstdint>

#include "device/device.hpp"
#include "matrixshard/types.h"

namespace mxs {

class DeviceKernels {
 public:
  static constexpr int sources_max = 64;

  virtual ~DeviceKernels() = default;
  // target += source, which has `dtype`
  virtual mxs_status add(float *target, const void *source, mxs_dtype dtype, uint64_t elements,
                         DeviceStream stream) = 0;
  // target = ((base + sources[0]) + sources[1]) + ... in fp32; base nullptr: begins from zero. base may be target.
  // count <= sources_max; the list is copied at once.
  virtual mxs_status sum_in_order(float *target, const float *base, const void *const *sources, int count,
                                  mxs_dtype dtype, uint64_t elements, DeviceStream stream) = 0;
  // fp32 -> dtype (to nearest even), and back
  virtual mxs_status narrow(void *target, mxs_dtype dtype, const float *source, uint64_t elements,
                            DeviceStream stream) = 0;
  virtual mxs_status widen(float *target, const void *source, mxs_dtype dtype, uint64_t elements,
                           DeviceStream stream) = 0;
};

}  // namespace mxs
