// SPDX-License-Identifier: Apache-2.0
// Drawn layouts: even, one owner, some empty, one element in all, odd sizes, several segments per rank, gaps, nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.hpp"
#include "soak/drawn.hpp"

namespace soak {

struct Layout {
  std::string name;
  uint64_t alignment = 1;
  std::vector<mxs_segment> segments;
  uint64_t bytes = 0;

  void add(int owner, uint64_t segment_bytes);
  uint64_t owned_bytes(int rank) const;
};

// Segments are whole elements; all of them together are about bytes_max at the most.
Layout draw_layout(Choices *choices, int rank_count, uint64_t element_bytes, uint64_t bytes_max);
// The same bytes with other owners and borders, without gaps. `layout` has none either.
Layout draw_other_owners(Choices *choices, const Layout &layout, int rank_count, uint64_t element_bytes);
// Without gaps: what a reshard takes.
Layout draw_dense_layout(Choices *choices, int rank_count, uint64_t element_bytes, uint64_t bytes_max);

mxs::layout made(const Layout &layout, int rank_count);

}  // namespace soak
