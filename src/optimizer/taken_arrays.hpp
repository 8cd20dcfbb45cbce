// SPDX-License-Identifier: Apache-2.0
// Arrays that a caller hands in for one call: are they there, at their borders, and apart from each other?
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

inline mxs_status check_array(const void *array, const char *name, uint64_t border) {
  if (!array) return set_error(MXS_INVALID_ARGUMENT, "%s is NULL, but this call needs it", name);
  if (reinterpret_cast<uintptr_t>(array) % border == 0) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "%s is at %p, not at a multiple of %llu bytes", name, array,
                   static_cast<unsigned long long>(border));
}

struct TakenArray {
  const char *name;
  const void *first;  // nullptr: not taken
  uint64_t bytes;     // from the first to one past the last, gaps included
};

// No array may reach into another.
inline mxs_status check_taken_apart(const TakenArray *arrays, size_t count) {
  for (const TakenArray *a = arrays; a != arrays + count; ++a)
    for (const TakenArray *b = a + 1; b != arrays + count; ++b) {
      if (!a->first || !b->first) continue;
      const uintptr_t a_first = reinterpret_cast<uintptr_t>(a->first), b_first = reinterpret_cast<uintptr_t>(b->first);
      if (a_first < b_first + b->bytes && b_first < a_first + a->bytes)
        return set_error(MXS_INVALID_ARGUMENT, "%s (%llu bytes at %p) and %s (%llu bytes at %p) overlap", a->name,
                         static_cast<unsigned long long>(a->bytes), a->first, b->name,
                         static_cast<unsigned long long>(b->bytes), b->first);
    }
  return MXS_OK;
}

// Of one element of what stands beside the weights; 0: there is nothing.
inline uint64_t master_width(const StepMatrices &matrices) {
  if (matrices.weights == MXS_WEIGHTS_MASTER) return sizeof(float);
  return matrices.weights == MXS_WEIGHTS_REMAINDER ? sizeof(uint16_t) : 0;
}

}  // namespace mxs
