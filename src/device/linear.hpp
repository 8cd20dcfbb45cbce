// SPDX-License-Identifier: Apache-2.0
// Linear algebra of matrices in device memory, put on a stream: with device pointers alone, it allocates nothing once
// it has been made, and can be captured.
//
//   DeviceOrthogonalizer  Newton-Schulz, as Orthogonalizer (kernels/kernels.hpp)
//   DeviceLinear          products, eigenvalues and QR, as Linear (kernels/linear.hpp)
//
// Two backends. The reference, our own kernels, runs on any GPU in fp32 (decompositions in fp64) and gives the bits of
// the host's reference. CUBLAS: cublasLt, loaded when it is used, with bf16 or fp16 factors and fp32 sums; cuSOLVER for
// decompositions. AUTO takes CUBLAS where it can be loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/device.hpp"
#include "matrixshard/types.h"

namespace mxs {

struct LinearProduct;         // kernels/linear.hpp
struct LinearUpdate;
struct NewtonSchulzRecipe;    // kernels/recipe.hpp
struct OrthogonalizerChoice;  // kernels/kernels.hpp

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

class DeviceLinear {
 public:
  virtual ~DeviceLinear() = default;
  virtual const char *backend() const = 0;  // "reference", "cublaslt 13.1.0, cusolver 12.0.4"

  // As the host's functions of the same name. One call at a time.
  virtual mxs_status multiply(const LinearProduct &product, DeviceStream stream) = 0;
  virtual mxs_status update(const LinearUpdate &update, DeviceStream stream) = 0;

  // Of either decomposition, at a 256-byte border; they need it until the stream has got there.
  virtual mxs_status workspace_bytes(uint64_t n, uint64_t *bytes) = 0;
  // matrix = Q diag(values) Q^T, of which the lower half counts: matrix becomes Q, values ascend. *failed (device) is
  // set: 0, or not 0 where an element is not finite or it did not converge; then matrix and values hold anything.
  virtual mxs_status eigh(uint64_t n, float *matrix, uint64_t stride, float *values, std::byte *workspace,
                          int32_t *failed, DeviceStream stream) = 0;
  // matrix = Q R with no negative number on R's diagonal: matrix becomes Q.
  virtual mxs_status qr(uint64_t n, float *matrix, uint64_t stride, std::byte *workspace, int32_t *failed,
                        DeviceStream stream) = 0;
};

// count_most: of one call of enqueue. MXS_NOT_BUILT: the backend can't be loaded, or has no such algorithm; backends of
// the host are none of the device's.
inline mxs_status make_device_orthogonalizer(std::unique_ptr<DeviceOrthogonalizer> *orthogonalizer, Device &device,
                                             int64_t rows, int64_t columns, uint64_t count_most,
                                             const NewtonSchulzRecipe &recipe, const OrthogonalizerChoice &choice) {
  return device.make_orthogonalizer(orthogonalizer, rows, columns, count_most, recipe, choice);
}

}  // namespace mxs
