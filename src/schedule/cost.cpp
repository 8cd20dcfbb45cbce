// SPDX-License-Identifier: Apache-2.0
#include "schedule/cost.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/arithmetic.hpp"
#include "schedule/loads.hpp"

namespace mxs {

namespace {

// A table of its shares has rank_count^2 entries: 128 MiB here.
constexpr int spread_ranks_max = 4096;
// Pieces per schedule that are still cheap to make, on every rank.
constexpr uint64_t piece_count_wanted = uint64_t{1} << 16;
constexpr int window_default = 4, window_of_many = 2;
constexpr double many_channels = 16;
// How much of a circulant's hop shows in each round; the rest is hidden by the windows of its channels.
constexpr double round_share = 0.5;

struct Limits {
  uint64_t least, most;
};

// Least: what the network carries within one overhead; smaller messages are bound by the CPU. Most: up to 2.5 GB/s we
// are on TCP, where UCX sends up to about 128 KiB eagerly; beyond, what keeps a pipeline's stages short. Within a node:
// a chunk should stay in a core's cache between ranks (of 64 KiB to 1 MiB, 128 and 256 KiB were the best for 32 MiB
// over shm with 4 ranks on 2 busy cores); faster links than a core's copying are those of GPUs.
Limits chunk_limits(const Topology &topology) {
  const bool network = topology.node_count() > 1;
  const LinkSpeed &speed = network ? topology.network : topology.local;
  const double rate = static_cast<double>(speed.bytes_per_second);
  const double hidden = 1e-9 * speed.overhead_ns * rate;
  const bool host = rate <= (network ? 2.5e9 : 25e9);
  const double most = !host ? 4 << 20 : network ? 128 << 10 : 256 << 10;
  const double least = !host ? 4096 : network ? 16 << 10 : 64 << 10;
  return {align_up(static_cast<uint64_t>(std::clamp(hidden, least, most)), 4096), static_cast<uint64_t>(most)};
}

class CostModel {
 public:
  CostModel(const ScheduleOptions &options, int window)
      : options_(options), topology_(*options.topology), loads_(loads_of(options)) {
    find_ports();
    busiest_port_s_ *= loads_.stalls;
    window_ = window ? window : best_window();
  }

  double seconds(uint64_t chunk_bytes) const;
  double messages(uint64_t chunk_bytes) const;
  uint64_t best_chunk() const;
  int window() const { return window_; }

 private:
  struct Way {
    double hop = 0, all = 0;
  };
  struct Cpu {
    double sending = 0, all = 0;  // of the busiest rank
  };
  void find_ports();
  int best_window() const;
  Way way(double chunk) const;
  Cpu cpu(double chunk) const;
  double windows_s(double chunk) const;

