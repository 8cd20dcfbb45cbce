// SPDX-License-Identifier: Apache-2.0
// Topology: a small graph of nodes, ranks, rails and speeds. A pure value, equal on all ranks; see
// include/matrixshard/topology.h.
//
//   node 0                          node 1
//   ranks 0 1 2 3   local speed     ranks 4 5 6 7
//      rail 0  rail 1  ===========  rail 0  rail 1      network speed: of one rail, in each direction
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "matrixshard/status.h"

namespace mxs {

struct RankPlace {
  int node = 0;
  int local_rank = 0;
  int numa = -1;  // of its cores, counted from 0 on its node; -1: not known, or several
  int rail = 0;   // index in its node's rails: the NIC nearest to it
  bool operator==(const RankPlace &) const = default;
};

// A NIC.
struct Rail {
  std::string name;               // "mlx5_0", "eth0"; "" if the topology is made up
  int numa = -1;
  uint64_t bytes_per_second = 0;  // in each direction; 0: not known, the network's speed stands for it
  bool operator==(const Rail &) const = default;
};

struct Node {
  std::vector<int> ranks;    // in rank order: the index is the local rank
  std::vector<Rail> rails;   // at least one
  int numa_count = 1;
  int rank_count() const { return static_cast<int>(ranks.size()); }
  bool operator==(const Node &) const = default;
};

// What a message between two ranks costs: overhead at each end, latency on the way, bytes over the rate.
struct LinkSpeed {
  uint32_t latency_ns = 0, overhead_ns = 0;
  uint64_t bytes_per_second = 0;
  bool operator==(const LinkSpeed &) const = default;
};

struct Topology {
  std::vector<RankPlace> ranks;
  std::vector<Node> nodes;
  // Defaults stand for what nobody has measured (`mxs-perf tune` does).
  LinkSpeed local = {300, 200, 5'000'000'000};        // between two ranks of a node, of one rank's copying
  LinkSpeed network = {30'000, 20'000, 1'250'000'000};  // between nodes, of one rail
  uint64_t add_bytes_per_second = 8'000'000'000;      // of gradients that one rank adds to a sum

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int node_count() const { return static_cast<int>(nodes.size()); }
  int node_of(int rank) const { return ranks[static_cast<size_t>(rank)].node; }
  const Node &node(int index) const { return nodes[static_cast<size_t>(index)]; }
  bool same_node(int a, int b) const { return node_of(a) == node_of(b); }
  uint64_t rail_bytes_per_second(int node_index, int rail) const {
    const uint64_t own = node(node_index).rails[static_cast<size_t>(rail)].bytes_per_second;
    return own ? own : network.bytes_per_second;
  }
  // Of who is where; of speeds only with_speeds, since a plan does not depend on them.
  uint64_t hash(bool with_speeds = false) const;
  bool operator==(const Topology &) const = default;
};

mxs_status parse_topology(std::string_view text, Topology *topology);

// node_of_rank holds any labels; equal labels are one node. Nodes are numbered by their lowest rank. One rail each.
Topology topology_from_nodes(const std::vector<uint64_t> &node_of_rank);

}  // namespace mxs
