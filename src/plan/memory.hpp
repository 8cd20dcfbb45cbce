// SPDX-License-Identifier: Apache-2.0
// How many bytes things take, in one place: the planner budgets by it, mxs_plan_memory predicts by it, unit/ and
// optimizer/ allocate by it, so that what was predicted is what is counted later.
//
//   weights file   per unit, a rank's own segments, each rounded out to pages (borders lie on pages from an
//                  alignment of 4,096 on, so that only the end of a segment is slack)
//   masters        per unit, where master_dtype differs from dtype: own pieces packed, rounded up to a page
//   gradient sums  per unit, 4 bytes for each own element that is not frozen: own pieces packed, rounded up to a page
//   slots          each as large as the largest range; only pages are touched where some unit has foreign bytes
//                  by reference: none, but a page or more of counters
//   own slots      of units that take none of these: the pages of their ranges that hold foreign bytes
//   gradient slots each as large as the largest gradient range, touched whole; with replicas each has scratch as well
#pragma once

#include <cstdint>
#include <vector>

#include "plan/page_ranges.hpp"
#include "plan/plan.hpp"

namespace mxs {

// ---- one piece of a tensor ----

uint64_t weight_bytes(const PlannedTensor &tensor, uint64_t element_count);
uint64_t master_bytes(const PlannedTensor &tensor, uint64_t element_count);        // 0 if master_dtype is dtype
uint64_t gradient_sum_bytes(const PlannedTensor &tensor, uint64_t element_count);  // 0 if frozen
// Of the optimizer, fp32, under the rules' defaults: muon 4 bytes an element (momentum), adamw 8 (two averages), each
// part rounded up to 64 bytes; shampoo and soap: factors.hpp.
constexpr uint64_t state_part_alignment = 64;
uint64_t state_bytes(const PlannedTensor &tensor, const std::vector<int64_t> &shape, uint64_t element_count);
// The four above, but muon's and adamw's state as it is, so that parts of a piece add up: what counts against
// rank_bytes_max.
uint64_t owned_bytes(const PlannedTensor &tensor, const std::vector<int64_t> &shape, uint64_t element_count);

// ---- the pools that all units of a plan share ----

struct PoolSizes {
  uint64_t slot = 0;           // the largest unit's weight range, rounded to pages
  uint64_t gradient_slot = 0;  // the largest unit's gradient range, rounded to pages
};
PoolSizes pool_sizes(const Plan &plan);
// With replicas: of one gradient slot, where this rank's sums over its shard group wait for those of other replicas. As
// the largest unit's sums, in pages.
uint64_t replica_scratch_bytes(const Plan &plan, int rank);
// How many slots are made, of either kind: what was asked for (0: 2).
int pool_slot_count(int asked);
// The pages of a slot that some unit's foreign bytes use: each unit's are touched at its create.
PageRanges slot_pages(const Plan &plan, int rank);
uint64_t slot_pages_bytes(const Plan &plan, int rank);  // of all of them
// By reference there are no slots, but a counter for each unit, in lines of 128 bytes.
constexpr uint64_t reference_counter_bytes = 128;
uint64_t reference_counters_bytes(const Plan &plan);

// ---- the optimizer's step ----

// One Newton-Schulz workspace, n x m with n <= m, padded to 32: the largest that any backend takes, so that memory
// doesn't depend on the CPU. The optimizer takes exactly this, and more only where MXS_ALGORITHM_GRAM is asked for
// although m < 2 n.
uint64_t newton_schulz_workspace_bytes(int64_t rows, int64_t columns, int thread_count);
// One of the ranks that share a matrix, of which it has share_rows. n is the short side of the whole, m the rank's part
// of the long one; beside what one owner takes, the lower half of A in fp32, which is summed over the ranks; where rows
// are the short side also X twice in fp32, because rows are exchanged for columns.
uint64_t co_owned_workspace_bytes(int64_t share_rows, int64_t rows, int64_t columns, int co_owner_count,
                                  int thread_count);
// Blocks whose fp32 updates muon has at a time. Of small ones (2 MiB of fp32) four for each of several threads: each
// then has whole ones, and four even out who comes late. Larger ones are worth all threads, so that a second update
// beside the first would be workspace for nothing.
uint64_t muon_blocks_at_a_time(uint64_t elements, uint64_t block_count, int thread_count);
// Of one placement that is stepped, under the rules' defaults. muon: the fp32 updates of the blocks that it has at a
// time, and the largest Newton-Schulz workspace. adamw: none. shampoo and soap: factors.hpp.
uint64_t placement_workspace_bytes(const Plan &plan, const Placement &placement, int thread_count);
// A rank's placements take turns: that of the largest.
uint64_t step_workspace_bytes(const Plan &plan, int rank, int thread_count);

}  // namespace mxs