  const ScheduleOptions &options_;
  const Topology &topology_;
  const Loads loads_;
  int window_ = 0;
  double busiest_port_s_ = 0;
  double slowest_rail_ = 0;
};

void CostModel::find_ports() {
  const double contention = contention_of(topology_);
  const auto hold = [&](double seconds) { busiest_port_s_ = std::max(busiest_port_s_, seconds); };
  const double local_rate = static_cast<double>(topology_.local.bytes_per_second);
  for (const RankLoad &load : loads_.ranks) hold(std::max(load.local_out, load.local_in) / local_rate);
  for (int node = 0; node < topology_.node_count(); ++node) {
    const size_t rails = topology_.node(node).rails.size();
    std::vector<double> out(rails), in(rails), fan_in(rails);
    for (const int rank : topology_.node(node).ranks) {
      const size_t rail = static_cast<size_t>(topology_.ranks[static_cast<size_t>(rank)].rail);
      const RankLoad &load = loads_.ranks[static_cast<size_t>(rank)];
      out[rail] += load.network_out;
      in[rail] += load.network_in;
      fan_in[rail] += load.fan_in;
    }
    for (size_t rail = 0; rail < rails; ++rail) {
      const double rate = static_cast<double>(topology_.rail_bytes_per_second(node, static_cast<int>(rail)));
      hold(out[rail] / rate);
      hold(in[rail] / rate * (1 + contention * (1 - 1 / std::max(fan_in[rail], 1.0))));
      slowest_rail_ = slowest_rail_ > 0 ? std::min(slowest_rail_, rate) : rate;
    }
  }
}

// Of the first chunk, from end to end.
CostModel::Way CostModel::way(double chunk) const {
  const bool gathers = options_.direction == Direction::gather || options_.direction == Direction::reshard;
  const double adding = gathers ? 0 : 3 * chunk / static_cast<double>(topology_.add_bytes_per_second);
  const double local_rate = static_cast<double>(topology_.local.bytes_per_second);
  const double network_hop = 1e-9 * (topology_.network.latency_ns + 2.0 * topology_.network.overhead_ns);
  const double local_hop = 1e-9 * (topology_.local.latency_ns + 2.0 * topology_.local.overhead_ns);
  const bool crosses = loads_.network_hops > 0;
  // The last stage is that of the busiest port.
  const double network_stages = std::max(loads_.network_hops - 1, 0.0);
  const double local_stages = crosses ? loads_.local_hops : std::max(loads_.local_hops - 1, 0.0);
  Way way;
  way.hop = crosses ? network_hop : local_hop;
  way.all = loads_.network_hops * network_hop + loads_.local_hops * local_hop +
            network_stages * (chunk / slowest_rail_ + adding) + local_stages * (chunk / local_rate + adding);
  return way;
}

CostModel::Cpu CostModel::cpu(double chunk) const {
  const double network = 1e-9 * topology_.network.overhead_ns, local = 1e-9 * topology_.local.overhead_ns;
  const double add_rate = static_cast<double>(topology_.add_bytes_per_second);
  Cpu busiest;
  for (const RankLoad &load : loads_.ranks) {
    const double sending = network * (load.network_out_channels + load.network_out / chunk) +
                           local * (load.local_out_channels + load.local_out / chunk);
    const double taking = network * (load.network_in_channels + load.network_in / chunk) +
                          local * (load.local_in_channels + load.local_in / chunk) + load.added / add_rate;
    busiest.sending = std::max(busiest.sending, sending);
    busiest.all = std::max(busiest.all, sending + taking);
  }
  return busiest;
}

// Of the busiest channel inside a node: a message makes room in its window when it has been taken, so a window's worth
// of them take a message's whole way. (Between nodes it makes room when it has left.) The first window is in `way`.
double CostModel::windows_s(double chunk) const {
  const double way_s = 1e-9 * (topology_.local.latency_ns + 2.0 * topology_.local.overhead_ns) +
                       chunk / static_cast<double>(topology_.local.bytes_per_second);
  double windows = 0;
  for (const RankLoad &load : loads_.ranks)
    windows = std::max(windows, load.local_out / std::max(load.local_out_channels, 1.0) / (chunk * window_));
  return std::max(windows - 1, 0.0) * way_s;
}

double CostModel::seconds(uint64_t chunk_bytes) const {
  if (loads_.ranks.size() < 2) return 0;
  const double chunk = static_cast<double>(chunk_bytes);
  const double first = std::min(chunk, std::max(loads_.longest_piece, 1.0));
  const Way way = this->way(first);
  const Cpu cpu = this->cpu(chunk);
  const bool crosses = loads_.network_hops > 0;
  const double rate = crosses ? slowest_rail_ : static_cast<double>(topology_.local.bytes_per_second);
  // A port serves a window of the first peer, then one of the second: the last peer's pipeline begins that much later.
  const double late = loads_.waiting_peers * std::min(chunk * window_, std::max(loads_.longest_piece, 1.0)) / rate;
  // Beside one stream others keep the ports busy, so that only its share of the way shows; but no stream is faster than
  // if it were alone.
  const double late_rounds = 1 + (loads_.round_stalls - 1) * std::min(loads_.rounds / chunk / 4, 1.0);
  const double busy = std::max(busiest_port_s_, windows_s(first)) * late_rounds;
  const double port = std::max(busy + way.all * loads_.largest_stream, busy * loads_.largest_stream + way.all);
  // A round's messages carry what came in the rounds before it.
  const double lockstep = loads_.rounds / chunk * way.hop * round_share;
  const double time = std::max({port + late + lockstep, cpu.sending + way.all * loads_.largest_stream,
                                cpu.all + way.all * loads_.largest_stream - way.hop});
  return time * factor_of(topology_, options_.algorithm);
}

double CostModel::messages(uint64_t chunk_bytes) const {
  double sum = 0;
  for (const RankLoad &load : loads_.ranks)
    sum += load.network_out_channels + load.local_out_channels +
           (load.network_out + load.local_out) / static_cast<double>(chunk_bytes);
  return sum;
}

// Two candidates per power of two. At equal times the largest: fewer messages.
uint64_t CostModel::best_chunk() const {
  const Limits limits = chunk_limits(topology_);
  const uint64_t floor =
      std::min(align_up(divide_up(options_.layout->bytes, piece_count_wanted), 4096), chunk_bytes_max);
  uint64_t best = std::max(limits.most, floor);
  double best_seconds = seconds(best);
  for (uint64_t power = limits.most; power >= 4096; power /= 2)
    for (const uint64_t chunk : {power, power / 4 * 3}) {
      if (chunk < limits.least || chunk < floor || chunk % 64) continue;
      const double time = seconds(chunk);
      if (time >= best_seconds) continue;
      best = chunk;
      best_seconds = time;
    }
  return best;
}

// Of 2, 4 and 16 messages per channel, 4 was the best for a chain and a spread on TCP; with many channels two keep
// every port busy, and take half the landings.
int CostModel::best_window() const {
  double channels = 0;
  for (const RankLoad &load : loads_.ranks)
    channels = std::max(channels, load.network_in_channels + load.local_in_channels);
  return channels > many_channels || loads_.waiting_peers > 0 ? window_of_many : window_default;
}

bool is_two_level(Algorithm algorithm) {
  return algorithm == Algorithm::two_level_flat || algorithm == Algorithm::two_level_chain ||
         algorithm == Algorithm::two_level_circulant;
}

bool makes_sense(Algorithm algorithm, const ScheduleOptions &options) {
  if (!serves(algorithm, options.direction)) return false;
  const Topology &topology = *options.topology;
  const bool one_level = topology.node_count() == 1 || topology.node_count() == topology.rank_count();
  if (one_level && is_two_level(algorithm)) return false;
  return algorithm != Algorithm::spread || options.layout->rank_count <= spread_ranks_max;
}

}  // namespace

double contention_of(const Topology &topology) {
  constexpr double unmeasured = 0.15;
  for (const auto &[name, per_mille] : topology.factors)
    if (name == "contention") return per_mille > 1000 ? 1e-3 * per_mille - 1 : 0;
  return unmeasured;
}

double factor_of(const Topology &topology, Algorithm algorithm) {
  return 1e-3 * topology.factor_per_mille(algorithm_name(algorithm));
}

Prediction predict(const ScheduleOptions &options, int window) {
  const CostModel model(options, window);
  Prediction prediction;
  prediction.algorithm = options.algorithm;
  prediction.chunk_bytes = options.chunk_bytes ? options.chunk_bytes : model.best_chunk();
  prediction.window = model.window();
  prediction.seconds = model.seconds(prediction.chunk_bytes);
  return prediction;
}

std::vector<Prediction> predict_all(const ScheduleOptions &options, int window) {
  std::vector<Prediction> predictions;
  for (const Algorithm algorithm : all_algorithms) {
    if (!makes_sense(algorithm, options)) continue;
    ScheduleOptions each = options;
    each.algorithm = algorithm;
    predictions.push_back(predict(each, window));
  }
  std::stable_sort(predictions.begin(), predictions.end(),
                   [](const Prediction &a, const Prediction &b) { return a.seconds < b.seconds; });
  assert(!predictions.empty());
  return predictions;
}

uint64_t nanoseconds_of(double seconds) {
  return static_cast<uint64_t>(std::llround(std::min(1e9 * seconds, 9.2e18)));
}

std::string reason_text(const std::vector<Prediction> &predictions, double bound_seconds) {
  const auto us = [](double seconds) {  // "703", "7.3"
    const auto tenths = (nanoseconds_of(seconds) + 50) / 100;
    std::string text = std::to_string(tenths < 1000 ? tenths / 10 : (tenths + 5) / 10);
    if (tenths < 1000) text.append(".").append(std::to_string(tenths % 10));
    return text;
  };
  std::string text;
  for (size_t i = 0; i < predictions.size(); ++i)
    text.append(i == 0 ? "" : i == 1 ? "; " : ", ")
        .append(algorithm_name(predictions[i].algorithm))
        .append(" ")
        .append(us(predictions[i].seconds))
        .append(i == 0 ? " us" : "");
  return text.append("; bound ").append(us(bound_seconds));
}

double message_estimate(const ScheduleOptions &options) { return CostModel(options, 1).messages(options.chunk_bytes); }

}  // namespace mxs
