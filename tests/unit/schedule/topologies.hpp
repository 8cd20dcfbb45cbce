// SPDX-License-Identifier: Apache-2.0
// Where ranks may be: on one node, on even and uneven ones, dealt round-robin; with a rail or several.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace mxs {

struct TestTopology {
  std::string name;
  Topology topology;
};

// sizes: ranks of each node, in rank order; repeated until there are enough.
inline Topology topology_of_sizes(int rank_count, const std::vector<int> &sizes) {
  std::vector<uint64_t> nodes;
  for (uint64_t node = 0; static_cast<int>(nodes.size()) < rank_count; ++node)
    for (int i = 0; i < sizes[node % sizes.size()] && static_cast<int>(nodes.size()) < rank_count; ++i)
      nodes.push_back(node);
  return topology_from_nodes(nodes);
}

// Ranks are dealt to nodes in turn.
inline Topology topology_round_robin(int rank_count, int node_count) {
  std::vector<uint64_t> nodes;
  for (int rank = 0; rank < rank_count; ++rank) nodes.push_back(static_cast<uint64_t>(rank % node_count));
  return topology_from_nodes(nodes);
}

// Local ranks in blocks near each rail.
inline Topology with_rails(Topology topology, int rail_count) {
  for (Node &node : topology.nodes) node.rails.resize(static_cast<size_t>(rail_count));
  for (RankPlace &place : topology.ranks)
    place.rail = place.local_rank * rail_count / topology.nodes[static_cast<size_t>(place.node)].rank_count();
  return topology;
}

inline std::vector<TestTopology> test_topologies(int rank_count) {
  return {
      {"a node each", topology_of_sizes(rank_count, {1})},
      {"one node", topology_of_sizes(rank_count, {rank_count})},
      {"nodes of 2", topology_of_sizes(rank_count, {2})},
      {"nodes of 3 and 5", topology_of_sizes(rank_count, {3, 5})},
      {"nodes of 1 and 6", topology_of_sizes(rank_count, {1, 6})},
      {"nodes of 4, 3 and 2, two rails", with_rails(topology_of_sizes(rank_count, {4, 3, 2}), 2)},
      {"round-robin over 3", topology_round_robin(rank_count, 3)},
      {"nodes of 20", topology_of_sizes(rank_count, {20})},
  };
}

}  // namespace mxs
