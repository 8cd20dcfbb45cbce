// SPDX-License-Identifier: Apache-2.0
#include "plan/page_ranges.hpp"

#include <algorithm>

#include "base/arithmetic.hpp"
#include "plan/plan.hpp"

namespace mxs {

namespace {

uint64_t end_of(const PageRange &range) { return range.offset + range.bytes; }

// Ranges come in the order of their offsets; they may touch and overlap.
void append(const PageRange &range, PageRanges *pages) {
  if (pages->empty() || range.offset > end_of(pages->back()))
    pages->push_back(range);
  else
    pages->back().bytes = std::max(end_of(pages->back()), end_of(range)) - pages->back().offset;
}

}  // namespace

uint64_t bytes_of(const PageRanges &pages) {
  uint64_t bytes = 0;
  for (const PageRange &range : pages) bytes += range.bytes;
  return bytes;
}

PageRanges united(const PageRanges &a, const PageRanges &b) {
  PageRanges result;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool from_a = j == b.size() || (i < a.size() && a[i].offset <= b[j].offset);
    append(from_a ? a[i++] : b[j++], &result);
  }
  return result;
}

PageRanges without(const PageRanges &pages, const PageRanges &taken) {
  PageRanges result;
  size_t next = 0;
  for (const PageRange &range : pages) {
    uint64_t at = range.offset;
    while (next < taken.size() && end_of(taken[next]) <= at) ++next;
    for (size_t i = next; i < taken.size() && taken[i].offset < end_of(range); ++i) {
      if (taken[i].offset > at) result.push_back({at, taken[i].offset - at});
      at = end_of(taken[i]);
    }
    if (at < end_of(range)) result.push_back({at, end_of(range) - at});
  }
  return result;
}

PageRanges foreign_pages(const PlannedUnit &unit, int rank) {
  PageRanges pages;
  for (const Segment &segment : unit.weights.segments) {
    if (segment.owner == rank || segment.bytes == 0) continue;
    const uint64_t begin = align_down(segment.offset, pool_page_bytes);
    append({begin, align_up(segment.offset + segment.bytes, pool_page_bytes) - begin}, &pages);
  }
  return pages;
}

}  // namespace mxs
