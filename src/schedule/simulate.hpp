// SPDX-License-Identifier: Apache-2.0
// Simulator: a whole schedule set on a topology, as the engine would run it, in discrete events. No network, no clock.
//
//   post      the next message of a channel, once its dependencies are done and the window has room: overhead on the
//             sender's CPU, then its out-port
//   out-port  a rail, shared by the ranks of a node that are nearest to it; serves in the order of posting, as UCX over
//             TCP does. Between local ranks: a port of the rank, at the local rate
//   way       latency; the head of a message arrives while its tail is still being sent
//   in-port   serves in the order of arrival; several channels at once slow it down (contention)
//   take      in the channel's order, once its dependencies are done: overhead on the receiver's CPU, and adding
//
// Schedules are made rank by rank and kept as 24 bytes per move. Deterministic: equal times are served in the order in
// which they were foreseen.
#pragma once

#include <cstdint>
#include <vector>

#include "matrixshard/status.h"
#include "schedule/schedule.hpp"

namespace mxs {

struct Simulated {
  double seconds = 0;
  uint64_t message_count = 0;
  uint64_t rail_bytes_max = 0;  // in one direction over the busiest rail
  int last_rank = 0;            // that is done last
};

// More than that take minutes, and 24 bytes twice each.
constexpr uint64_t simulated_messages_max = 20'000'000;

// options.topology is not nullptr. MXS_OVER_BUDGET before anything is built: too many messages; the sentence says how
// many and what to change. Else what cut_pieces returns.
mxs_status simulate(const ScheduleOptions &options, int window, Simulated *result);

}  // namespace mxs
