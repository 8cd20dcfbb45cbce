// SPDX-License-Identifier: Apache-2.0
// Topology: which ranks share a node. A pure value; see include/matrixshard/topology.h.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "matrixshard/status.h"

namespace mxs {

struct RankPlace {
  int node = 0;
  int local_rank = 0;
};

struct Topology {
  std::vector<RankPlace> ranks;
  std::vector<int> node_sizes;  // local ranks of each node

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int node_count() const { return static_cast<int>(node_sizes.size()); }
  uint64_t hash() const;
};

mxs_status parse_topology(std::string_view text, Topology *topology);

// node_of_rank holds any labels; equal labels are one node. Nodes are numbered by their lowest rank.
Topology topology_from_nodes(const std::vector<uint64_t> &node_of_rank);

}  // namespace mxs
