// SPDX-License-Identifier: Apache-2.0
// Save: what units and an optimizer have, into a folder.
//
//   all ranks   agree on options and path -> describe arrays, file them (filing.hpp)
//   rank 0      makes the partial folder and tells its name
//   all ranks   write what they own, sync, leave a report there: sizes and hashes
//   rank 0      reads the reports, writes index and manifest, commits, forgets old checkpoints
//
// After each line all ranks tell each other how it went: what failed anywhere has failed everywhere, and the partial
// folder is removed. Reports go through the folder, not over the comm: that is what shows that it is shared.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/file_io.hpp"
#include "checkpoint/filing.hpp"
#include "collective/comm.hpp"
#include "optimizer/optimizer.hpp"
#include "unit/unit.hpp"

namespace mxs {

// mxs_checkpoint_options, with texts of its own. Extras and user stay the caller's until the save is over; a save
// beside training copies them.
struct SaveSettings {
  std::string path, name, files_from;
  bool masters = false, weights_only = false;
  bool beside_training = false;  // mxs_save_start
  int keep = 0;
  const void *user = nullptr;
  uint64_t user_bytes = 0;
  std::vector<mxs_extra_tensor> extras;
  uint64_t timeout_ns = 0;
};

// Collective. Units, path, name and keep have been checked one by one; an empty name: by the step number. progress: may
// be nullptr. *total_bytes: that this rank writes, set before the first is.
mxs_status save_checkpoint(const std::vector<Unit *> &units, Optimizer *optimizer, const SaveSettings &settings,
                           IoProgress *progress, uint64_t *total_bytes);

}  // namespace mxs
