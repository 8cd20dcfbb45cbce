// SPDX-License-Identifier: Apache-2.0
#include "soak/layouts.hpp"

#include <algorithm>

namespace soak {

void Layout::add(int owner, uint64_t segment_bytes) {
  mxs_segment segment = MXS_SEGMENT_INIT;
  segment.owner = owner;
  segment.offset = (bytes + alignment - 1) / alignment * alignment;
  segment.bytes = segment_bytes;
  segments.push_back(segment);
  bytes = segment.offset + segment_bytes;
}

uint64_t Layout::owned_bytes(int rank) const {
  uint64_t sum = 0;
  for (const mxs_segment &segment : segments)
    if (segment.owner == rank) sum += segment.bytes;
  return sum;
}

namespace {

Layout draw(Choices *choices, int rank_count, uint64_t element, uint64_t bytes_max, bool dense) {
  Layout layout;
  const auto ranks = static_cast<uint64_t>(rank_count);
  const uint64_t most = std::max<uint64_t>(1, bytes_max / element / ranks);  // elements of a rank
  const auto any_rank = [&] { return static_cast<int>(choices->between(0, rank_count - 1)); };
  const uint64_t alignment = uint64_t{1} << choices->between(2, 12);
  if (!dense && choices->one_in(3)) layout.alignment = alignment;
  switch (choices->between(0, 7)) {
    case 0: {
      layout.name = "even";
      const uint64_t each = choices->size(most);
      for (int rank = 0; rank < rank_count; rank++) layout.add(rank, each * element);
      break;
    }
    case 1: {
      layout.name = "one owner";
      layout.add(any_rank(), choices->size(most * ranks) * element);
      break;
    }
    case 2: {
      layout.name = "some empty";
      for (int rank = 0; rank < rank_count; rank++)
        layout.add(rank, choices->one_in(2) ? 0 : choices->size(most) * element);
      break;
    }
    case 3: {
      layout.name = "one element";
      layout.add(any_rank(), element);
      break;
    }
    case 4: {
      layout.name = "nothing";
      for (int rank = 0; rank < rank_count; rank++) layout.add(rank, 0);
      break;
    }
    case 5: {
      layout.name = "many segments";
      const int64_t count = choices->between(2, 40);
      for (int64_t i = 0; i < count; i++)
        layout.add(any_rank(), choices->size(std::max<uint64_t>(1, most * ranks / static_cast<uint64_t>(count))) *
                                   element);
      break;
    }
    default: {
      layout.name = "odd sizes";
      for (int rank = 0; rank < rank_count; rank++) layout.add(rank_count - 1 - rank, choices->size(most) * element);
      break;
    }
  }
  return layout;
}

}  // namespace

Layout draw_layout(Choices *choices, int rank_count, uint64_t element_bytes, uint64_t bytes_max) {
  return draw(choices, rank_count, element_bytes, bytes_max, false);
}

Layout draw_dense_layout(Choices *choices, int rank_count, uint64_t element_bytes, uint64_t bytes_max) {
  return draw(choices, rank_count, element_bytes, bytes_max, true);
}

Layout draw_other_owners(Choices *choices, const Layout &layout, int rank_count, uint64_t element_bytes) {
  Layout other;
  other.name = "others";
  uint64_t left = layout.bytes / element_bytes;
  while (left > 0) {
    const uint64_t elements = choices->one_in(8) ? left : std::min(left, choices->size(left));
    other.add(static_cast<int>(choices->between(0, rank_count - 1)), elements * element_bytes);
    left -= elements;
    if (other.segments.size() == 64) {
      other.add(static_cast<int>(choices->between(0, rank_count - 1)), left * element_bytes);
      left = 0;
    }
  }
  if (other.segments.empty()) other.add(0, 0);
  return other;
}

mxs::layout made(const Layout &layout, int rank_count) {
  return mxs::make_layout(layout.segments, rank_count, layout.alignment);
}

}  // namespace soak
