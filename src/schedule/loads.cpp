// SPDX-License-Identifier: Apache-2.0
#include "schedule/loads.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "schedule/bounds.hpp"

namespace mxs {

namespace {

class LoadMaker {
 public:
  explicit LoadMaker(const ScheduleOptions &options);
  Loads make();

 private:
  void flat_or_spread();
  void chain();
  void give_back(const std::vector<size_t> &ring);
  void direct();
  void circulant();
  void two_level(Algorithm between);
  void transpose();

  const Node &node_of(size_t rank) const { return topology_.node(topology_.node_of(static_cast<int>(rank))); }
  bool reduces() const {
    return options_.direction == Direction::reduce || options_.direction == Direction::ordered_reduce;
  }
  // Spreads bytes and channels to or from all other ranks over network and node, by how many live where.
  void to_others(size_t rank, double bytes, double channels);
  void from_others(size_t rank, double network_share, double bytes, double channels);
  void edge(size_t source, size_t target, double bytes);

  const ScheduleOptions &options_;
  const Topology &topology_;
  const size_t count_;
  const double ranks_;
  const double weight_;  // a sum's bytes per byte of gradient
  std::vector<double> owned_;
  double all_ = 0;
  Loads loads_;
};

LoadMaker::LoadMaker(const ScheduleOptions &options)
    : options_(options), topology_(*options.topology), count_(topology_.ranks.size()),
      ranks_(static_cast<double>(count_)), weight_(4.0 / options.element_bytes) {
  loads_.ranks.resize(count_);
  for (const uint64_t bytes : owned_by_rank(*options.layout)) owned_.push_back(static_cast<double>(bytes));
  for (const double bytes : owned_) all_ += bytes;
}

void LoadMaker::to_others(size_t rank, double bytes, double channels) {
  const double peers = node_of(rank).rank_count() - 1, others = ranks_ - 1;
  RankLoad &load = loads_.ranks[rank];
  load.local_out += bytes * peers / others;
  load.network_out += bytes * (others - peers) / others;
  load.local_out_channels += std::min(channels, peers);
  load.network_out_channels += std::min(channels, others - peers);
}

void LoadMaker::from_others(size_t rank, double network_share, double bytes, double channels) {
  const double peers = node_of(rank).rank_count() - 1, others = ranks_ - 1;
  RankLoad &load = loads_.ranks[rank];
  load.local_in += bytes * (1 - network_share);
  load.network_in += bytes * network_share;
  load.local_in_channels += std::min(channels, peers);
  const double network = std::min(channels, others - peers);
  load.network_in_channels += network;
  load.fan_in = std::max(load.fan_in, network);
}

// Hands on: own shares to all others, those of other owners to the rest. Shares of a spread are even enough to be told
// by their sums.
void LoadMaker::flat_or_spread() {
  std::vector<double> own = owned_, helped(count_);
  if (options_.algorithm == Algorithm::spread) {
    std::vector<uint64_t> own_bytes, helped_bytes;
    spread_totals(*options_.layout, options_.direction == Direction::gather ? 1 : 4 / options_.element_bytes,
                  &own_bytes, &helped_bytes);
    own.assign(own_bytes.begin(), own_bytes.end());
    helped.assign(helped_bytes.begin(), helped_bytes.end());
  }
  std::vector<double> node_holds(topology_.nodes.size()), node_owned(topology_.nodes.size());
  double holders = 0, helpers = 0, owners = 0;
  for (size_t rank = 0; rank < count_; ++rank) {
    const size_t node = static_cast<size_t>(topology_.node_of(static_cast<int>(rank)));
    node_holds[node] += own[rank] + helped[rank];
    node_owned[node] += owned_[rank];
    holders += own[rank] + helped[rank] > 0;
    helpers += helped[rank] > 0;
    owners += owned_[rank] > 0;
  }
  const bool ordered = options_.direction == Direction::ordered_reduce;
  const double accumulator = ordered && options_.accumulate ? weight_ : 0;
  for (size_t rank = 0; rank < count_; ++rank) {
    const size_t node = static_cast<size_t>(topology_.node_of(static_cast<int>(rank)));
    const double given = owned_[rank] - own[rank], holds = own[rank] + helped[rank];
    const double peers_own = all_ > owned_[rank] ? (node_owned[node] - owned_[rank]) / (all_ - owned_[rank]) : 0;
    const double peers = node_of(rank).rank_count() - 1, away = (ranks_ - 1 - peers) / (ranks_ - 1);
    const double holding_peers = std::min(ranks_ - 1, holders - (holds > 0));
    const double hands_on = own[rank] * (ranks_ - 1) + helped[rank] * (ranks_ - 2);
    const double held_by_peers = std::min(node_holds[node] - holds, all_ - owned_[rank] - helped[rank]);
    RankLoad &load = loads_.ranks[rank];
    if (!reduces()) {  // from whoever holds it, and what one helps from its owner
      to_others(rank, hands_on + given, holds > 0 ? ranks_ - 1 : 0);
      const double in = all_ - owned_[rank], local = held_by_peers + helped[rank] * peers_own;
      from_others(rank, in > 0 ? 1 - local / in : 0, in, holding_peers);
      continue;
    }
    // The transpose: raw gradients to whoever holds a share, sums from helpers to owners.
    const double sums_out = helped[rank] * weight_, raw_own = given * (ordered ? 1 + accumulator : 0);
    const double local_out = held_by_peers + sums_out * peers_own + raw_own * (1 - away);
    load.local_out += local_out;
    load.network_out += all_ - owned_[rank] - helped[rank] + sums_out + raw_own - local_out;
    const double raw = ordered ? helped[rank] : 0;  // the owner's own term goes through the helper, too
    from_others(rank, away, hands_on + raw + helped[rank] * accumulator + given * weight_,
                holds > 0 ? ranks_ - 1 : std::min(helpers, given > 0 ? ranks_ - 1 : 0.0));
    load.network_out_channels += std::min(holding_peers, ranks_ - 1 - peers);
    load.local_out_channels += std::min(holding_peers, peers);
    load.added = hands_on + raw + own[rank] + helped[rank] + given;
    // Rounds are counted per helper. What different owners have in one travels together if it is small.
    const double piece = helped[rank] / std::max(owners, 1.0);
    if (helpers > 0 && piece > static_cast<double>(small_piece_bytes(&topology_, false)))
      for (double *channels : {&load.network_out_channels, &load.network_in_channels}) *channels *= owners;
    if (helpers > 0 && piece > static_cast<double>(small_piece_bytes(&topology_, true)))
      for (double *channels : {&load.local_out_channels, &load.local_in_channels}) *channels *= owners;
  }
  const double hops = helpers > 0 ? 2 : 1;
  loads_.network_hops = topology_.node_count() > 1 ? hops : 0;
  loads_.local_hops = topology_.node_count() > 1 ? 0 : hops;
  if (helpers > 0) loads_.waiting_peers = (!reduces() ? 1 : owners > 1 ? 0.75 : 1.5) * (ranks_ - 2);
  for (size_t rank = 0; rank < count_; ++rank) {
    const double piece = helpers > 0 ? std::max(own[rank], helped[rank] / std::max(owners, 1.0)) : own[rank];
    loads_.longest_piece = std::max(loads_.longest_piece, piece);
  }
}

void LoadMaker::edge(size_t source, size_t target, double bytes) {
  const bool local = topology_.same_node(static_cast<int>(source), static_cast<int>(target));
  RankLoad &out = loads_.ranks[source], &in = loads_.ranks[target];
  (local ? out.local_out : out.network_out) += bytes;
  (local ? in.local_in : in.network_in) += bytes;
  (local ? out.local_out_channels : out.network_out_channels) += 1;
  (local ? in.local_in_channels : in.network_in_channels) += 1;
  if (!local) in.fan_in = options_.direction == Direction::ordered_reduce ? in.fan_in + 1 : std::max(in.fan_in, 1.0);
  if (reduces()) in.added += bytes / weight_ * 2;  // and one's own term
}

// In rank order: from the last rank to owners, and if there are accumulators, from owners to the first.
void LoadMaker::give_back(const std::vector<size_t> &ring) {
  for (size_t rank = 0; rank < count_; ++rank) {
    if (owned_[rank] > 0 && rank != ring.back()) edge(ring.back(), rank, weight_ * owned_[rank]);
    if (owned_[rank] > 0 && rank != ring.front() && options_.accumulate)
      edge(rank, ring.front(), weight_ * owned_[rank]);
  }
}

// Around the ring, node by node.
void LoadMaker::chain() {
  std::vector<size_t> ring;
  for (const Node &node : topology_.nodes)
    for (const int rank : node.ranks) ring.push_back(static_cast<size_t>(rank));
  double crossings = 0;
  loads_.largest_stream = 0;
  for (size_t place = 0; place < count_; ++place) {
    const size_t from = ring[place], to = ring[(place + 1) % count_], after = ring[(place + 2) % count_];
    if (!reduces())
      edge(from, to, all_ - owned_[to]);
    else if (options_.direction == Direction::ordered_reduce)
      place + 1 < count_ ? edge(from, to, weight_ * all_) : give_back(ring);
    else  // up the chain: what `after` owns comes raw from `to`, its leaf; what `to` owns does not come at all
      edge(to, from, weight_ * (all_ - owned_[to] - owned_[after]) + owned_[after]);
    loads_.largest_stream = std::max(loads_.largest_stream, all_ > 0 ? owned_[from] / all_ : 1);
    crossings += !topology_.same_node(static_cast<int>(from), static_cast<int>(to));
    loads_.longest_piece = std::max(loads_.longest_piece, owned_[from]);
  }
  const bool ordered = options_.direction == Direction::ordered_reduce;
  if (ordered) loads_.largest_stream = 1;  // all begin at the first rank
  const double extra = ordered ? (options_.accumulate ? 2 : 1) : 0;
  loads_.network_hops = crossings > 0 ? crossings - 1 + extra : 0;
  loads_.local_hops = ranks_ - 1 + extra - loads_.network_hops;
}

void LoadMaker::direct() {
  std::vector<LayoutMove> moves;
  if (layout_moves(*options_.layout, *options_.target_layout, &moves) != MXS_OK) return;
  for (const LayoutMove &move : moves) {
    if (move.source_rank == move.target_rank) continue;
    const size_t target = static_cast<size_t>(move.target_rank);
    const double fan_in = loads_.ranks[target].fan_in;
    edge(static_cast<size_t>(move.source_rank), target, static_cast<double>(move.bytes));
    if (!topology_.same_node(move.source_rank, move.target_rank)) loads_.ranks[target].fan_in = fan_in + 1;
    loads_.longest_piece = std::max(loads_.longest_piece, static_cast<double>(move.bytes));
  }
  loads_.network_hops = topology_.node_count() > 1 ? 1 : 0;
  loads_.local_hops = topology_.node_count() > 1 ? 0 : 1;
}

// A reduce's loads from a gather's: what came in goes out, as sums, but raw where `local` is all that a leaf does.
void LoadMaker::transpose() {
  for (size_t rank = 0; rank < count_; ++rank) {
    RankLoad &load = loads_.ranks[rank];
    std::swap(load.network_out, load.network_in);
    std::swap(load.local_out, load.local_in);
    std::swap(load.network_out_channels, load.network_in_channels);
    std::swap(load.local_out_channels, load.local_in_channels);
    load.added = load.network_in + load.local_in + all_;
    load.network_out *= weight_;
    load.network_in *= weight_;
  }
}

// Every rank passes on about what it gets, one message per round. Neighbours on the ring share a node, so that of a
// skip s between nodes of G ranks s / G of the edges cross.
void LoadMaker::circulant() {
  double hops = 0, crossing = 0;
  for (size_t skip = count_; skip > 1; skip = (skip + 1) / 2) {
    const double mean_local = ranks_ / static_cast<double>(topology_.node_count());
    crossing += topology_.node_count() > 1 ? std::min(1.0, static_cast<double>((skip + 1) / 2) / mean_local) : 0;
    ++hops;
  }
  const double over = hops > 0 ? crossing / hops : 0;
  for (size_t rank = 0; rank < count_; ++rank) {
    RankLoad &load = loads_.ranks[rank];
    const double in = all_ - owned_[rank], out = std::max(all_ * (ranks_ - 1) / ranks_, owned_[rank]);
    load.network_in = in * over;
    load.local_in = in * (1 - over);
    load.network_out = out * over;
    load.local_out = out * (1 - over);
    load.network_in_channels = load.network_out_channels = load.fan_in = std::ceil(crossing);
    load.local_in_channels = load.local_out_channels = hops - load.fan_in;
  }
  loads_.network_hops = std::ceil(crossing);
  loads_.local_hops = hops - loads_.network_hops;
  loads_.longest_piece = all_;
  loads_.rounds = all_;
  // What is late in one round is late in the next q, and sums wait for each other at the heads of channels. Simulated:
  // a gather of 512 MiB on 8 x 8 2.1, reduces 1.3 to 1.8 on 8 x 1 and more.
  loads_.round_stalls = (reduces() ? 1.5 : 1) * (1 + 0.2 * std::max(hops - 2, 0.0));
  if (reduces()) transpose();
}

// Each rank relays a lane: its part of what enters its node and leaves it, and of what goes round inside.
void LoadMaker::two_level(Algorithm between) {
  const bool between_is_chain = between == Algorithm::chain, between_is_circulant = between == Algorithm::circulant;
  const size_t nodes = topology_.nodes.size();
  std::vector<double> node_owned(nodes);
  for (size_t rank = 0; rank < count_; ++rank)
    node_owned[static_cast<size_t>(topology_.node_of(static_cast<int>(rank)))] += owned_[rank];
  const double others = static_cast<double>(nodes) - 1;
  double log_nodes = 0, lanes = 1, owning = 0, largest = 0;
  for (size_t reached = 1; reached < nodes; reached *= 2) ++log_nodes;
  for (size_t node = 0; node < nodes; ++node) {
    lanes = std::max(lanes, std::min(16.0, static_cast<double>(topology_.nodes[node].ranks.size())));
    owning += node_owned[node] > 0;
    largest = std::max(largest, node_owned[node]);
  }
  // Small owners take fewer lanes.
  double owners = 0;
  for (const double bytes : owned_) owners += bytes > 0;
  const double most = owned_.empty() ? 0 : *std::max_element(owned_.begin(), owned_.end());
  lanes = std::clamp(std::ceil(most / 4096) * std::ceil(owners / std::max(owning, 1.0)), 1.0, lanes);
  for (size_t rank = 0; rank < count_; ++rank) {
    const size_t node = static_cast<size_t>(topology_.node_of(static_cast<int>(rank)));
    const double local = node_of(rank).rank_count(), relays = std::min(local, lanes);
    const double place = topology_.ranks[rank].local_rank, part = place < relays ? 1 / relays : 0;
    const double enters = (all_ - node_owned[node]) * part;
    const double leaves = between_is_chain       ? (all_ - node_owned[(node + 1) % nodes]) * part
                          : others == 0          ? 0
                          : between_is_circulant ? std::max(all_ * others / (others + 1), node_owned[node]) * part
                                                 : node_owned[node] * others * part;
    const double own_inside = local > 1 ? node_owned[node] * (local - 2) / local + owned_[rank] : 0;
    RankLoad &load = loads_.ranks[rank];
    load.network_in = enters;
    load.network_out = leaves;
    load.local_out = enters * (local - 1) + own_inside;
    load.local_in = all_ - owned_[rank] - enters;
    load.local_in_channels = load.local_out_channels = local - 1;
    const double peers = between_is_chain ? std::min(others, 1.0) : between_is_circulant ? log_nodes : others;
    load.network_in_channels = load.network_out_channels = part > 0 ? peers : 0;
    load.fan_in = between_is_chain || between_is_circulant ? peers : owning;
  }
  loads_.longest_piece = largest / lanes;  // pieces of a node's owners travel together
  loads_.network_hops = between_is_chain ? others : between_is_circulant ? log_nodes : std::min(others, 1.0);
  loads_.local_hops = 3;
  if (between_is_circulant) loads_.rounds = all_ / lanes;
  if (between_is_circulant) loads_.longest_piece = all_ / lanes;
  // 512 MiB: 1.6 simulated on 8 x 8, 2.9 on 128 x 8.
  if (between_is_circulant) loads_.round_stalls = (reduces() ? 1 : 1.3) * (1 + 0.2 * std::max(log_nodes - 2, 0.0));
  // A node's fp32 sums go out when the last of its ranks has come, and an owner adds those of all nodes.
  const bool star = !between_is_chain && !between_is_circulant;
  if (reduces() && weight_ > 1) loads_.stalls = star ? 1.6 : 1.2;
  if (reduces()) transpose();
}

Loads LoadMaker::make() {
  if (count_ < 2) return loads_;
  switch (options_.algorithm) {
    case Algorithm::flat:
    case Algorithm::spread: flat_or_spread(); break;
    case Algorithm::chain: chain(); break;
    case Algorithm::circulant: circulant(); break;
    case Algorithm::two_level_flat: two_level(Algorithm::flat); break;
    case Algorithm::two_level_chain: two_level(Algorithm::chain); break;
    case Algorithm::two_level_circulant: two_level(Algorithm::circulant); break;
    case Algorithm::direct: direct(); break;
  }
  return loads_;
}

}  // namespace

Loads loads_of(const ScheduleOptions &options) {
  assert(options.topology && options.topology->rank_count() == options.layout->rank_count);
  return LoadMaker(options).make();
}

}  // namespace mxs
