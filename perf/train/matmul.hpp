// SPDX-License-Identifier: Apache-2.0
// Matmul: products of matrices by oneDNN, one primitive per shape, made when first used and kept.
//
// Shapes are always static: with sizes given only at run time oneDNN 2.6 leaves its fast kernels and sums in another
// order. With them a product depends on its operands alone: not on the rank, nor on where the operands lie.
//
// oneDNN multiplies bf16 where the CPU has AVX-512. Elsewhere operands are widened, and products are of fp32: the same
// values but for the order of sums, and slower.
#pragma once

#include <cstdint>
#include <memory>

#include "matrixshard/types.h"

namespace train {

// How a product reads an operand that is stored row-major as it stands, or as its transpose.
enum class As { stored, transposed };

struct Product {
  int64_t batch = 1;  // so many products, one after the other in memory
  int64_t rows, columns, depth;
  As left = As::stored, right = As::stored;
  mxs_dtype operands, result;

  bool operator<(const Product &other) const;
};

class Matmul {
 public:
  // Sets the threads of oneDNN in this process.
  explicit Matmul(int thread_count);
  ~Matmul();

  // What operands of this type are multiplied in on this CPU: the type itself or fp32.
  mxs_dtype multiplied_in(mxs_dtype operands) const;
  // Of widened operands and results, so far.
  uint64_t scratch_bytes() const;

  // result (rows x columns) = left (rows x depth) * right (depth x columns)
  void multiply(const Product &product, const void *left, const void *right, void *result);

 private:
  struct Inner;
  std::unique_ptr<Inner> inner_;
};

}  // namespace train
