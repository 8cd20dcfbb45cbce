// SPDX-License-Identifier: Apache-2.0
// What leaves ranks and nodes when a unit is gathered, and the plan's four objectives, of which two are the worst of
// that over all units.
//
//   unit 3:  rank 0 |AAAAAA|   rank 1 |B|     node 0: 7 over 2 NICs: 4, the most that one of them must send
//            rank 2 |CC|       rank 3 |DD|    node 1: 4 over 2 NICs: 2
#include "plan/egress.hpp"

#include <algorithm>
#include <vector>

#include "base/arithmetic.hpp"
#include "plan/memory.hpp"

namespace mxs {
namespace {

Objective worst_rank(const std::vector<uint64_t> &loads, uint64_t bound) {
  const auto worst = std::max_element(loads.begin(), loads.end());
  return {*worst, bound, static_cast<int>(worst - loads.begin()), -1};
}

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

EgressMeter::EgressMeter(const Plan &plan)
    : plan_(plan), rank_bytes_(plan.topology.ranks.size()), node_bytes_(plan.topology.nodes.size()) {}

UnitEgress EgressMeter::measure(int unit) {
  UnitEgress egress;
  owners_.clear();
  nodes_.clear();
  for (const uint64_t index : plan_.units[static_cast<size_t>(unit)].placements) {
    const Placement &piece = plan_.placements[index];
    const uint64_t bytes = weight_bytes(plan_.tensors[static_cast<size_t>(piece.tensor)], piece.element_count);
    if (bytes == 0) continue;
    const int node = plan_.topology.node_of(piece.owner);
    uint64_t &of_rank = rank_bytes_[static_cast<size_t>(piece.owner)];
    uint64_t &of_node = node_bytes_[static_cast<size_t>(node)];
    if (of_rank == 0) owners_.push_back(piece.owner);
    if (of_node == 0) nodes_.push_back(node);
    of_rank += bytes;
    of_node += bytes;
    egress.bytes += bytes;
  }
  egress.owner_count = static_cast<int>(owners_.size());
  std::sort(owners_.begin(), owners_.end());
  std::sort(nodes_.begin(), nodes_.end());
  for (const int rank : owners_) {
    uint64_t &bytes = rank_bytes_[static_cast<size_t>(rank)];
    if (bytes > egress.rank_worst) egress.rank_worst = bytes, egress.rank = rank;
    bytes = 0;
  }
  for (const int node : nodes_) {
    uint64_t &bytes = node_bytes_[static_cast<size_t>(node)];
    const uint64_t of_nic = divide_up(bytes, plan_.topology.node(node).rails.size());
    if (of_nic > egress.nic_worst) egress.nic_worst = of_nic, egress.node = node;
    bytes = 0;
  }
  if (plan_.topology.node_count() == 1) egress.nic_worst = 0;
  return egress;
}

}  // namespace

void measure_objectives(const PlanBounds &bounds, Plan *plan) {
  plan->objectives[MXS_OBJECTIVE_BYTES] = worst_rank(plan->rank_owned_bytes, bounds.bytes);
  plan->objectives[MXS_OBJECTIVE_STEP] = worst_rank(plan->rank_step_ps, bounds.step_ps);
  Objective &egress = plan->objectives[MXS_OBJECTIVE_EGRESS] = {};
  Objective &nic = plan->objectives[MXS_OBJECTIVE_NIC] = {};
  EgressMeter meter(*plan);
  for (int unit = 0; unit < static_cast<int>(plan->units.size()); ++unit) {
    PlannedUnit &planned = plan->units[static_cast<size_t>(unit)];
    const UnitBound &bound = bounds.units[static_cast<size_t>(unit)];
    planned.rank_bytes_bound = bound.rank;
    planned.nic_bytes_bound = bound.nic;
    const UnitEgress &found = planned.egress = meter.measure(unit);
    if (found.rank_worst > egress.worst) egress.worst = found.rank_worst, egress.rank = found.rank, egress.unit = unit;
    if (found.nic_worst > nic.worst) nic.worst = found.nic_worst, nic.rank = found.node, nic.unit = unit;
    egress.bound = std::max(egress.bound, bound.rank);
    nic.bound = std::max(nic.bound, bound.nic);
  }
}

}  // namespace mxs
