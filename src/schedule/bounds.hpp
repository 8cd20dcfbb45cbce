// SPDX-License-Identifier: Apache-2.0
// The least time that any algorithm can take for a collective on a topology.
//
// S bytes in all, s of a rank, S_j of node j; C_j the rails of node j together (each direction), B the local rate of
// one rank, which is added to its rail's where a node has several ranks:
//
//   gather   into each node      (S - S_j) / C_j          out of each node    S_j / C_j
//            into each rank      (S - s_r) / (B + rail)   out of each rank    s_r / (B + rail)
//            all ranks together  (p - 1) S / sum of all that they can send
//   reduce   g bytes per element as gradient, a = 4 as sum, E elements, e of a rank, E_j of a node with G_j ranks:
//            out of each node    min(a, G_j g) (E - E_j) / C_j      into it   min(a, (p - G_j) g) E_j / C_j
//            out of each rank    g (E - e_r) / (B + rail)           into it   min(a, (p - 1) g) e_r / (B + rail)
//            all ranks together  (p - 1) g E / sum of all that they can receive
//   reshard  what leaves and what enters each node and rank
//
// In rank order the bounds of a reduce hold as well. Those of a reduce are not tight for 2-byte gradients with fp32
// sums: the best depth-2 schedule of 8 ranks takes 1.13 to 1.16 times as long (by a linear program).
//
// Pure, and equal on all ranks: plain double arithmetic in a fixed order.
#pragma once

#include <vector>

#include "schedule/schedule.hpp"

namespace mxs {

struct Bound {
  double bandwidth_s = 0;  // 0: nothing has to move
  double latency_s = 0;    // of the one message that must come last: latency and the overhead at both ends
  double seconds() const { return bandwidth_s + latency_s; }
};

// Of options: direction, layout, target_layout, topology (not nullptr), element_bytes.
Bound lower_bound(const ScheduleOptions &options);

// The last message's latency beside the bandwidth; `crosses`: something must enter or leave a node.
Bound with_latency(Bound bound, const Topology &topology, bool crosses);

std::vector<uint64_t> owned_by_rank(const Layout &layout);

// Of all rails of a node, and of the local copying of its ranks.
double node_bytes_per_second(const Topology &topology, int node);
// What one rank can send, or receive: by its own rail, and to local peers if it has any.
double rank_bytes_per_second(const Topology &topology, int rank);

}  // namespace mxs
