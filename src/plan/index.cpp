// SPDX-License-Identifier: Apache-2.0
// What belongs to each rank, sorted once, so that 4,096 ranks can be asked without 4,096 walks over all placements.
//
// And the pages of the slots, which all units lie over one another in:
//
//   unit 0     | rank 0 | rank 1     |             a page that only one rank has in any unit is foreign to all but it;
//   unit 1     | rank 0     | rank 1 | rank 2 |    one that several have is foreign to everybody
//   only       |   0    |----|   1   |   2    |
#include <algorithm>
#include <numeric>

#include "base/arithmetic.hpp"
#include "plan/memory.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

// From how many each rank has, at begin[rank + 1], to where those of each begin.
void counts_to_begins(std::vector<uint64_t> *begins) {
  std::partial_sum(begins->begin(), begins->end(), begins->begin());
}

template <class Visit>
void for_each_segment(const Plan &plan, const Visit &visit) {
  for (size_t unit = 0; unit < plan.units.size(); ++unit)
    for (const Segment &segment : plan.units[unit].weights.segments)
      if (segment.bytes != 0) visit(static_cast<int>(unit), segment);
}

void index_placements(Plan *plan, RankIndex *index) {
  for (const Placement &piece : plan->placements) {
    ++index->placement_begin[static_cast<size_t>(piece.owner) + 1];
    index->matrix_count[static_cast<size_t>(piece.owner)] += static_cast<int>(piece.matrix_count);
  }
  counts_to_begins(&index->placement_begin);
  index->placements.resize(plan->placements.size());
  std::vector<uint64_t> next = index->placement_begin;
  for (const PlannedUnit &unit : plan->units)
    for (const uint64_t number : unit.placements)
      index->placements[next[static_cast<size_t>(plan->placements[number].owner)]++] = number;
}

void index_segments(Plan *plan, RankIndex *index) {
  for_each_segment(*plan, [&](int, const Segment &segment) {
    ++index->segment_begin[static_cast<size_t>(segment.owner) + 1];
  });
  counts_to_begins(&index->segment_begin);
  index->segments.resize(index->segment_begin.back());
  std::vector<uint64_t> next = index->segment_begin;
  for_each_segment(*plan, [&](int unit, const Segment &segment) {
    index->segments[next[static_cast<size_t>(segment.owner)]++] = {unit, segment.offset, segment.bytes};
  });
}

void sum_weight_bytes_max(RankIndex *index) {
  for (size_t rank = 0; rank < index->weight_bytes_max.size(); ++rank) {
    uint64_t bytes = 0;
    int unit = -1;
    for (uint64_t next = index->segment_begin[rank]; next < index->segment_begin[rank + 1]; ++next) {
      const RankSegment &segment = index->segments[next];
      bytes = segment.unit == unit ? bytes + segment.bytes : segment.bytes;
      unit = segment.unit;
      index->weight_bytes_max[rank] = std::max(index->weight_bytes_max[rank], bytes);
    }
  }
}

// Walks over pages from left to right. Of the segments that began so far it is enough to know which ends last, and
// which ends last of those that another rank owns: the second covers what several have.
class PageWalk {
 public:
  explicit PageWalk(std::vector<SlotPages> *pages) : pages_(*pages) {}

  void begin(const Segment &range) {
    pass(range.offset);
    const uint64_t end = range.offset + range.bytes;
    if (range.owner == owner_ || end > end_) {
      if (range.owner != owner_) other_end_ = end_;
      owner_ = range.owner;
      end_ = std::max(end_, end);
    } else {
      other_end_ = std::max(other_end_, end);
    }
  }
  void pass(uint64_t offset) {
    add(std::min(offset, other_end_), several_owners);
    add(std::min(offset, end_), owner_);
    at_ = std::max(at_, offset);
  }

 private:
  void add(uint64_t end, int owner) {
    if (end <= at_) return;
    if (!pages_.empty() && pages_.back().owner == owner && pages_.back().offset + pages_.back().bytes == at_)
      pages_.back().bytes += end - at_;
    else
      pages_.push_back({at_, end - at_, owner});
    at_ = end;
  }

  std::vector<SlotPages> &pages_;
  uint64_t at_ = 0, end_ = 0, other_end_ = 0;
  int owner_ = several_owners;
};

void index_slot_pages(Plan *plan, RankIndex *index) {
  std::vector<Segment> ranges;
  ranges.reserve(index->segments.size());
  for_each_segment(*plan, [&](int, const Segment &segment) {
    const uint64_t begin = align_down(segment.offset, pool_page_bytes);
    ranges.push_back({segment.owner, begin, align_up(segment.offset + segment.bytes, pool_page_bytes) - begin});
  });
  std::sort(ranges.begin(), ranges.end(), [](const Segment &a, const Segment &b) { return a.offset < b.offset; });
  PageWalk walk(&index->slot_pages);
  for (const Segment &range : ranges) walk.begin(range);
  walk.pass(UINT64_MAX);
  for (const SlotPages &pages : index->slot_pages) {
    index->slot_bytes += pages.bytes;
    if (pages.owner != several_owners) index->sole_slot_bytes[static_cast<size_t>(pages.owner)] += pages.bytes;
  }
}

}  // namespace

void index_ranks(Plan *plan) {
  const size_t rank_count = static_cast<size_t>(plan->topology.rank_count());
  RankIndex index;
  index.placement_begin.assign(rank_count + 1, 0);
  index.segment_begin.assign(rank_count + 1, 0);
  index.weight_bytes_max.assign(rank_count, 0);
  index.matrix_count.assign(rank_count, 0);
  index.sole_slot_bytes.assign(rank_count, 0);
  index_placements(plan, &index);
  index_segments(plan, &index);
  sum_weight_bytes_max(&index);
  index_slot_pages(plan, &index);
  plan->index = std::move(index);
}

}  // namespace mxs
