// SPDX-License-Identifier: Apache-2.0
// Sets of pages: what slots and ranges of units need for other ranks' bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace mxs {

struct PlannedUnit;

constexpr uint64_t pool_page_bytes = 4096;

struct PageRange {
  uint64_t offset, bytes;  // multiples of pool_page_bytes

  bool operator==(const PageRange &) const = default;
};

// In all that follows: ascending and apart, with room between neighbours.
using PageRanges = std::vector<PageRange>;

uint64_t bytes_of(const PageRanges &pages);
PageRanges united(const PageRanges &a, const PageRanges &b);
PageRanges without(const PageRanges &pages, const PageRanges &taken);

// Of a unit's range: those that hold bytes of ranks other than this one.
PageRanges foreign_pages(const PlannedUnit &unit, int rank);

}  // namespace mxs
