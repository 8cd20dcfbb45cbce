// SPDX-License-Identifier: Apache-2.0
// From one layout to another: which bytes go from whom to whom.
//
//   source   |  r0  |    r1    |        both are walked from the left; a move ends
//   target   |r1|   r0    | r2 |        where either owner changes
//   moves     0>1 0>0 1>0  1>2
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/status.hpp"
#include "layout/layout.hpp"

namespace mxs {
namespace {

// A place in a layout that walks over its bytes, and knows how far each rank's packed buffer is used up.
class Cursor {
 public:
  explicit Cursor(const Layout &layout)
      : segments_(layout.segments), packed_(static_cast<size_t>(layout.rank_count), 0) {
    pass_empty();
  }
  bool at_end() const { return index_ == segments_.size(); }
  int owner() const { return segments_[index_].owner; }
  uint64_t left() const { return segments_[index_].bytes - used_; }
  uint64_t packed_offset() const { return packed_[static_cast<size_t>(owner())]; }
  void advance(uint64_t bytes) {
    packed_[static_cast<size_t>(owner())] += bytes;
    used_ += bytes;
    pass_empty();
  }

 private:
  void pass_empty() {
    while (index_ < segments_.size() && used_ == segments_[index_].bytes) {
      ++index_;
      used_ = 0;
    }
  }
  const std::vector<Segment> &segments_;
  std::vector<uint64_t> packed_;
  size_t index_ = 0;
  uint64_t used_ = 0;
};

bool continues(const LayoutMove &last, const LayoutMove &next) {
  return last.source_rank == next.source_rank && last.target_rank == next.target_rank &&
         last.source_offset + last.bytes == next.source_offset &&
         last.target_offset + last.bytes == next.target_offset;
}

bool has_gaps(const Layout &layout) {
  uint64_t sum = 0;
  for (const Segment &segment : layout.segments) sum += segment.bytes;
  return sum != layout.bytes;
}

}  // namespace

mxs_status moves_between(const Layout &source, const Layout &target, std::vector<LayoutMove> *moves) {
  if (source.bytes != target.bytes)
    return set_error(MXS_INVALID_ARGUMENT, "the source layout has %" PRIu64 " bytes, the target layout %" PRIu64,
                     source.bytes, target.bytes);
  if (has_gaps(source) || has_gaps(target))
    return set_error(MXS_INVALID_ARGUMENT, "the %s layout has gaps; moves need layouts without",
                     has_gaps(source) ? "source" : "target");

  std::vector<LayoutMove> result;
  Cursor from(source), to(target);
  while (!from.at_end()) {
    const LayoutMove move = {from.owner(),         to.owner(), from.packed_offset(),
                             to.packed_offset(), std::min(from.left(), to.left())};
    from.advance(move.bytes);
    to.advance(move.bytes);
    if (!result.empty() && continues(result.back(), move))
      result.back().bytes += move.bytes;
    else
      result.push_back(move);
  }
  *moves = std::move(result);
  return MXS_OK;
}

mxs_status layout_moves(const Layout &source, const Layout &target, std::vector<LayoutMove> *moves) {
  if (source.rank_count != target.rank_count)
    return set_error(MXS_INVALID_ARGUMENT, "the source layout has %d ranks, the target layout %d", source.rank_count,
                     target.rank_count);
  return moves_between(source, target, moves);
}

}  // namespace mxs
