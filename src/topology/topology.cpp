// SPDX-License-Identifier: Apache-2.0
// What a topology is as a value: its hash, its speeds.
#include "topology/topology.hpp"

#include <algorithm>

#include "base/hash.hpp"

namespace mxs {

namespace {

void add_speed(Fingerprint *fingerprint, const LinkSpeed &speed) {
  fingerprint->add(speed.latency_ns).add(speed.overhead_ns).add(speed.bytes_per_second);
}

bool by_name(const std::pair<std::string, uint32_t> &factor, std::string_view name) { return factor.first < name; }

}  // namespace

uint32_t Speeds::factor_per_mille(std::string_view algorithm) const {
  const auto place = std::lower_bound(factors.begin(), factors.end(), algorithm, by_name);
  return place != factors.end() && place->first == algorithm ? place->second : 1000;
}

void Speeds::set_factor(std::string_view algorithm, uint32_t per_mille) {
  const auto place = std::lower_bound(factors.begin(), factors.end(), algorithm, by_name);
  if (place != factors.end() && place->first == algorithm)
    place->second = per_mille;
  else
    factors.emplace(place, algorithm, per_mille);
}

void set_speeds(Topology *topology, const Speeds &speeds, bool network_is_measured) {
  static_cast<Speeds &>(*topology) = speeds;
  if (!network_is_measured) return;
  for (Node &node : topology->nodes)
    for (Rail &rail : node.rails) rail.bytes_per_second = 0;
}

uint64_t Topology::hash(bool with_speeds) const {
  Fingerprint fingerprint;
  fingerprint.add(ranks.size());
  for (const RankPlace &place : ranks) fingerprint.add(static_cast<uint64_t>(place.node));
  if (!with_speeds) return fingerprint.value();
  for (const RankPlace &place : ranks)
    fingerprint.add(static_cast<uint64_t>(place.numa)).add(static_cast<uint64_t>(place.rail));
  for (const Node &node : nodes) {
    fingerprint.add(static_cast<uint64_t>(node.numa_count)).add(node.rails.size());
    for (const Rail &rail : node.rails)
      fingerprint.add(rail.name).add(static_cast<uint64_t>(rail.numa)).add(rail.bytes_per_second);
  }
  add_speed(&fingerprint, local);
  add_speed(&fingerprint, network);
  fingerprint.add(add_bytes_per_second).add(factors.size());
  for (const auto &[algorithm, per_mille] : factors) fingerprint.add(algorithm).add(per_mille);
  return fingerprint.value();
}

namespace {

// Of the ranks that share a rail of this node, the most.
int ranks_on_one_rail(const Topology &topology, const Node &node) {
  std::vector<int> counts(node.rails.size(), 0);
  for (const int rank : node.ranks) ++counts[static_cast<size_t>(topology.ranks[static_cast<size_t>(rank)].rail)];
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

}  // namespace

Topology topology_of_ranks(const Topology &whole, const std::vector<int> &ranks) {
  Topology part;
  static_cast<Speeds &>(part) = whole;
  std::vector<int> numbers(whole.nodes.size(), -1);  // of the part's nodes
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RankPlace place = whole.ranks[static_cast<size_t>(ranks[rank])];
    int &number = numbers[static_cast<size_t>(place.node)];
    if (number < 0) {
      number = part.node_count();
      part.nodes.push_back(whole.node(place.node));
      part.nodes.back().ranks.clear();
    }
    Node &node = part.nodes[static_cast<size_t>(number)];
    place.node = number;
    place.local_rank = node.rank_count();
    node.ranks.push_back(static_cast<int>(rank));
    part.ranks.push_back(place);
  }
  // One rank of each node, say: all would be dealt their node's first rail, where each had another.
  Topology dealt = part;
  deal_rails(&dealt);
  for (const Node &node : part.nodes)
    if (ranks_on_one_rail(dealt, node) < ranks_on_one_rail(part, node))
      for (const int rank : node.ranks)
        part.ranks[static_cast<size_t>(rank)].rail = dealt.ranks[static_cast<size_t>(rank)].rail;
  return part;
}

}  // namespace mxs
