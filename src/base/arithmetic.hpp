// SPDX-License-Identifier: Apache-2.0
// Sizes that can't overflow silently, and rounding.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mxs {

// No buffer is larger: sums of two still fit in int64_t.
constexpr uint64_t bytes_max = uint64_t{1} << 62;

// No world is larger: tables per rank stay small, and a mistyped number is told from a real one.
constexpr int rank_count_max = 1 << 20;

// Both return false, and leave *result alone, if the true result exceeds bytes_max.
[[nodiscard]] inline bool checked_add(uint64_t a, uint64_t b, uint64_t *result) {
  if (a > bytes_max || b > bytes_max - a) return false;
  *result = a + b;
  return true;
}
[[nodiscard]] inline bool checked_multiply(uint64_t a, uint64_t b, uint64_t *result) {
  if (b != 0 && a > bytes_max / b) return false;
  *result = a * b;
  return true;
}

constexpr bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

// alignment: a power of two.
constexpr uint64_t align_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }
constexpr uint64_t align_down(uint64_t value, uint64_t alignment) { return value & ~(alignment - 1); }

constexpr uint64_t divide_up(uint64_t value, uint64_t divisor) { return (value + divisor - 1) / divisor; }

}  // namespace mxs
