// SPDX-License-Identifier: Apache-2.0
// Reshard: a checkpoint written again as another world would have saved it. One process, streaming.
//
//   plan      the source's tensors and options, on the other world's ranks
//   describe  each array of the source, cut as the plan's pieces are (reshard_files: pure)
//   write     file by file, array by array: what is read of the source is hashed anew and goes out at once
//   commit    index, manifest, rename: as a save does
#pragma once

#include <vector>

#include "checkpoint/filing.hpp"
#include "checkpoint/opened.hpp"

namespace mxs {

struct SaveSettings;
struct IoProgress;

// Places the tensors of a saved plan in another world. options: what is 0 is as in the saved plan. Fixed owners beyond
// the world's ranks are left to the planner, and no matrix has more co-owners than a node has ranks. previous: what
// options.previous holds, or nullptr.
mxs_status plan_for_world(const Plan &saved, const Topology &topology, const mxs_plan_options &options,
                          const Plan *previous, Plan *plan);

// The files that a save under `plan` would make of the source's arrays; pieces are without hashes. MXS_DAMAGED: an
// array that a tensor must have is missing, or can't be cut where the tensor's pieces are.
mxs_status reshard_files(const OpenedCheckpoint &opened, const Plan &plan, bool weights_only,
                         std::vector<FiledFile> *files);

// plan: of the new world, made of the same tensors. total_bytes: of all files, told before the first is written.
mxs_status reshard_checkpoint(const OpenedCheckpoint &opened, const Plan &plan, const SaveSettings &settings,
                              IoProgress *progress, uint64_t *total_bytes);

}  // namespace mxs
