// SPDX-License-Identifier: Apache-2.0
#include "cli/collective_prices.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace mxs_cli {

namespace {

constexpr int32_t whole_ranks_max = 32, exchange_ranks_max = 256, nodes_max = 256;
constexpr uint64_t port_bytes_max = uint64_t{128} << 20;
constexpr uint64_t unit_bytes = 64;  // shares are whole elements of any dtype

uint64_t sum_of(const std::vector<uint64_t> &values) {
  return std::accumulate(values.begin(), values.end(), uint64_t{0});
}

uint64_t shared(uint64_t bytes, double parts) {
  if (bytes == 0) return 0;
  const double share = std::ceil(static_cast<double>(bytes) / parts / static_cast<double>(unit_bytes));
  return static_cast<uint64_t>(share) * unit_bytes;
}

mxs::layout layout_of(const std::vector<uint64_t> &owned) {
  std::vector<mxs_segment> segments;
  uint64_t offset = 0;
  for (size_t rank = 0; rank < owned.size(); ++rank) {
    if (owned[rank] == 0) continue;
    mxs_segment segment = MXS_SEGMENT_INIT;
    segment.owner = static_cast<int32_t>(rank);
    segment.offset = offset;
    segment.bytes = owned[rank];
    offset += segment.bytes;
    segments.push_back(segment);
  }
  return mxs::make_layout(segments, static_cast<int32_t>(owned.size()), 1);
}

// As owned has it, but every owner's bytes in equal pieces of all ranks.
mxs::layout sliced_layout(const std::vector<uint64_t> &owned) {
  std::vector<mxs_segment> segments;
  uint64_t offset = 0;
  for (const uint64_t bytes : owned)
    for (size_t rank = 0; rank < owned.size() && bytes > 0; ++rank) {
      mxs_segment segment = MXS_SEGMENT_INIT;
      segment.owner = static_cast<int32_t>(rank);
      segment.offset = offset;
      segment.bytes = bytes / owned.size();
      offset += segment.bytes;
      segments.push_back(segment);
    }
  return mxs::make_layout(segments, static_cast<int32_t>(owned.size()), 1);
}

// The bound grows with the bytes, what is above it by `above_times`.
double carried_on(const mxs_simulation &result, double times, double above_times) {
  const double bound = static_cast<double>(result.bound_ns);
  const double above = std::max(static_cast<double>(result.time_ns) - bound, 0.0);
  return bound * times + above * above_times;
}

mxs::topology with_speeds_of(const std::string &words, const mxs_speeds &speeds) {
  return mxs::with_speeds(mxs::make_topology(words.c_str()), speeds);
}

}  // namespace

CollectivePrices::CollectivePrices(const mxs::topology &topology)
    : topology_(topology), ranks_(mxs_topology_rank_count(topology.get())),
      nodes_(mxs_topology_node_count(topology.get())) {
  mxs::check(mxs_topology_speeds(topology.get(), &speeds_));
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    mxs_rank_info info = MXS_RANK_INFO_INIT;
    mxs::check(mxs_topology_rank(topology.get(), rank, &info));
    node_of_.push_back(info.node);
  }
  mxs_node_info node = MXS_NODE_INFO_INIT;
  mxs_rail_info rail = MXS_RAIL_INFO_INIT;
  mxs::check(mxs_topology_node(topology.get(), 0, &node));
  mxs::check(mxs_topology_rail(topology.get(), 0, 0, &rail));
  rails_ = std::min(node.rail_count, node.rank_count);
  const bool has_inside = nodes_ < ranks_;
  has_levels_ = ranks_ > whole_ranks_max && nodes_ > 1 && (has_inside || nodes_ > nodes_max) && is_even();
  if (!has_levels_) return;
  mxs_speeds speeds = speeds_;
  speeds.network_bytes_per_second = rail.bytes_per_second;
  between_ = with_speeds_of("ranks:1 nodes:" + std::to_string(std::min(nodes_, nodes_max)), speeds);
  inside_ = with_speeds_of("ranks:" + std::to_string(node.rank_count), speeds);
}

// Nodes with as many ranks and rails, of one rate.
bool CollectivePrices::is_even() const {
  mxs_node_info first = MXS_NODE_INFO_INIT;
  mxs_rail_info first_rail = MXS_RAIL_INFO_INIT;
  mxs::check(mxs_topology_node(topology_.get(), 0, &first));
  mxs::check(mxs_topology_rail(topology_.get(), 0, 0, &first_rail));
  for (int32_t n = 0; n < nodes_; ++n) {
    mxs_node_info node = MXS_NODE_INFO_INIT;
    mxs::check(mxs_topology_node(topology_.get(), n, &node));
    if (node.rank_count != first.rank_count || node.rail_count != first.rail_count) return false;
    for (int32_t r = 0; r < node.rail_count; ++r) {
      mxs_rail_info rail = MXS_RAIL_INFO_INIT;
      mxs::check(mxs_topology_rail(topology_.get(), n, r, &rail));
      if (rail.bytes_per_second != first_rail.bytes_per_second) return false;
    }
  }
  return true;
}

// What runs between nodes of several ranks has its own name, and maybe its own factor.
double CollectivePrices::factor(const char *algorithm, bool between_nodes) const {
  const std::string name = algorithm, two_level = "two-level-" + name;
  double factor = 1;
  for (uint32_t i = 0; i < speeds_.factor_count; ++i) {
    const double own = 1e-3 * speeds_.factors[i].per_mille;
    if (between_nodes && speeds_.factors[i].algorithm == two_level) return own;
    if (speeds_.factors[i].algorithm == name) factor = own;
  }
  return factor;
}

