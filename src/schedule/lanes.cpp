// SPDX-License-Identifier: Apache-2.0
#include "schedule/lanes.hpp"

#include <algorithm>

namespace mxs {

namespace {

// More would only make messages smaller: no node has more NICs.
constexpr int lane_count_max = 16;

// A node's ranks, dealt from its rails in turn.
std::vector<int> dealt_by_rail(const Topology &topology, const Node &node) {
  std::vector<std::vector<int>> near(std::max<size_t>(node.rails.size(), 1));
  for (const int rank : node.ranks)
    near[static_cast<size_t>(topology.ranks[static_cast<size_t>(rank)].rail) % near.size()].push_back(rank);
  std::vector<int> dealt;
  for (size_t turn = 0; dealt.size() < node.ranks.size(); ++turn)
    for (const std::vector<int> &ranks : near)
      if (turn < ranks.size()) dealt.push_back(ranks[turn]);
  return dealt;
}

}  // namespace

Lanes::Lanes(const ScheduleOptions &options) {
  if (options.topology) {
    for (const Node &node : options.topology->nodes) relays_.push_back(dealt_by_rail(*options.topology, node));
  } else {
    for (int rank = 0; rank < options.layout->rank_count; ++rank) relays_.push_back({rank});
  }
  nodes_.resize(static_cast<size_t>(options.layout->rank_count));
  places_.resize(nodes_.size());
  for (size_t node = 0; node < relays_.size(); ++node) {
    count_ = std::max(count_, std::min(static_cast<int>(relays_[node].size()), lane_count_max));
    for (size_t place = 0; place < relays_[node].size(); ++place) {
      const size_t rank = static_cast<size_t>(relays_[node][place]);
      nodes_[rank] = static_cast<int>(node);
      places_[rank] = static_cast<int>(place);
    }
  }
}

}  // namespace mxs
