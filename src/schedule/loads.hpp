// SPDX-License-Identifier: Apache-2.0
// Loads: what an algorithm puts on every rank's ports and CPU, from the layout's sizes alone, without its schedule.
// O(ranks), so that it can be asked for each candidate when a collective is created.
#pragma once

#include <vector>

#include "schedule/schedule.hpp"

namespace mxs {

// All in bytes or counts; double, since they are added up for thousands of ranks and fractions don't matter.
struct RankLoad {
  double network_out = 0, network_in = 0;      // bytes
  double local_out = 0, local_in = 0;
  double network_out_channels = 0, network_in_channels = 0;  // each carries a message at least
  double local_out_channels = 0, local_in_channels = 0;
  double fan_in = 0;                           // network channels into this rank that are busy at the same time
  double added = 0;                            // bytes added to sums
};

struct Loads {
  std::vector<RankLoad> ranks;
  double network_hops = 0, local_hops = 0;  // of the longest path
  double longest_piece = 0;                 // bytes: a message is no longer, however large the chunk
  double rounds = 0;                        // circulant: bytes of one rank, as many rounds as chunks in them; each has
                                            // to wait for messages of the one before
  double stalls = 1;                        // of the busiest port, by what waits in channels for what isn't ready
  double round_stalls = 1;                  // as much again once there are several rounds
  double largest_stream = 1;                // the largest owner's share of all bytes: others fill pipelines meanwhile
  // Bytes in windows that a port sends to other peers before each has got its first: chunks x window per peer.
  double waiting_peers = 0;
};

// Of options: direction, algorithm, layout, target_layout, topology (not nullptr), element_bytes, accumulate.
Loads loads_of(const ScheduleOptions &options);

}  // namespace mxs
