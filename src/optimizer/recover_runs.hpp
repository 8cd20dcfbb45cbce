// SPDX-License-Identifier: Apache-2.0
// What goes where in a recovery: each byte of values and state once, from a copy of its old owner's packed bytes, here
// or at that rank's keeper, to its new owner. The same on all ranks, and in one order.
#pragma once

#include <cstdint>
#include <vector>

#include "optimizer/backup.hpp"

namespace mxs {

struct RecoverRun {
  int source = 0, target = 0;  // ranks of the new comm
  int old_owner = 0;           // of the failed one: whose packed bytes
  uint64_t source_offset = 0;  // within these
  size_t target_piece = 0;     // of the target's pieces
  bool is_state = false;       // else values
  uint64_t target_offset = 0;  // within that piece's
  uint64_t bytes = 0;
};

// An optimizer's tensors and what its ranks own of them.
struct RecoverSide {
  const std::vector<Unit *> *units;
  const PackedRanks *packed;
};

// source_of: by rank of the failed comm, who has a copy of its packed bytes, a rank of the new one.
// MXS_MISMATCH: the sentence names the tensor. MXS_NOT_BUILT: state of whole matrices whose pieces differ.
mxs_status recover_runs(const RecoverSide &failed, const RecoverSide &now, const std::vector<int> &source_of,
                        std::vector<RecoverRun> *runs);

}  // namespace mxs
