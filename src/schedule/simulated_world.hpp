// SPDX-License-Identifier: Apache-2.0
// What the simulator keeps of a whole schedule set: channels, and 24 bytes per move.
#pragma once

#include <cstdint>
#include <vector>

#include "matrixshard/status.h"
#include "schedule/schedule.hpp"

namespace mxs {

// Moves of a channel stand next to each other, in its order, once at the sender and once at the receiver.
struct SimulatedMove {
  static constexpr uint32_t none = UINT32_MAX;
  static constexpr uint32_t idle = UINT32_MAX - 1;           // waits for nothing
  static constexpr uint32_t many = uint32_t{1} << 31;  // several dependencies: an index of `lists`

  uint32_t bytes = 0;            // of the message
  uint32_t added = 0;            // bytes that are added to sums when it is taken
  uint32_t channel = 0;
  uint32_t dependency = none;
  uint32_t first_waiter = none;  // moves that wait for this one
  uint32_t next_waiter = idle;   // the next that waits for the same as this one
};

struct SimulatedChannel {
  int32_t source = 0, target = 0;
  uint32_t out_begin = 0, in_begin = 0, count = 0;
  uint32_t posted = 0;           // in order
  uint32_t arrived = 0;
  uint32_t takes_begun = 0, taken = 0;
  uint32_t in_port = 0;          // messages whose head has arrived, and whose tail has not
  bool local = false;
};

struct SimulatedWorld {
  std::vector<SimulatedMove> moves;
  std::vector<SimulatedChannel> channels;  // by source, then target
  std::vector<uint32_t> channels_of;       // first channel of each rank; one more at the end
  std::vector<uint32_t> lists;             // count, then as many moves

  bool is_send(uint32_t move) const {
    const SimulatedChannel &channel = channels[moves[move].channel];
    return move - channel.out_begin < channel.count;
  }
};

// Makes the schedules rank by rank. MXS_INTERNAL: both ends of a channel disagree.
mxs_status make_simulated_world(const ScheduleOptions &options, const std::vector<Piece> &pieces,
                                SimulatedWorld *world);

}  // namespace mxs