double CollectivePrices::simulated(const mxs::topology &topology, int32_t kind, mxs_dtype dtype,
                                   const std::vector<uint64_t> &owned, uint64_t lanes) const {
  const double port_bytes = static_cast<double>(sum_of(owned)) / static_cast<double>(std::max<uint64_t>(lanes, 1));
  const double times = std::max(port_bytes / static_cast<double>(port_bytes_max), 1.0);
  std::vector<uint64_t> few = owned;
  for (uint64_t &bytes : few) bytes = shared(bytes, times);
  const mxs::layout layout = layout_of(few);
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = kind;
  options.layout = layout.get();
  options.dtype = dtype;
  mxs_simulation result = MXS_SIMULATION_INIT;
  mxs::check(mxs_simulate(topology.get(), &options, &result));
  const bool between = topology.get() == between_.get();
  const double further_nodes = between ? static_cast<double>(nodes_) / static_cast<double>(few.size()) : 1;
  return carried_on(result, times, std::sqrt(times) * further_nodes) * factor(result.algorithm, between);
}

double CollectivePrices::by_levels(int32_t kind, mxs_dtype dtype, const std::vector<uint64_t> &owned) const {
  std::vector<uint64_t> by_node(static_cast<size_t>(nodes_));
  for (size_t rank = 0; rank < owned.size(); ++rank) by_node[static_cast<size_t>(node_of_[rank])] += owned[rank];
  const size_t largest = static_cast<size_t>(std::max_element(owned.begin(), owned.end()) - owned.begin());
  const int32_t node = node_of_[largest];
  const uint64_t foreign = sum_of(owned) - by_node[static_cast<size_t>(node)];
  const double local_ranks = static_cast<double>(ranks_ / nodes_);
  std::vector<uint64_t> inside;
  for (size_t rank = 0; rank < owned.size(); ++rank)
    if (node_of_[rank] == node) inside.push_back(shared(owned[rank], 1) + shared(foreign, local_ranks));
  // A node's sum crosses in fp32.
  const double widened =
      kind == MXS_REDUCE ? static_cast<double>(sizeof(float)) / static_cast<double>(mxs_dtype_bytes(dtype)) : 1;
  std::vector<uint64_t> between(static_cast<size_t>(std::min(nodes_, nodes_max)));
  for (size_t n = 0; n < by_node.size(); ++n)
    between[n % between.size()] += shared(by_node[n], static_cast<double>(rails_) / widened);
  const double over = simulated(between_, kind, MXS_F32, between, 1);
  if (inside.size() == 1) return over;
  const double hop = speeds_.local_latency_ns + 2.0 * speeds_.local_overhead_ns;
  return std::max(over, simulated(inside_, kind, dtype, inside, inside.size())) + 2 * hop;
}

double CollectivePrices::price(int32_t kind, mxs_dtype dtype, const std::vector<uint64_t> &owned) const {
  if (ranks_ == 1 || sum_of(owned) == 0) return 0;
  if (has_levels_) return by_levels(kind, dtype, owned);
  std::vector<uint64_t> whole = owned;
  for (uint64_t &bytes : whole) bytes = shared(bytes, 1);
  return simulated(topology_, kind, dtype, whole, static_cast<uint64_t>(nodes_ > 1 ? rails_ : ranks_));
}

double CollectivePrices::reduce(const std::vector<uint64_t> &owned, mxs_dtype dtype) const {
  const bool known = dtype == MXS_F32 || dtype == MXS_BF16 || dtype == MXS_F16;
  return price(MXS_REDUCE, known ? dtype : MXS_F32, owned);
}

double CollectivePrices::exchange(const std::vector<uint64_t> &owned) const {
  if (ranks_ == 1 || sum_of(owned) == 0) return 0;
  // As many whole nodes as there is room for; the busiest owner is among them.
  const int32_t node_ranks = ranks_ / nodes_;
  const int32_t taken = ranks_ <= exchange_ranks_max || node_ranks > exchange_ranks_max
                            ? ranks_
                            : exchange_ranks_max / node_ranks * node_ranks;
  std::vector<int32_t> ranks(static_cast<size_t>(taken));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<uint64_t> bytes(owned.begin(), owned.begin() + taken);
  *std::max_element(bytes.begin(), bytes.end()) = *std::max_element(owned.begin(), owned.end());
  const double rank_bytes = static_cast<double>(sum_of(bytes)) / taken;
  const double times = std::max(rank_bytes / static_cast<double>(port_bytes_max), 1.0);
  for (uint64_t &each : bytes) each = shared(each, times * taken) * static_cast<uint64_t>(taken);
  const mxs::topology part = taken == ranks_ ? nullptr : mxs::topology_of(topology_, ranks);
  const mxs::layout slices = sliced_layout(bytes), whole = layout_of(bytes);
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = MXS_RESHARD;
  options.layout = slices.get();
  options.target_layout = whole.get();
  mxs_simulation result = MXS_SIMULATION_INIT;
  mxs::check(mxs_simulate(part ? part.get() : topology_.get(), &options, &result));
  const double further = 2.0 * speeds_.network_overhead_ns * (ranks_ - taken);
  return (carried_on(result, times, std::sqrt(times)) + further) * factor(result.algorithm, false);
}

}  // namespace mxs_cli
