// SPDX-License-Identifier: Apache-2.0
// Layout: who owns which bytes of a buffer. A pure value; see include/matrixshard/layout.h.
#pragma once

#include <cstdint>
#include <vector>

#include "matrixshard/status.h"

namespace mxs {

struct Segment {
  int owner = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct Layout {
  std::vector<Segment> segments;  // ascending, gap-free up to alignment
  int rank_count = 0;
  uint64_t alignment = 1;
  uint64_t bytes = 0;  // to the end of the last segment

  uint64_t owned_bytes(int rank) const;
  uint64_t hash() const;
};

// Checks everything that mxs_layout_create promises. *layout is untouched on failure.
mxs_status make_layout(std::vector<Segment> segments, int rank_count, uint64_t alignment, Layout *layout);
mxs_status make_even_layout(uint64_t bytes, uint64_t element_bytes, int rank_count, Layout *layout);

// One run of bytes that goes from its owner in one layout to its owner in another, who may be the same rank.
struct LayoutMove {
  int source_rank, target_rank;
  uint64_t source_offset, target_offset;  // bytes within each rank's packed segments
  uint64_t bytes;
};

// Both layouts have the same bytes and no gaps. Ascending in the buffer's offset. Worlds may differ: rank r of one is
// rank r of the other.
mxs_status moves_between(const Layout &source, const Layout &target, std::vector<LayoutMove> *moves);
// Of layouts of one world, as reshard has them.
mxs_status layout_moves(const Layout &source, const Layout &target, std::vector<LayoutMove> *moves);

}  // namespace mxs
