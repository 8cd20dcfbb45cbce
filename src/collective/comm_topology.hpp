// SPDX-License-Identifier: Apache-2.0
// A comm's topology: what every rank sees, or what rank 0 was told, and its speeds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "topology/topology.hpp"

namespace mxs {

// What a rank has before anything is exchanged. MXS_TOPOLOGY and saved speeds are read by rank 0, for all.
struct OwnPicture {
  uint64_t told_hash = 0;        // of MXS_TOPOLOGY's text, 0 if it isn't set
  bool is_told = false;          // rank 0: topology is that of MXS_TOPOLOGY
  Topology topology;             // rank 0: at least the speeds
  bool network_is_measured = false;
  std::string speeds_path;       // rank 0: where they came from; empty: guesses
  int device = -1;               // the GPU, where that is known already: the NIC nearest to it is this rank's rail
};
mxs_status read_own_picture(int rank, int rank_count, OwnPicture *picture);

// Every rank tells what it sees, rank 0 also what it was told, and all come to the same topology, of which they compare
// a hash. labels: equal ones share a node, unless rank 0 was told otherwise. Fails alike on all ranks.
mxs_status exchange_topology(Bootstrap &bootstrap, const OwnPicture &own, const std::vector<uint64_t> &labels,
                             Topology *topology);

}  // namespace mxs
