// SPDX-License-Identifier: Apache-2.0
// How far each algorithm in messages is from what the cost model says.
#pragma once

#include <string>
#include <vector>

#include "bench/ranks.hpp"

namespace bench {

struct Factor {
  std::string algorithm;
  double ratio = 1;  // measured / predicted: the geometric mean over a few gathers and reduces
  int cases = 0;
};

// Collective. The comm's speeds are to be those of these ranks, without factors.
std::vector<Factor> measure_factors(Ranks &ranks, const Options &options);

}  // namespace bench
