// SPDX-License-Identifier: Apache-2.0
// The norm of a batch's gradient, and whether all of it is finite: before anything of a step changes.
#pragma once

#include <vector>

#include "base/team.hpp"
#include "kernels/kernels.hpp"
#include "optimizer/stepper.hpp"

namespace mxs {

class GradientNorm {
 public:
  explicit GradientNorm(int team_size) : sums_(static_cast<size_t>(team_size)) {}

  // False: an element times scale is not finite; *norm is then left alone. Chunks of 4,096 elements, counted as if the
  // batch were dense, are added exactly: neither threads nor strides change a bit. Allocates nothing.
  bool find(const StepMatrices &matrices, const void *gradient, float scale, Team *team, double *norm);

 private:
  std::vector<ExactSum> sums_;  // by member of the team
};

}  // namespace mxs
