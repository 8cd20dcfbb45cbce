// SPDX-License-Identifier: Apache-2.0
#include "schedule/bounds.hpp"

#include <algorithm>
#include <cassert>

#include "schedule/gather_bound.hpp"

namespace mxs {

namespace {

// What at least has to enter or leave each rank and node, and in all.
struct Needs {
  std::vector<double> rank_out, rank_in, node_out, node_in;
  double all = 0;

  explicit Needs(const Topology &topology)
      : rank_out(topology.ranks.size()), rank_in(topology.ranks.size()), node_out(topology.nodes.size()),
        node_in(topology.nodes.size()) {}
};

struct Owned {
  std::vector<double> by_rank, by_node;
  double all = 0;

  explicit Owned(const ScheduleOptions &options) : by_node(options.topology->nodes.size()) {
    for (const uint64_t bytes : owned_by_rank(*options.layout)) by_rank.push_back(static_cast<double>(bytes));
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      by_node[static_cast<size_t>(options.topology->node_of(static_cast<int>(rank)))] += by_rank[rank];
      all += by_rank[rank];
    }
  }
};

// In bytes of gradients; a sum is `weight` times as long.
void need_reduce(const ScheduleOptions &options, Needs *needs) {
  const Owned owned(options);
  const double weight = 4.0 / options.element_bytes, ranks = static_cast<double>(owned.by_rank.size());
  for (size_t rank = 0; rank < owned.by_rank.size(); ++rank) {
    needs->rank_out[rank] = owned.all - owned.by_rank[rank];
    needs->rank_in[rank] = std::min(weight, ranks - 1) * owned.by_rank[rank];
  }
  for (size_t node = 0; node < owned.by_node.size(); ++node) {
    const double local = options.topology->node(static_cast<int>(node)).rank_count();
    needs->node_out[node] = std::min(weight, local) * (owned.all - owned.by_node[node]);
    needs->node_in[node] = std::min(weight, ranks - local) * owned.by_node[node];
  }
  needs->all = (ranks - 1) * owned.all;
}

void need_reshard(const ScheduleOptions &options, Needs *needs) {
  std::vector<LayoutMove> moves;
  if (layout_moves(*options.layout, *options.target_layout, &moves) != MXS_OK) return;
  for (const LayoutMove &move : moves) {
    if (move.source_rank == move.target_rank) continue;
    const double bytes = static_cast<double>(move.bytes);
    needs->rank_out[static_cast<size_t>(move.source_rank)] += bytes;
    needs->rank_in[static_cast<size_t>(move.target_rank)] += bytes;
    needs->all += bytes;
    if (options.topology->same_node(move.source_rank, move.target_rank)) continue;
    needs->node_out[static_cast<size_t>(options.topology->node_of(move.source_rank))] += bytes;
    needs->node_in[static_cast<size_t>(options.topology->node_of(move.target_rank))] += bytes;
  }
}

}  // namespace

std::vector<uint64_t> owned_by_rank(const Layout &layout) {
  std::vector<uint64_t> owned(static_cast<size_t>(layout.rank_count));
  for (const Segment &segment : layout.segments) owned[static_cast<size_t>(segment.owner)] += segment.bytes;
  return owned;
}

double node_bytes_per_second(const Topology &topology, int node) {
  double rate = 0;
  for (size_t rail = 0; rail < topology.node(node).rails.size(); ++rail)
    rate += static_cast<double>(topology.rail_bytes_per_second(node, static_cast<int>(rail)));
  return rate;
}

double rank_bytes_per_second(const Topology &topology, int rank) {
  const RankPlace &place = topology.ranks[static_cast<size_t>(rank)];
  double rate = 0;
  if (topology.node(place.node).rank_count() > 1) rate += static_cast<double>(topology.local.bytes_per_second);
  if (topology.node_count() > 1) rate += static_cast<double>(topology.rail_bytes_per_second(place.node, place.rail));
  return rate;
}

Bound lower_bound(const ScheduleOptions &options) {
  assert(options.topology && options.topology->rank_count() == options.layout->rank_count);
  const Topology &topology = *options.topology;
  Bound bound;
  if (topology.rank_count() < 2) return bound;
  if (options.direction == Direction::gather) return GatherBound(topology).of(*options.layout);
  Needs needs(topology);
  switch (options.direction) {
    case Direction::gather: break;
    case Direction::reduce:
    case Direction::ordered_reduce: need_reduce(options, &needs); break;
    case Direction::reshard: need_reshard(options, &needs); break;
  }
  double all_rates = 0;
  const auto hold = [&](double bytes, double rate) { bound.bandwidth_s = std::max(bound.bandwidth_s, bytes / rate); };
  for (int rank = 0; rank < topology.rank_count(); ++rank) {
    const double rate = rank_bytes_per_second(topology, rank);
    all_rates += rate;
    hold(std::max(needs.rank_out[static_cast<size_t>(rank)], needs.rank_in[static_cast<size_t>(rank)]), rate);
  }
  bool crosses = false;
  if (topology.node_count() > 1)
    for (int node = 0; node < topology.node_count(); ++node) {
      const double most = std::max(needs.node_out[static_cast<size_t>(node)], needs.node_in[static_cast<size_t>(node)]);
      hold(most, node_bytes_per_second(topology, node));
      crosses = crosses || most > 0;
    }
  hold(needs.all, all_rates);
  return with_latency(bound, topology, crosses);
}

Bound with_latency(Bound bound, const Topology &topology, bool crosses) {
  if (bound.bandwidth_s <= 0) return bound;
  const LinkSpeed &last = crosses ? topology.network : topology.local;
  bound.latency_s = 1e-9 * (static_cast<double>(last.latency_ns) + 2.0 * static_cast<double>(last.overhead_ns));
  return bound;
}

}  // namespace mxs
