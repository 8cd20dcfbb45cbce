// SPDX-License-Identifier: Apache-2.0
// What the buffers of a checked turn hold. Every value depends on its position in the whole buffer, on the rank that
// gives it and on the turn, so that bytes of another place, another rank or an earlier turn are seen.
//
//   gather   any bits
//   reduce   small whole numbers, which every dtype holds and fp32 adds exactly, in any order
#pragma once

#include <cstddef>
#include <cstdint>

#include "matrixshard/types.h"

namespace bench {

// Elements of `element_bytes` (2 or 4), of which the first is the `first`th of the whole buffer.
struct Run {
  uint64_t first, count;
  size_t element_bytes;
};

void fill_gathered(void *memory, const Run &run, int owner, int turn);
uint64_t count_wrong_gathered(const void *memory, const Run &run, int owner, int turn);

void fill_term(void *memory, const Run &run, mxs_dtype dtype, int rank, int turn);
// What an accumulating target holds before.
void fill_base(float *memory, const Run &run, int turn);
uint64_t count_wrong_sums(const float *memory, const Run &run, int rank_count, int turn, bool on_base);

// What no value of a turn equals often: a gap that was not written shows.
void poison(void *memory, uint64_t bytes);

}  // namespace bench
