// SPDX-License-Identifier: Apache-2.0
// DeviceOrthogonalizer: Newton-Schulz of matrices in device memory, put on a stream. As Orthogonalizer
// (kernels/kernels.hpp), with device pointers alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.hpp"
#include "matrixshard/types.h"

namespace mxs {

class DeviceOrthogonalizer {
 public:
  virtual ~DeviceOrthogonalizer() = default;
  virtual uint64_t workspace_bytes() const = 0;  // of one call with as many matrices as it was made for
  // In place: `count` dense matrices, one behind the other. squares: of each the sum of its elements' squares; where it
  // is not finite the matrix' contents don't matter afterwards. *skip is 1: nothing needs to be done. `workspace` lies
  // at a 256-byte border. Allocates nothing, and can be captured.
  virtual mxs_status enqueue(float *matrices, uint64_t count, const double *squares, const int32_t *skip,
                             std::byte *workspace, DeviceStream stream) = 0;
  // Such as "cublaslt bf16 standard", "reference standard".
  virtual const char *backend() const = 0;
  virtual mxs_dtype product_dtype() const = 0;
};

}  // namespace mxs
