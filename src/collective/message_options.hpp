// SPDX-License-Identifier: Apache-2.0
// What is asked for of a collective in messages, and what can be refused by looking at it: the same at create, in a
// simulation and in the engine.
#pragma once

#include <cstdint>

#include "layout/layout.hpp"
#include "matrixshard/types.h"
#include "schedule/schedule.hpp"
#include "topology/topology.hpp"

namespace mxs {

struct MessageOptions {
  int kind = 0;                           // MXS_GATHER, MXS_REDUCE, MXS_RESHARD
  const Layout *layout = nullptr;         // followed by make_message_operation only
  const Layout *target_layout = nullptr;  // reshard
  Algorithm algorithm = Algorithm::flat;  // one that serves the kind and order
  mxs_dtype dtype = MXS_F32;              // reduce
  bool rank_order = false, accumulate = false;
  uint64_t chunk_bytes = 0;               // choose: 0 leaves it open
  int window = 0;                         // likewise
};

// MXS_INVALID_ARGUMENT: a layout for another number of ranks than `whose` ("the comm") has, a window out of range, a
// dtype without sums, elements that a segment's border cuts.
mxs_status check_message_options(const MessageOptions &options, const char *whose, int rank_count);

Direction direction_of(const MessageOptions &options);

// What a schedule is made from. Its topology is the one that is given.
ScheduleOptions schedule_options(const Topology &topology, const MessageOptions &options);

}  // namespace mxs
