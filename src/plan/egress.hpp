// SPDX-License-Identifier: Apache-2.0
// What a gather of one unit takes out of each rank and each node: see egress.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/bounds.hpp"
#include "plan/plan.hpp"

namespace mxs {

// Of the weights, as bytes of one copy, gaps not counted.
struct UnitEgress {
  uint64_t bytes = 0;      // of the unit
  int owner_count = 0;     // ranks that have any
  uint64_t rank_worst = 0;
  int rank = -1;           // that has them; -1: the unit has no bytes
  uint64_t nic_worst = 0;  // of a node, over its NICs, rounded up; 0 where there is one node
  int node = -1;
};

// Adds up one unit after another; its tables are made once, and cleaned where a unit has been.
class EgressMeter {
 public:
  explicit EgressMeter(const Plan &plan);
  UnitEgress measure(int unit);

 private:
  const Plan &plan_;
  std::vector<uint64_t> rank_bytes_, node_bytes_;
  std::vector<int> owners_, nodes_;  // that have bytes of the unit
};

// Fills plan->objectives and the bounds of its units.
void measure_objectives(const PlanBounds &bounds, Plan *plan);

}  // namespace mxs
