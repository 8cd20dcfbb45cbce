// SPDX-License-Identifier: Apache-2.0
// Newton-Schulz on the device: one maker for each backend.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda/device.hpp"
#include "device/linear.hpp"
#include "kernels/kernels.hpp"
#include "kernels/newton_schulz.hpp"
#include "kernels/recipe.hpp"

namespace mxs {

// What every backend is made of.
struct DeviceNewtonSchulz {
  NewtonSchulzShape shape = {};
  uint64_t count_most = 1;
  NewtonSchulzRecipe recipe;
  mxs_algorithm algorithm = MXS_ALGORITHM_AUTO;
};

std::unique_ptr<DeviceOrthogonalizer> make_reference_device_orthogonalizer(Device &device,
                                                                           const DeviceNewtonSchulz &wanted);
// MXS_NOT_BUILT: cublasLt can't be loaded, or has no kernel for the shape.
mxs_status make_cublas_orthogonalizer(std::unique_ptr<DeviceOrthogonalizer> *orthogonalizer, CudaDevice &device,
                                      const DeviceNewtonSchulz &wanted);

}  // namespace mxs
