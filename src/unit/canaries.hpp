// SPDX-License-Identifier: Apache-2.0
// MXS_DEBUG_BUFFERS=1: bytes between and after a unit's tensors that nobody has any business to write. They are filled
// with a pattern and looked at later, so that who writes past the end of a tensor is found at once, not by a loss that
// is a little off.
//
//   own         after the pieces that this rank owns, to the end of their page: filled at create
//   foreign     after the others' pieces, in the slot: filled at gather
//   gradients   between and after the gradients of a slot: filled when the slot is taken
//   sums        after the fp32 sums, and after the masters: filled at create
//
// The pattern depends on the offset alone, so that a gather which copies an owner's gap changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/region.hpp"

namespace mxs {

class Canaries {
 public:
  struct Gap {
    uint64_t offset = 0, bytes = 0;
    int tensor = -1;  // the one that ends before it
  };
  // A gap that begins at `end` and ends with its page, or at `next` if that comes first.
  void add(uint64_t end, uint64_t next, int tensor);
  void fill(std::byte *base) const;
  // The first gap that isn't as it was filled, and the offset of the first such byte in *at. nullptr: none.
  const Gap *find_damaged(const std::byte *base, uint64_t *at) const;

 private:
  std::vector<Gap> gaps_;
};

struct UnitCanaries {
  Canaries own, foreign, gradients, sums, masters;
};

}  // namespace mxs
