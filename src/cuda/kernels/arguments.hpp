// SPDX-License-Identifier: Apache-2.0
// Arguments of kernels that only this library launches: sums and conversions, and linear algebra. Those that the
// optimizer launches: src/device/*_arguments.hpp. All run with any number of blocks, and give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "matrixshard/types.h"

namespace mxs {

// ---- sums and conversions: sums.cuh. Elements are spread over all threads. ----

// mxs_add: target += source
struct AddArguments {
  float *target = nullptr;
  const void *source = nullptr;
  mxs_dtype dtype = MXS_F32;
  uint64_t elements = 0;
};

// mxs_sum_in_order
struct SumInOrderArguments {
  static constexpr int sources_max = 64;

  float *target = nullptr;
  const float *base = nullptr;  // nullptr: zero
  mxs_dtype dtype = MXS_F32;
  int32_t count = 0;
  uint64_t elements = 0;
  const void *sources[sources_max] = {};
};

// mxs_narrow (fp32 -> dtype) and mxs_widen
struct ConvertArguments {
  void *target = nullptr;
  const void *source = nullptr;
  mxs_dtype dtype = MXS_F32;
  uint64_t elements = 0;
};

// ---- products: products.cuh ----

// Of a batch: `matrix` is from one matrix to the next. In elements, like strides.
struct FactorArgument {
  const float *data = nullptr;
  uint64_t stride = 0, matrix = 0;
  int32_t turned = 0;
};

// mxs_multiply, product_threads threads: target = alpha * left * right + beta * addend. Each element is summed as
// Product of kernels/kernels.hpp says. The addend may be target; nullptr: there is none.
struct MultiplyArguments {
  uint64_t rows = 0, columns = 0, inner = 0;
  FactorArgument left, right;
  float *target = nullptr;
  uint64_t target_stride = 0, target_matrix = 0;
  const float *addend = nullptr;
  uint64_t addend_stride = 0, addend_matrix = 0;
  float alpha = 1, beta = 0;
  int32_t symmetric = 0;  // the lower half is computed, of the addend it is read, and mirrored
  uint32_t count = 1;
  const int32_t *skip = nullptr;  // device; of Newton-Schulz: 1 does nothing
};
constexpr uint32_t product_threads = 256;
constexpr uint64_t product_tile = 64;

// ---- Newton-Schulz: newton_schulz.cuh ----

// What turns a sum of squares into a factor: of NewtonSchulzRecipe.
struct NormArgument {
  const double *squares = nullptr;  // device; of each matrix
  double epsilon = 0, safety = 1;
  int32_t adds_epsilon = 0;
};

// mxs_newton_schulz_load, move_threads threads: target (dense, turned if asked) = source / norm. A matrix of zeros, or
// one whose sum of squares is not finite, becomes zeros.
// mxs_newton_schulz_store: target = source (dense, turned back if asked).
struct MoveArguments {
  uint64_t rows = 0, columns = 0;  // of the side that is not turned: of load's source, of store's target
  const void *source = nullptr;
  uint64_t source_stride = 0, source_matrix = 0;
  void *target = nullptr;
  uint64_t target_stride = 0, target_matrix = 0;
  mxs_dtype dtype = MXS_F32;  // of load's target, of store's source; the other is fp32
  int32_t turned = 0;
  NormArgument norm;  // load
  uint32_t count = 1;
  const int32_t *skip = nullptr;
};
constexpr uint32_t move_threads = 256;
constexpr uint64_t move_tile = 32;

// mxs_add_diagonal: target = source + a I, dense n x n; elements are spread over all threads.
struct AddDiagonalArguments {
  void *target = nullptr;
  const void *source = nullptr;
  mxs_dtype dtype = MXS_F32;
  float a = 0;
  uint64_t n = 0;
  uint32_t count = 1;
  const int32_t *skip = nullptr;
};

// ---- decompositions: decompositions.cuh; 1 block ----

// mxs_eigh and mxs_qr: as eigh and qr of kernels/linear.hpp's reference, with the same bits.
struct DecomposeArguments {
  uint64_t n = 0, stride = 0;
  float *matrix = nullptr;
  float *values = nullptr;         // eigh
  std::byte *workspace = nullptr;  // decompose_bytes(n), at a border of 8 bytes
  int32_t *failed = nullptr;       // set: 0, or why matrix is not what was asked for
};
constexpr uint32_t decompose_threads = 256;
constexpr uint64_t decompose_bytes(uint64_t n) { return 16 * (n + 1) * n; }

// Around cuSOLVER's decompositions.
// mxs_end_eigh: *failed = its info, or 1 where a value is not finite.
// mxs_take_signs: signs[k] = -1 where diagonal element k of a dense matrix is negative, else 1. *failed likewise.
// mxs_flip_columns: column k of matrix times signs[k].
struct CusolverArguments {
  uint64_t n = 0, stride = 0;
  float *matrix = nullptr;
  float *signs = nullptr;  // of mxs_end_eigh the values
  const int32_t *info = nullptr;
  int32_t *failed = nullptr;
};

}  // namespace mxs
