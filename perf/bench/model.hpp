// SPDX-License-Identifier: Apache-2.0
// The model of step and plan: some units with the same tensors each, from words such as "256x256*4,256x1024f,256*4".
#pragma once

#include <string>
#include <vector>

#include "bench/options.hpp"
#include "matrixshard/plan.h"

namespace bench {

// One word of --shapes.
struct Shape {
  std::vector<int64_t> sides;
  int count = 1;
  bool frozen = false;
};

// Throws mxs::error if a word makes no sense.
std::vector<Shape> read_shapes(const std::string &words);

struct Model {
  std::vector<mxs_tensor> tensors;  // names point into `names`
  std::vector<std::string> names;
  uint64_t element_count = 0;
  int unit_count = 0;
};

// Throws mxs::error as read_shapes. Matrices are muon's, other tensors adamw's, those with an f frozen.
Model make_model(const Options &options);

}  // namespace bench
