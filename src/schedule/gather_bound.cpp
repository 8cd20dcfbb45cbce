// SPDX-License-Identifier: Apache-2.0
#include "schedule/gather_bound.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace mxs {
namespace {

std::vector<double> rates_of_ranks(const Topology &topology) {
  std::vector<double> rates(topology.ranks.size());
  for (size_t rank = 0; rank < rates.size(); ++rank)
    rates[rank] = rank_bytes_per_second(topology, static_cast<int>(rank));
  return rates;
}

std::vector<double> rates_of_nodes(const Topology &topology) {
  std::vector<double> rates(topology.nodes.size());
  for (size_t node = 0; node < rates.size(); ++node)
    rates[node] = node_bytes_per_second(topology, static_cast<int>(node));
  return rates;
}

}  // namespace

Rates::Rates(std::vector<double> of_place)
    : of_place_(std::move(of_place)), levels_(of_place_), level_of_place_(of_place_.size()) {
  for (const double rate : of_place_) sum_ += rate;
  std::sort(levels_.begin(), levels_.end());
  levels_.erase(std::unique(levels_.begin(), levels_.end()), levels_.end());
  places_at_level_.resize(levels_.size());
  for (size_t place = 0; place < of_place_.size(); ++place) {
    const auto level = std::lower_bound(levels_.begin(), levels_.end(), of_place_[place]) - levels_.begin();
    level_of_place_[place] = static_cast<int>(level);
    ++places_at_level_[static_cast<size_t>(level)];
  }
}

double Rates::slowest_but(const std::vector<int> &places) {
  const auto count_of = [&](int place) -> int & {
    return places_at_level_[static_cast<size_t>(level_of_place_[static_cast<size_t>(place)])];
  };
  for (const int place : places) --count_of(place);
  const auto is_there = [](int count) { return count > 0; };
  const auto begin = places_at_level_.begin(), level = std::find_if(begin, places_at_level_.end(), is_there);
  const double rate = level == places_at_level_.end() ? 0 : levels_[static_cast<size_t>(level - begin)];
  for (const int place : places) ++count_of(place);
  return rate;
}

GatherBound::GatherBound(const Topology &topology)
    : topology_(topology), ranks_(rates_of_ranks(topology)), nodes_(rates_of_nodes(topology)),
      rank_bytes_(topology.ranks.size()), node_bytes_(topology.nodes.size()) {}

Bound GatherBound::of(const Layout &layout) {
  assert(topology_.rank_count() == layout.rank_count);
  Bound bound;
  if (topology_.rank_count() < 2) return bound;
  owners_.clear();
  nodes_of_owners_.clear();
  for (const Segment &segment : layout.segments) {
    uint64_t &bytes = rank_bytes_[static_cast<size_t>(segment.owner)];
    if (bytes == 0 && segment.bytes > 0) owners_.push_back(segment.owner);
    bytes += segment.bytes;
  }
  std::sort(owners_.begin(), owners_.end());  // sums are the same whatever the order of segments
  double all = 0;
  for (const int rank : owners_) {
    const double bytes = static_cast<double>(rank_bytes_[static_cast<size_t>(rank)]);
    const int node = topology_.node_of(rank);
    if (node_bytes_[static_cast<size_t>(node)] == 0) nodes_of_owners_.push_back(node);
    node_bytes_[static_cast<size_t>(node)] += bytes;
    all += bytes;
  }
  const auto hold = [&](double bytes, double rate) {
    if (bytes > 0) bound.bandwidth_s = std::max(bound.bandwidth_s, bytes / rate);
  };
  const auto hold_others = [&](double rate) {
    if (rate > 0) hold(all, rate);
  };
  for (const int rank : owners_) {
    const double bytes = static_cast<double>(std::exchange(rank_bytes_[static_cast<size_t>(rank)], 0));
    hold(std::max(bytes, all - bytes), ranks_.of(rank));
  }
  hold_others(ranks_.slowest_but(owners_));
  for (const int node : nodes_of_owners_) {
    const double bytes = std::exchange(node_bytes_[static_cast<size_t>(node)], 0.0);
    if (topology_.node_count() > 1) hold(std::max(bytes, all - bytes), nodes_.of(node));
  }
  if (topology_.node_count() > 1) hold_others(nodes_.slowest_but(nodes_of_owners_));
  hold(static_cast<double>(topology_.rank_count() - 1) * all, ranks_.sum());
  return with_latency(bound, topology_, topology_.node_count() > 1 && all > 0);
}

}  // namespace mxs
