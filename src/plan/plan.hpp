// SPDX-License-Identifier: Apache-2.0
// Plan: all placements of a model. Pure: no I/O, no clock, no threads. See include/matrixshard/plan.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/layout.hpp"
#include "matrixshard/plan.h"
#include "topology/topology.hpp"

namespace mxs {

struct PlannedTensor {
  std::string name;
  std::vector<int64_t> shape;
  uint64_t element_count = 0;
  mxs_dtype dtype = MXS_F32, master_dtype = MXS_F32, gradient_dtype = MXS_F32;
  int unit = 0, group = 0;
  mxs_rule rule = MXS_RULE_ADAMW;  // never AUTO
  mxs_role role = MXS_ROLE_TAIL;   // never AUTO
  int tied_to = -1;
  int co_owners = 0;                     // as given
  bool transposed = false;               // stored as (in, out)
  int64_t whole_rows = 0, whole_columns = 0;  // of the matrix that this is a tensor-parallel piece of; 0: as shape
  std::vector<int64_t> block_columns;    // empty: none
  uint64_t placement_index = 0, placement_count = 0;
  std::string reason;
  uint64_t hash = 0;  // of all that was given, and its rule and role, not its owners: names the first that differs

  bool frozen() const { return rule == MXS_RULE_FROZEN; }
  bool has_matrices() const { return role == MXS_ROLE_MATRIX || role == MXS_ROLE_BLOCKS; }
  bool has_column_blocks() const { return has_matrices() && !block_columns.empty(); }
};

// What a caller said of a tensor beside its name, shape, unit and tie. Kept, so that a saved plan can be made again.
struct GivenTensor {
  mxs_dtype dtype = 0, master_dtype = 0, gradient_dtype = 0;
  mxs_rule rule = MXS_RULE_AUTO;
  mxs_role role = MXS_ROLE_AUTO;
  int group = 0, fixed_owner = 0, co_owners = 0, transposed = 0;  // as in mxs_tensor
  int64_t whole_rows = 0, whole_columns = 0;
  std::vector<int64_t> block_rows, block_columns;
};

struct Placement {
  int tensor = 0, block = 0, owner = 0, unit = 0;
  std::vector<int64_t> shape;
  uint64_t element_offset = 0, element_count = 0;
  uint64_t weight_offset = 0;             // bytes in the unit's weight layout
  uint64_t gradient_offset = UINT64_MAX;  // bytes in the unit's gradient layout; UINT64_MAX: frozen
  int co_owner = 0, co_owner_count = 1;   // which of how many that have rows of the matrix
  uint64_t matrix_index = 0, matrix_count = 0;
};

// What one call of an optimizer's rule treats: a placement, or a column block of one. See mxs_matrix.
struct Matrix {
  int tensor = 0, block = 0, owner = 0;
  uint64_t placement = 0;
  uint64_t element_offset = 0;  // within the tensor
  int64_t rows = 0, columns = 0, row_stride = 0;
  int64_t scale_rows = 0, scale_columns = 0;
};

// The worst of all ranks (of egress: and units) beside what no placement can go below.
struct Objective {
  uint64_t worst = 0, bound = 0;
  int rank = -1, unit = -1;
};

// What a gather of one unit takes out of each rank and each node: of the weights, as bytes of one copy, without gaps.
struct UnitEgress {
  uint64_t bytes = 0;      // of the unit
  int owner_count = 0;     // ranks that have any
  uint64_t rank_worst = 0;
  int rank = -1;           // that has them; -1: the unit has no bytes
  uint64_t nic_worst = 0;  // of a node, over its NICs, rounded up; 0 where there is one node
  int node = -1;
};

// Rules of the two layouts, which unit/ relies on:
//   - in a unit tensors lie one after the other; a tensor is contiguous, so its blocks and shares have no gaps
//   - weights: where the owner changes, the border is a multiple of `alignment`, so that it is a page border.
//     Between tensors a gap makes it so. Inside a tensor it must come out by itself: flat tensors are cut at multiples
//     of 4,096 elements; a run of blocks has an owner of its own where the borders at both its ends are multiples of
//     `alignment`, and those of its gradients too (if there are fewer runs than blocks, the reason says so)
//   - gradients: the same order and owners, alignment 64, without frozen tensors
//   - neighbouring pieces with one owner share a segment; planner orders tensors so that a rank's segments are few
struct PlannedUnit {
  Layout weights, gradients;
  std::vector<int> tensors;           // indices, in layout order
  std::vector<uint64_t> placements;   // indices, in layout order
  UnitEgress egress;                                   // what was reached: see egress.cpp
  uint64_t rank_bytes_bound = 0, nic_bytes_bound = 0;  // of egress: see mxs_unit_load
};

// A segment of a unit's weights.
struct RankSegment {
  int unit;
  uint64_t offset, bytes;
};

// Pages of a slot, and who has them in all units that have bytes there.
constexpr int several_owners = -1;
struct SlotPages {
  uint64_t offset, bytes;  // multiples of pool_page_bytes
  int owner;               // the only one, or several_owners
};

// What is asked of one rank, sorted by rank: those of rank r are from begin[r] to begin[r + 1]. See index.cpp.
struct RankIndex {
  std::vector<uint64_t> placement_begin, segment_begin;
  std::vector<uint64_t> placements;        // indices; of a rank by unit, then in layout order
  std::vector<RankSegment> segments;       // of weights, without empty ones; of a rank by unit, ascending
  std::vector<uint64_t> weight_bytes_max;  // of one unit
  std::vector<int> matrix_count;
  std::vector<SlotPages> slot_pages;       // ascending, apart; neighbours have other owners
  uint64_t slot_bytes = 0;                 // of all of them
  std::vector<uint64_t> sole_slot_bytes;   // of those that only this rank has
};

struct Plan {
  Topology topology;
  std::vector<PlannedTensor> tensors;
  std::vector<Placement> placements;  // by tensor, then block
  std::vector<Matrix> matrices;       // by placement
  std::vector<PlannedUnit> units;
  std::vector<uint64_t> rank_owned_bytes;
  std::vector<double> rank_step_flops;
  std::vector<uint64_t> rank_step_ps;
  Objective objectives[4];            // by MXS_OBJECTIVE_...
  std::vector<std::string> warnings;
  RankIndex index;
  uint64_t alignment = 4096;
  uint64_t fingerprint = 0;
  std::vector<GivenTensor> given;     // of each tensor
  mxs_plan_options options = MXS_PLAN_OPTIONS_INIT;  // with defaults filled in; previous is NULL
  uint64_t previous_fingerprint = 0;  // 0: there was none
};

// previous: what options->previous holds, into which this room can't look.
mxs_status make_plan(const mxs_tensor *tensors, uint64_t tensor_count, const Topology &topology,
                     const mxs_plan_options *options, Plan *plan, const Plan *previous = nullptr);

// Elements that change their owner when `target` takes the place of `source`. See mxs_plan_moves.
struct PlanMove {
  int tensor = 0;  // of the target plan
  int source_rank = 0, target_rank = 0;  // source_rank -1: its rank isn't there any more
  uint64_t source_placement = 0, target_placement = 0;
  uint64_t element_offset = 0, element_count = 0;
  uint64_t bytes = 0;
};
mxs_status plan_moves(const Plan &source, const Plan &target, std::vector<PlanMove> *moves);
// The same with the source's ranks by the numbers that they have in the target's world, -1 for those that are lost.
mxs_status plan_moves_from(const Plan &source, const Plan &target, const std::vector<int> &rank_now,
                           std::vector<PlanMove> *moves);

// earlier_ranks: by rank of a world, its number in an earlier one of earlier_count ranks, or -1; nullptr: the same
// numbers. rank_now: the reverse. MXS_INVALID_ARGUMENT: a number that the earlier world doesn't have, or one twice;
// `name` is the list's.
mxs_status renumber_ranks(const int32_t *earlier_ranks, int rank_count, int earlier_count, const char *name,
                          std::vector<int> *rank_now);

// Flops of one optimizer step on a matrix or on elements, by one of its co-owners; on a piece, over all its matrices.
double step_flops(mxs_rule rule, const std::vector<int64_t> &shape, int co_owner_count = 1);
double piece_flops(const PlannedTensor &tensor, const Placement &piece);

// What a rank carries: see mxs_rank_load.
mxs_rank_load rank_load(const Plan &plan, int rank);

mxs_memory predict_memory(const Plan &plan, int rank, const mxs_memory_options &options);  // memory.hpp has the parts

std::string plan_report(const Plan &plan);

}  // namespace mxs
