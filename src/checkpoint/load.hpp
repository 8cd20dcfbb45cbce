// SPDX-License-Identifier: Apache-2.0
// Load: an open checkpoint into units and an optimizer of any world.
//
//   match   every tensor of the plan with its arrays; equal on all ranks, nothing is read yet
//   settle  whoever refuses, all refuse; all have opened the same checkpoint
//   read    what this rank owns, range by range, converted where asked for, straight into its place
//   settle
#pragma once

#include <vector>

#include "checkpoint/file_io.hpp"
#include "checkpoint/opened.hpp"
#include "optimizer/optimizer.hpp"
#include "unit/unit.hpp"

namespace mxs {

// Collective. units: at least one, each once, of one plan, comm and replicas; the optimizer's are among them. progress
// is called on the caller's thread.
mxs_status load_checkpoint(const OpenedCheckpoint &opened, const std::vector<Unit *> &units, Optimizer *optimizer,
                           const mxs_load_options &options);

// Takes part in the load_checkpoint of other ranks with a refusal, so that they are told instead of waiting.
mxs_status refuse_load(const std::vector<Unit *> &units, mxs_status own);

}  // namespace mxs
