// SPDX-License-Identifier: Apache-2.0
#include "plan/keepers.hpp"

#include "base/arithmetic.hpp"
#include "plan/memory.hpp"

namespace mxs {

int keeper_of(const Topology &topology, int rank) {
  if (topology.rank_count() < 2) return no_keeper;
  if (topology.node_count() < 2) return (rank + 1) % topology.rank_count();
  const RankPlace &place = topology.ranks[static_cast<size_t>(rank)];
  const std::vector<int> &next = topology.node((place.node + 1) % topology.node_count()).ranks;
  return next[static_cast<size_t>(place.local_rank) % next.size()];
}

std::vector<int> wards_of(const Topology &topology, int keeper) {
  std::vector<int> wards;
  for (int rank = 0; rank < topology.rank_count(); ++rank)
    if (keeper_of(topology, rank) == keeper) wards.push_back(rank);
  return wards;
}

uint64_t backup_values_bytes(const PlannedTensor &tensor, uint64_t element_count) {
  const uint64_t masters = master_bytes(tensor, element_count);
  return align_up(masters ? masters : weight_bytes(tensor, element_count), backup_alignment);
}

uint64_t backup_copy_bytes(const Plan &plan, int rank) {
  uint64_t bytes = 0;
  const std::vector<uint64_t> &begin = plan.index.placement_begin;
  for (uint64_t at = begin[static_cast<size_t>(rank)]; at < begin[static_cast<size_t>(rank) + 1]; ++at) {
    const Placement &placement = plan.placements[plan.index.placements[at]];
    const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(placement.tensor)];
    bytes += backup_values_bytes(tensor, placement.element_count) +
             state_bytes(tensor, placement.shape, placement.element_count);
  }
  return bytes == 0 ? 0 : bytes + backup_head_bytes;
}

uint64_t backup_bytes(const Plan &plan, int rank) {
  if (plan.topology.rank_count() < 2) return 0;
  uint64_t bytes = 2 * backup_copy_bytes(plan, rank);
  for (const int ward : wards_of(plan.topology, rank)) bytes += 2 * backup_copy_bytes(plan, ward);
  return bytes;
}

}  // namespace mxs
