// SPDX-License-Identifier: Apache-2.0
// Describe: which arrays a checkpoint has of a plan's tensors, and which rank writes what of them. Pure, and from the
// plan alone, so that all ranks know it, and one process can tell what another world would write.
//
//   numbers for all of a tensor    weights, master, state by element or by row: cut where the tensor's pieces are,
//                                  neighbouring pieces of one owner taken together
//   numbers of one matrix          factors, bases, roots, failures: of a placement's owner alone. Their shapes depend
//                                  on the rule's options, so only the owner describes them
//
// Tied tensors have no arrays. Empty ones have their weights (no numbers, in their owner's file), no master, no state.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/filing.hpp"
#include "optimizer/stepper.hpp"
#include "plan/plan.hpp"

namespace mxs {

// Who writes what of an array that has `numbers` numbers for all of a tensor, in whole numbers for each placement.
std::vector<ManifestPiece> pieces_by_owner(const Plan &plan, size_t tensor, uint64_t numbers);

// Has it a master of its own, beside weights in dtype?
bool has_master(const PlannedTensor &tensor);
// Is it stepped by an optimizer: has it state?
bool has_state(const PlannedTensor &tensor);

// "w": in dtype; masters: in master_dtype. Of kind MXS_ARRAY_WEIGHTS either way.
FiledArray describe_weights(const Plan &plan, size_t tensor, bool masters);
// "w.master".
FiledArray describe_master(const Plan &plan, size_t tensor);
// "w.momentum": of a part by element or by row, whose own shape and bytes aren't looked at. Numbers by row: one for
// each row of each matrix, column blocks one after the other: (stack,) (column blocks,) rows.
FiledArray describe_state(const Plan &plan, size_t tensor, const StatePart &part);
// "w.factor_left", "w.factor_left.K", "w.factor_left.K.B": of a part that belongs to a matrix, in the part's shape.
FiledArray describe_matrix_state(const Plan &plan, uint64_t placement, const StatePart &part);

// One of options.extras, numbered, which rank 0 writes. MXS_INVALID_ARGUMENT.
mxs_status describe_extra(const mxs_extra_tensor &extra, size_t number, FiledArray *array);

// All weights.
std::vector<FiledArray> describe_model(const Plan &plan, bool masters);
// Masters (unless the model has them), and state that has numbers for all of a tensor. parts_of: of a rule, as
// Optimizer::parts_of; empty: no state. rank: without arrays that another one writes alone; -1: all.
std::vector<FiledArray> describe_optimizer(
    const Plan &plan, bool masters, const std::function<const std::vector<StatePart> &(mxs_rule rule)> &parts_of,
    int rank = -1);

// "factor_left.3" is "factor_left" and 3; "momentum" itself and -1.
std::string_view part_without_number(std::string_view part, int64_t *number);

}  // namespace mxs
