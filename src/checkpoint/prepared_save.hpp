// SPDX-License-Identifier: Apache-2.0
// A save in its two halves: what needs units, and what needs only memory, a folder and a comm.
//
//   prepare_save    in the caller's thread: checks, agrees, describes, makes the partial folder
//   carry_out_save  in whatever thread, over whatever comm of the same ranks: writes, reports, commits
#pragma once

#include <string>
#include <vector>

#include "checkpoint/folder.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/save_content.hpp"

namespace mxs {

struct PreparedSave {
  SaveSettings settings;     // name is filled in; user and extras are looked at no more
  SaveContent content;
  PartialFolder folder;      // rank 0 has it
  std::string partial_path;  // of all ranks
  uint64_t patience_ns = 0;

  std::string final_path() const { return settings.path + "/" + settings.name; }
};

// Collective over the units' comm. Units, name and path have been checked by the door, one by one.
mxs_status prepare_save(const std::vector<Unit *> &units, Optimizer *optimizer, const SaveSettings &settings,
                        PreparedSave *save);

// The sentence of a failure here names this rank, as it does on the others.
mxs_status failed_on_rank(int rank, mxs_status status);

// Collective. Whatever it returns but MXS_OK: the partial folder is gone.
mxs_status carry_out_save(Comm &comm, PreparedSave *save, IoProgress *progress);

}  // namespace mxs
