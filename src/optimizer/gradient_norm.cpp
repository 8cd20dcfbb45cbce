// SPDX-License-Identifier: Apache-2.0
#include "optimizer/gradient_norm.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "optimizer/step_matrices.hpp"

namespace mxs {

namespace {

// A team's part: 256 KiB of fp32.
constexpr uint64_t part_elements = 16 * norm_chunk;

// Elements [first, first + length) of the batch, counted as if it were dense.
void collect(const StepMatrices &matrices, const void *gradient, uint64_t first, uint64_t length, std::byte *target) {
  const uint64_t columns = static_cast<uint64_t>(matrices.columns), rows = static_cast<uint64_t>(matrices.rows);
  const size_t width = dtype_bytes(matrices.gradient_dtype);
  for (uint64_t done = 0; done < length;) {
    const uint64_t line = (first + done) / columns, column = (first + done) % columns;
    const uint64_t run = std::min(length - done, columns - column);
    const uint64_t place = line / rows * static_cast<uint64_t>(matrices.gradient_matrix) +
                           line % rows * static_cast<uint64_t>(matrices.gradient_row) + column;
    std::memcpy(target + done * width, static_cast<const std::byte *>(gradient) + place * width, run * width);
    done += run;
  }
}

}  // namespace

bool GradientNorm::find(const StepMatrices &matrices, const void *gradient, float scale, Team *team, double *norm) {
  std::fill(sums_.begin(), sums_.end(), ExactSum());
  const uint64_t elements = matrices.elements();
  const bool dense = is_dense(matrices, matrices.gradient_row, matrices.gradient_matrix);
  const mxs_dtype dtype = matrices.gradient_dtype;
  std::atomic<bool> all_finite{true};
  team->run(divide_up(elements, part_elements), [&](size_t part, int member) {
    ExactSum *const sum = &sums_[static_cast<size_t>(member)];
    const uint64_t end = std::min(elements, (part + 1) * part_elements);
    for (uint64_t first = part * part_elements; first < end; first += norm_chunk) {
      const uint64_t length = std::min<uint64_t>(norm_chunk, end - first);
      const std::byte *place = static_cast<const std::byte *>(gradient) + first * dtype_bytes(dtype);
      alignas(64) std::byte chunk[norm_chunk * sizeof(float)];
      if (!dense) {
        collect(matrices, gradient, first, length, chunk);
        place = chunk;
      }
      if (!add_squares(place, dtype, length, scale, sum))
        all_finite.store(false, std::memory_order_relaxed);
    }
  });
  if (!all_finite.load(std::memory_order_relaxed)) return false;
  ExactSum total;
  for (const ExactSum &sum : sums_)
    for (size_t word = 0; word < MXS_NORM_WORDS; ++word) total.words[word] += sum.words[word];
  *norm = std::sqrt(total.value());
  return true;
}

}  // namespace mxs
