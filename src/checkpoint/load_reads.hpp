// SPDX-License-Identifier: Apache-2.0
// Load reads: which numbers of which arrays this rank wants, and where each goes. Neighbours are read together, as one
// range: hashes are of 4 MiB, and a stack's experts lie beside each other.
#pragma once

#include <vector>

#include "checkpoint/device_bytes.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/match.hpp"
#include "optimizer/optimizer.hpp"
#include "unit/unit.hpp"

namespace mxs {

// Numbers [first, first + count) of an array into `target`, and from there into `copy`: weights and their master.
struct PieceRead {
  size_t array = no_array;
  uint64_t first = 0, count = 0;
  void *target = nullptr, *copy = nullptr;  // copy nullptr: none
  mxs_dtype target_dtype = 0, copy_dtype = 0;
};

struct LoadReads {
  std::vector<PieceRead> pieces;                   // by place in the files
  std::vector<const OptimizedPiece *> new_states;  // to be begun anew before anything is read
  std::vector<int> new_state_tensors;              // those that only their owner could find; may repeat
};

// optimizer: nullptr: no state. MXS_MISMATCH, MXS_NOT_FOUND: a matrix's state, unless others are allowed by flags.
mxs_status list_reads(const OpenedCheckpoint &opened, const LoadMatch &match, const std::vector<Unit *> &units,
                      const Optimizer *optimizer, int flags, LoadReads *reads);

// The ranges of pieces, with sinks that put numbers into their places. They point into both arguments.
// device: nullptr, or what brings them to targets in device memory.
std::vector<ReadRange> ranges_of(const OpenedCheckpoint &opened, const std::vector<PieceRead> &pieces,
                                 DeviceBytes *device = nullptr);

}  // namespace mxs
