// SPDX-License-Identifier: Apache-2.0
// What a message between two ranks costs, measured by moving bytes from one to the other and back.
#pragma once

#include <utility>
#include <vector>

#include "bench/ranks.hpp"

namespace bench {

struct LinkPoint {
  uint64_t bytes;
  double time_us;  // one way, the median
};

struct Link {
  int a = 0, b = 0;
  bool local = false;
  std::vector<LinkPoint> points;          // one message up to a chunk, then as many as the library makes of it
  double latency_us = 0, overhead_us = 0;  // a message takes latency + 2 overheads + bytes / bandwidth
  double bandwidth = 0;                    // bytes per microsecond
};

// Pairs that stand for all: of each kind, local and network, one per node, at most `most`.
std::vector<std::pair<int, int>> typical_pairs(const Ranks &ranks, int most);

// Collective: ranks other than a and b take part without moving anything.
Link measure_link(const Ranks &ranks, int a, int b, int iterations);

}  // namespace bench
