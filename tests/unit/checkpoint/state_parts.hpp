// SPDX-License-Identifier: Apache-2.0
// Parts of an optimizer's state, as tests of what checkpoints make of them describe them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "optimizer/stepper.hpp"

namespace mxs::test {

inline StatePart part_of(const char *name, StateScope scope, std::vector<int64_t> shape = {1, 1},
                         mxs_dtype dtype = MXS_F32) {
  StatePart part;
  part.name = name;
  part.scope = scope;
  part.shape = std::move(shape);
  part.dtype = dtype;
  return part;
}

}  // namespace mxs::test
