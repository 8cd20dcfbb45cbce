// SPDX-License-Identifier: Apache-2.0
// When would a step be done? Communication and computation of the placements that a plan is compared with.
//
//   forward and backward   a unit's computation covers the gather of the next one and the reduce of the one before:
//                          gather 1 + sum over stages of max(compute, next gather + reduce before) + last reduce
//   compute                2 x parameters x tokens / rate forward, twice that backward
//   optimizer, slices      gather of a matrix, its products, the next one: nothing overlaps (stock Muon on FSDP2)
//   optimizer, alltoall    B batches, as many as the slowest rank has matrices: there and back beside the products of
//                          the others: max(compute + wire / B, wire + compute / B)
//   optimizer, zero1       the step, then a gather of every unit's weights
#pragma once

#include "cli/plan_figures.hpp"

namespace mxs_cli {

// Wires of forward, backward and the optimizer's step, in rows of compare_placements.
void time_placements(const mxs::topology &topology, const mxs::plan &plan, PlanFigures *figures);

inline uint64_t active_parameters(const PlanFigures &figures) {
  return static_cast<uint64_t>(figures.active_share * static_cast<double>(figures.parameter_count) + 0.5);
}

// Of a placement, at so many tokens of a rank in a step.
double forward_backward_ns(const PlanFigures &figures, const ComparedPlacement &row, double tokens);
inline double whole_step_ns(const PlanFigures &figures, const ComparedPlacement &row, double tokens) {
  return forward_backward_ns(figures, row, tokens) + row.optimizer_ns;
}

}  // namespace mxs_cli
