// SPDX-License-Identifier: Apache-2.0
// The reference table: one element after the other, as the formulas stand in the books. It judges the other tables,
// which must agree with it bit for bit, and it serves every CPU that they don't know.
#include <algorithm>
#include <cstring>

#include "kernels/elements.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference/passes.hpp"

namespace mxs {

namespace {

void copy_to_many(std::byte *const *targets, int count, const std::byte *source, size_t bytes) {
  if (bytes == 0) return;
  for (int t = 0; t < count; ++t) std::memcpy(targets[t], source, bytes);
}

void sum_in_order(float *target, const float *base, const void *const *sources, int count, mxs_dtype dtype,
                  size_t elements) {
  for (size_t i = 0; i < elements; ++i) target[i] = element::sum_in_order(base, sources, count, dtype, i);
}

void add(float *target, const void *source, mxs_dtype dtype, size_t elements) {
  for (size_t i = 0; i < elements; ++i) target[i] += element::load(source, dtype, i);
}

void narrow(void *target, mxs_dtype dtype, const float *source, size_t elements) {
  for (size_t i = 0; i < elements; ++i) element::store(target, dtype, i, source[i]);
}

void widen(float *target, const void *source, mxs_dtype dtype, size_t elements) {
  for (size_t i = 0; i < elements; ++i) target[i] = element::load(source, dtype, i);
}

void multiply(const Product &p) {
  for (size_t row = 0; row < p.rows; ++row)
    for (size_t column = 0; column < (p.lower ? std::min(row + 1, p.columns) : p.columns); ++column) {
      float total = 0.0f;
      for (size_t first = 0; first < p.inner; first += product_block) {
        float sum = 0.0f;
        for (size_t k = first; k < std::min(first + product_block, p.inner); ++k)
          sum += p.left[row * p.left_stride + k] *
                 (p.right_turned ? p.right[column * p.right_stride + k] : p.right[k * p.right_stride + column]);
        total = first == 0 ? sum : total + sum;
      }
      p.target[row * p.target_stride + column] = total;
    }
}

}  // namespace

const Kernels &reference_kernels() {
  static constexpr Kernels table = {
      "reference",      copy_to_many,         sum_in_order,         add,
      narrow,           widen,                reference::sum_of_squares,
      reference::momentum, reference::direction, reference::apply,  reference::adamw,
      reference::scale_weights, reference::scale, multiply,
  };
  return table;
}

}  // namespace mxs
