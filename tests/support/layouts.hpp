// SPDX-License-Identifier: Apache-2.0
// Layouts for every world: even, one owner, some own nothing, all in one byte, odd sizes, nothing, several segments
// per rank, gaps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct TestSegment {
  int owner;
  uint64_t offset, bytes;
};

struct TestLayout {
  std::string name;
  uint64_t alignment = 1;
  std::vector<TestSegment> segments;
  uint64_t bytes = 0;

  TestLayout(std::string layout_name, uint64_t layout_alignment)
      : name(std::move(layout_name)), alignment(layout_alignment) {}

  void add(int owner, uint64_t segment_bytes) {
    const uint64_t offset = (bytes + alignment - 1) / alignment * alignment;
    segments.push_back({owner, offset, segment_bytes});
    bytes = offset + segment_bytes;
  }
};

// All segments are multiples of `element` bytes, and about `scale` elements long.
inline std::vector<TestLayout> test_layouts(int rank_count, uint64_t element, uint64_t scale) {
  std::vector<TestLayout> layouts;
  const uint64_t bytes = element * scale;
  TestLayout even("even", 1), first("all of rank 0", 1), last("all of the last rank", 1);
  TestLayout some("some own nothing", 64), tiny("one element", 1), odd("odd sizes", 1), nothing("nothing", 1);
  TestLayout many("several segments per rank", 1), gaps("gaps", 256), empty("no segments", 1);
  for (int rank = 0; rank < rank_count; ++rank) {
    even.add(rank, bytes);
    nothing.add(rank, 0);
    odd.add(rank, element * (1 + scale / 3 * static_cast<uint64_t>(rank) + static_cast<uint64_t>(rank * rank) % 7));
    if (rank % 3 == 1) some.add(rank, bytes + element * static_cast<uint64_t>(rank));
  }
  first.add(0, 3 * bytes + element);
  last.add(rank_count - 1, 2 * bytes + 5 * element);
  tiny.add(rank_count / 2, element);
  for (int turn = 0; turn < 3; ++turn)
    for (int rank = rank_count - 1; rank >= 0; --rank) {
      many.add(rank, element * (scale / 4 + static_cast<uint64_t>(turn)));
      gaps.add((rank * 5 + turn) % rank_count, rank == 1 ? 0 : element * (1 + scale / 5 + static_cast<uint64_t>(rank)));
    }
  for (TestLayout *layout : {&even, &first, &last, &some, &tiny, &odd, &nothing, &many, &gaps, &empty})
    layouts.push_back(*layout);
  return layouts;
}

constexpr int test_worlds[] = {1, 2, 3, 4, 7, 8};
