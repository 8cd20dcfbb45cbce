// SPDX-License-Identifier: Apache-2.0
// What an operation reads must lie still while it is in flight. With MXS_DEBUG_BUFFERS=1 it is hashed at the start and
// compared at the end, before anybody is told that the operation is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash.hpp"

namespace mxs {

class BufferWatch {
 public:
  void clear() { ranges_.clear(); }
  // number: the caller's name for it.
  void add(const void *data, uint64_t bytes, int number) {
    if (bytes > 0) ranges_.push_back({data, bytes, number, 0});
  }
  void begin() {
    for (Range &range : ranges_) range.hash = hash_bytes(range.data, range.bytes);
  }
  // The number of the first that has changed since; -1: none.
  int changed() const {
    for (const Range &range : ranges_)
      if (range.hash != hash_bytes(range.data, range.bytes)) return range.number;
    return -1;
  }

 private:
  struct Range {
    const void *data;
    uint64_t bytes;
    int number;
    uint64_t hash;
  };
  std::vector<Range> ranges_;
};

}  // namespace mxs
