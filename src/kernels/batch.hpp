// SPDX-License-Identifier: Apache-2.0
// Sums of squares of a batch's matrices: given, or formed before any target is written, so that a matrix that is not
// finite leaves all targets as they are.
#pragma once

#include <array>
#include <cstddef>

#include "base/team.hpp"
#include "kernels/newton_schulz.hpp"

namespace mxs {

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
