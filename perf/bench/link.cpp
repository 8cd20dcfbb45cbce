// SPDX-License-Identifier: Apache-2.0
// A reshard from "a owns all" to "b owns all" is exactly the messages from a to b; one there and one back is a
// ping-pong, of which half the time counts.
//
//   latency + 2 overhead   a message of 8 bytes
//   bandwidth              what 1 MiB more take, 4 MiB against 1 MiB less the messages' own cost
//   overhead               what each of many messages of 8 KiB takes beyond its bytes at that bandwidth
#include "bench/link.hpp"

#include <algorithm>

#include "matrixshard/topology.h"

namespace bench {

namespace {

constexpr uint64_t small_bytes = 8, medium_bytes = uint64_t{1} << 20, large_bytes = uint64_t{4} << 20;
constexpr uint64_t stream_bytes = uint64_t{512} << 10, stream_chunk_bytes = 8192;

mxs::layout owned_by(int owner, uint64_t bytes, int rank_count) {
  mxs_segment segment = MXS_SEGMENT_INIT;
  segment.owner = owner;
  segment.bytes = bytes;
  return mxs::make_layout({segment}, rank_count, 1);
}

class PingPong {
 public:
  PingPong(const Ranks &ranks, int a, int b, uint64_t bytes, uint64_t chunk_bytes)
      : ranks_(ranks), from_a_(owned_by(a, bytes, ranks.count())), from_b_(owned_by(b, bytes, ranks.count())),
        memory_(bytes, 1), there_(make(from_a_, from_b_, chunk_bytes)), back_(make(from_b_, from_a_, chunk_bytes)),
        a_(a), b_(b) {}

  // One way, in microseconds, as a sees it; the others' figures mean nothing.
  double run() {
    const double start = now_us();
    one_way(there_, a_);
    one_way(back_, b_);
    return (now_us() - start) / 2;
  }

 private:
  mxs::collective make(const mxs::layout &source, const mxs::layout &target, uint64_t chunk_bytes) const {
    mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
    options.kind = MXS_RESHARD;
    options.layout = source.get();
    options.target_layout = target.get();
    options.chunk_bytes = chunk_bytes;
    return mxs::make_collective(ranks_.comm(), options);
  }

  void one_way(const mxs::collective &collective, int from) {
    const bool sends = ranks_.rank() == from, receives = !sends && (ranks_.rank() == a_ || ranks_.rank() == b_);
    mxs::check(mxs_collective_start(collective.get(), sends ? memory_.data() : nullptr,
                                    receives ? memory_.data() : nullptr, nullptr));
    mxs::check(mxs_collective_wait(collective.get(), nullptr));
  }

  const Ranks &ranks_;
  mxs::layout from_a_, from_b_;
  std::vector<char> memory_;
  mxs::collective there_, back_;
  int a_, b_;
};

double one_way_us(const Ranks &ranks, int a, int b, uint64_t bytes, uint64_t chunk_bytes, int iterations) {
  PingPong ping(ranks, a, b, bytes, chunk_bytes);
  ranks.barrier();
  for (int i = 0; i < 3; i++) ping.run();
  std::vector<double> times;
  for (int i = 0; i < iterations; i++) times.push_back(ping.run());
  return ranks.share(median(times))[static_cast<size_t>(a)];
}

}  // namespace

std::vector<std::pair<int, int>> typical_pairs(const Ranks &ranks, int most) {
  const mxs::topology topology = mxs::topology_of(ranks.comm());
  std::vector<std::pair<int, int>> local, network;
  std::vector<int> first_of_node;
  std::vector<bool> has_pair;
  for (int rank = 0; rank < ranks.count(); rank++) {
    mxs_rank_info info = MXS_RANK_INFO_INIT;
    mxs::check(mxs_topology_rank(topology.get(), rank, &info));
    const auto node = static_cast<size_t>(info.node);
    if (node == first_of_node.size()) {
      first_of_node.push_back(rank);
      has_pair.push_back(false);
      if (node > 0) network.emplace_back(first_of_node[node - 1], rank);
    } else if (!has_pair[node]) {
      has_pair[node] = true;
      local.emplace_back(first_of_node[node], rank);
    }
  }
  const auto limit = [&](std::vector<std::pair<int, int>> *pairs) {
    pairs->resize(std::min(pairs->size(), static_cast<size_t>(most)));
  };
  limit(&local);
  limit(&network);
  local.insert(local.end(), network.begin(), network.end());
  return local;
}

Link measure_link(const Ranks &ranks, int a, int b, int iterations) {
  const mxs::topology topology = mxs::topology_of(ranks.comm());
  mxs_link_info info = MXS_LINK_INFO_INIT;
  mxs::check(mxs_topology_link(topology.get(), a, b, &info));
  Link link;
  link.a = a;
  link.b = b;
  link.local = info.same_node != 0;
  const auto time = [&](uint64_t bytes, uint64_t chunk_bytes) {
    return one_way_us(ranks, a, b, bytes, chunk_bytes, bytes > stream_bytes ? std::max(3, iterations / 4) : iterations);
  };
  for (const uint64_t bytes : {small_bytes, uint64_t{1} << 10, stream_chunk_bytes, uint64_t{64} << 10, medium_bytes,
                               large_bytes})
    link.points.push_back({bytes, time(bytes, 0)});
  const auto at = [&](uint64_t bytes) {
    return std::find_if(link.points.begin(), link.points.end(),
                        [&](const LinkPoint &point) { return point.bytes == bytes; })->time_us;
  };
  // A machine with other work can make more bytes seem to take less time; then all of the large one's time counts.
  const double more_us = at(large_bytes) - at(medium_bytes);
  link.bandwidth = more_us > 0 ? static_cast<double>(large_bytes - medium_bytes) / more_us
                               : static_cast<double>(large_bytes) / at(large_bytes);
  const double messages = static_cast<double>(stream_bytes / stream_chunk_bytes);
  const double each_us = (time(stream_bytes, stream_chunk_bytes) - at(stream_chunk_bytes)) / (messages - 1);
  const double beyond_us = each_us - static_cast<double>(stream_chunk_bytes) / link.bandwidth;
  link.overhead_us = std::clamp(beyond_us, 0.0, at(small_bytes) / 2);
  link.latency_us = at(small_bytes) - 2 * link.overhead_us;
  return link;
}

}  // namespace bench
