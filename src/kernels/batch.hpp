// SPDX-License-Identifier: Apache-2.0
// What backends share of batches. Of small matrices each thread takes whole ones, so that nobody waits; for that each
// thread has buffers of its own. Sums of squares are given, or formed before any target is written, so that a matrix
// that is not finite leaves all targets as they are.
#pragma once

#include <array>
#include <cstddef>

#include "base/arithmetic.hpp"
#include "base/team.hpp"
#include "kernels/newton_schulz.hpp"

namespace mxs {

// Too little for several threads: each has buffers for a matrix of its own. Plan's prediction (lanes in
// plan/memory.cpp) has the same number, of sides padded to 32; the tests of Newton-Schulz compare them.
inline bool is_small(const NewtonSchulzShape &shape) {
  return align_up(shape.n(), 32) * align_up(shape.m(), 32) <= uint64_t{1} << 19;
}

class BatchSquares {
 public:
  // given nullptr: formed here, one matrix a thread. MXS_INVALID_ARGUMENT: an element is not finite.
  mxs_status form(const NewtonSchulzShape &shape, const MatrixSource *sources, size_t count, const double *given,
                  Team *team);
  double of(size_t i) const;

 private:
  NewtonSchulzShape shape_ = {};
  const MatrixSource *sources_ = nullptr;
  const double *given_ = nullptr;
  std::array<double, 256> formed_{};  // of the first matrices: nothing is allocated, so further ones are summed again
};

}  // namespace mxs
