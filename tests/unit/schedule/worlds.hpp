// SPDX-License-Identifier: Apache-2.0
// What the tests of bounds, costs and the simulator share: topologies and layouts by a few numbers.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "layout/layout.hpp"
#include "schedule/schedule.hpp"
#include "topology/topology.hpp"

namespace mxs {

// local_count ranks on each node, every one with a rail of its own.
inline Topology made_topology(int node_count, int local_count, LinkSpeed network, LinkSpeed local) {
  std::vector<uint64_t> nodes;
  for (int rank = 0; rank < node_count * local_count; ++rank)
    nodes.push_back(static_cast<uint64_t>(rank / local_count));
  Topology topology = topology_from_nodes(nodes);
  topology.network = network;
  topology.local = local;
  if (local.bytes_per_second > 100'000'000'000) topology.add_bytes_per_second = 500'000'000'000;  // GPUs
  for (Node &node : topology.nodes) node.rails.resize(static_cast<size_t>(local_count));
  for (RankPlace &place : topology.ranks) place.rail = place.local_rank;
  return topology;
}

// 200 Mbit/s links, as of virtual nodes; a host's memory.
constexpr LinkSpeed slow_network = {100'000, 20'000, 25'000'000};
constexpr LinkSpeed host_memory = {300, 200, 5'000'000'000};
// 25 GB/s NICs and 200 GB/s between GPUs.
constexpr LinkSpeed fast_network = {10'000, 1'000, 25'000'000'000};
constexpr LinkSpeed gpu_links = {2'000, 1'000, 200'000'000'000};

// owner_count owners with equal parts, spread over the ranks; `tail_bytes` more of the rank after the last.
inline Layout owners_layout(int rank_count, int owner_count, uint64_t bytes, uint64_t tail_bytes = 0) {
  std::vector<Segment> segments;
  uint64_t offset = 0;
  for (int i = 0; i < owner_count; ++i) {
    const uint64_t end = (bytes / 64 * static_cast<uint64_t>(i + 1) / static_cast<uint64_t>(owner_count)) * 64;
    segments.push_back({i * rank_count / owner_count, offset, end - offset});
    offset = end;
  }
  if (tail_bytes) segments.push_back({(segments.back().owner + 1) % rank_count, offset, tail_bytes});
  Layout layout;
  make_layout(segments, rank_count, 1, &layout);
  return layout;
}

inline bool near(double found, double wanted, double tolerance) {
  return std::abs(found - wanted) <= tolerance * std::abs(wanted);
}

}  // namespace mxs
