// SPDX-License-Identifier: Apache-2.0
// Reshard: a checkpoint written again as another world would have saved it. One process, streaming.
#pragma once

#include "checkpoint/opened.hpp"

namespace mxs {

struct SaveSettings;
struct IoProgress;

// plan: of the new world, made of the same tensors.
mxs_status reshard_checkpoint(const OpenedCheckpoint &opened, const Plan &plan, const SaveSettings &settings,
                              IoProgress *progress);

}  // namespace mxs
