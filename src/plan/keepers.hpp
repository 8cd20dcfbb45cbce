// SPDX-License-Identifier: Apache-2.0
// Keepers: which rank keeps the backup of which (mxs_optimizer_options.backup), and how many bytes that is.
//
//   several nodes   node 0: ranks 0 1 2   node 1: ranks 3 4      0 by 3, 1 by 4, 2 by 3; 3 by 0, 4 by 1
//                   the rank in the same place on the next node; where that one has fewer ranks, they take turns
//   one node        ranks 0 1 2                                  0 by 1, 1 by 2, 2 by 0
//
// Every rank has one keeper, which is never itself. A keeper has one ward where nodes are even; else it may have none,
// or several.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.hpp"

namespace mxs {

constexpr int no_keeper = -1;  // of the only rank of a world

int keeper_of(const Topology &topology, int rank);
std::vector<int> wards_of(const Topology &topology, int keeper);  // ascending

// One copy of what a rank owns: a head, masters (where there are none: weights) of each piece rounded up, then state.
// A rank that owns nothing has none.
constexpr uint64_t backup_head_bytes = 64, backup_alignment = 64;
uint64_t backup_values_bytes(const PlannedTensor &tensor, uint64_t element_count);  // of one piece, rounded up
// Under the rules' defaults, as mxs_plan_memory predicts.
uint64_t backup_copy_bytes(const Plan &plan, int rank);
// Two copies of its own, and two of each ward's. 0: a world of one rank, which has no keeper.
uint64_t backup_bytes(const Plan &plan, int rank);

}  // namespace mxs
