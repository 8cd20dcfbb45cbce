// SPDX-License-Identifier: Apache-2.0
// How far a load is above its bound: what the searches make small.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mxs {

// In 2^20ths of the bound, at most 2^30: a thousandfold. Multiplies by a reciprocal, since millions of moves ask.
class Excess {
  __extension__ using Wide = unsigned __int128;

 public:
  explicit Excess(uint64_t bound) : bound_(std::max<uint64_t>(bound, 1)) {
    for (uint64_t rest = bound_; rest > 1; rest >>= 1) ++shift_;
    reciprocal_ = static_cast<uint64_t>((Wide{1} << (63 + shift_)) / bound_);
  }
  uint64_t of(uint64_t load) const {
    if (load <= bound_) return 0;
    const Wide excess = (Wide{load - bound_} * reciprocal_) >> (63 + shift_ - 20);
    return excess > most ? most : static_cast<uint64_t>(excess);
  }

 private:
  static constexpr uint64_t most = uint64_t{1} << 30;
  uint64_t bound_, reciprocal_ = 0;
  unsigned shift_ = 0;
};

}  // namespace mxs
