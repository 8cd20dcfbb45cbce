// SPDX-License-Identifier: Apache-2.0
// Match: which arrays of a checkpoint a plan's tensors take, and what is refused. Pure, and from what all ranks have,
// so that all come to the same; nothing is read.
//
//   tensor of the plan   array "w"    array "w.master"   weights are       its master is
//   with a master        its dtype    there              "w"               "w.master"
//                        its dtype    -                  "w"               "w", widened
//                        other        there              master, rounded   "w.master"
//                        other        -                  master, rounded   "w", converted
//   without one          its dtype    -, there           "w"
//                        other        there              "w.master"
//                        other        -                  "w", converted
//
// A save with `masters` has the master as "w"; then it is as if it had "w.master" alone.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/opened.hpp"
#include "optimizer/settings.hpp"
#include "optimizer/stepper.hpp"
#include "plan/plan.hpp"

namespace mxs {

// What an optimizer says of itself, equal on all ranks.
struct LoadOptimizer {
  std::function<const std::vector<StatePart> &(mxs_rule rule)> parts_of;
  std::function<mxs_preset(mxs_rule rule)> preset_of;
  OptionHashes options;
};

struct LoadRequest {
  const Plan *plan = nullptr;
  std::vector<int> units;  // whose tensors are loaded
  int flags = 0;           // MXS_LOAD_...
  const LoadOptimizer *optimizer = nullptr;  // nullptr: no state
};

constexpr size_t no_array = SIZE_MAX;

// Arrays are numbers within the manifest.
struct TensorMatch {
  int tensor = -1;
  std::string saved_name;                     // in the checkpoint; of tied tensors that which has the bytes
  size_t weights = no_array, master = no_array;  // no_array: made of the other. Both: the tensor stays as it is
  bool has_state = false;
  bool new_state = false;     // all of it begins anew
  std::vector<size_t> parts;  // those of parts_of(rule) by element and by row, in its order; no_array: begins anew
};

struct LoadMatch {
  std::vector<TensorMatch> tensors;  // of the units, without tied ones
  std::vector<size_t> of_tensor;     // by the plan's number: where in `tensors`; no_array: it isn't there
  std::vector<std::string> missing, extra, converted, new_state;  // for mxs_load_options.tell
};

// MXS_MISMATCH, MXS_NOT_FOUND as mxs_checkpoint_load; *match then has what is to be told all the same.
mxs_status match_checkpoint(const OpenedCheckpoint &opened, const LoadRequest &request, LoadMatch *match);

// The arrays of a placement's parts that belong to a matrix, in the order of `parts`; no_array for others. What a rank
// doesn't own it doesn't know, so this is the owner's to call. MXS_MISMATCH, MXS_NOT_FOUND: one isn't there as it is
// wanted.
mxs_status match_matrix_parts(const OpenedCheckpoint &opened, const Plan &plan, const TensorMatch &match,
                              uint64_t placement, const std::vector<StatePart> &parts, std::vector<size_t> *arrays);

}  // namespace mxs
