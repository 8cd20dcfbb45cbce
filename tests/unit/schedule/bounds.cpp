// SPDX-License-Identifier: Apache-2.0
// Lower bounds, by cases that were computed by hand; of gathers also by the formulas, rank by rank.
#include "schedule/bounds.hpp"

#include <algorithm>
#include <random>

#include "schedule/gather_bound.hpp"
#include "topologies.hpp"
#include "worlds.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

constexpr LinkSpeed kilo = {1'000'000, 500'000, 1000};   // 1,000 bytes/s, 1 ms, 0.5 ms
constexpr LinkSpeed tens = {100'000, 50'000, 10'000};

struct Case {
  const char *name;
  Direction direction;
  uint32_t element_bytes;
  int node_count, local_count;
  std::vector<uint64_t> owned;
  double bandwidth_s, latency_s;
};

// One level: 1,000 bytes/s. Two levels: 10,000 more within the node.
const std::vector<Case> cases = {
    {"a gather of one owner: all others receive all", Direction::gather, 1, 4, 1, {4000, 0, 0, 0}, 4, 0.002},
    {"an even gather: each receives 3 of 4", Direction::gather, 1, 4, 1, {1000, 1000, 1000, 1000}, 3, 0.002},
    {"a gather of 2 ranks: what is owned must leave", Direction::gather, 1, 2, 1, {3000, 0}, 3, 0.002},
    {"one rank has nothing to do", Direction::gather, 1, 1, 1, {4000}, 0, 0},
    {"nothing is owned", Direction::gather, 1, 4, 1, {0, 0, 0, 0}, 0, 0},
    // Each node has 2 rails: 4,000 / 2,000.
    {"two levels: a node's rails share the work", Direction::gather, 1, 2, 2, {4000, 0, 0, 0}, 2, 0.002},
    // One node: (p - 1) S / (4 x 10,000) = 0.3; a rank receives 4,000 at 10,000.
    {"one node: the local rate", Direction::gather, 1, 1, 4, {4000, 0, 0, 0}, 0.4, 0.0002},
    // 4-byte gradients: everybody's must leave, one sum must enter.
    {"an fp32 reduce to one owner", Direction::reduce, 4, 4, 1, {4000, 0, 0, 0}, 4, 0.002},
    {"an even fp32 reduce", Direction::reduce, 4, 4, 1, {1000, 1000, 1000, 1000}, 3, 0.002},
    // 2-byte gradients, 4-byte sums. To one owner: min(4, 3 x 2) bytes of 2,000 elements: 8,000 in.
    {"a bf16 reduce to one owner: a sum enters", Direction::reduce, 2, 4, 1, {4000, 0, 0, 0}, 8, 0.002},
    // Into each min(4, 6) x 500 = 2,000; out 2 x 1,500 = 3,000; all 3 x 2 x 2,000 / 4,000 = 3.
    {"an even bf16 reduce", Direction::reduce, 2, 4, 1, {1000, 1000, 1000, 1000}, 3, 0.002},
    {"a bf16 reduce of 2 ranks: the gradient enters", Direction::reduce, 2, 2, 1, {4000, 0}, 4, 0.002},
    // Out of the other node min(4, 2 x 2) x 2,000 elements over 2 rails: 4; in as much.
    {"a bf16 reduce on two levels", Direction::reduce, 2, 2, 2, {4000, 0, 0, 0}, 4, 0.002},
    {"rank order has a reduce's bounds", Direction::ordered_reduce, 4, 4, 1, {4000, 0, 0, 0}, 4, 0.002},
};

Layout layout_of(const std::vector<uint64_t> &owned) {
  std::vector<Segment> segments;
  uint64_t offset = 0;
  for (size_t rank = 0; rank < owned.size(); ++rank) {
    segments.push_back({static_cast<int>(rank), offset, owned[rank]});
    offset += owned[rank];
  }
  Layout layout;
  make_layout(segments, static_cast<int>(owned.size()), 1, &layout);
  return layout;
}

bool holds(const Case &each) {
  const Topology topology = made_topology(each.node_count, each.local_count, kilo, tens);
  const Layout layout = layout_of(each.owned);
  ScheduleOptions options;
  options.direction = each.direction;
  options.element_bytes = each.element_bytes;
  options.layout = &layout;
  options.topology = &topology;
  const Bound bound = lower_bound(options);
  if (near(bound.bandwidth_s, each.bandwidth_s, 1e-12) && near(bound.latency_s, each.latency_s, 1e-12)) return true;
  print_error("%s: %.6f s and %.6f s, not %.6f and %.6f\n", each.name, bound.bandwidth_s, bound.latency_s,
              each.bandwidth_s, each.latency_s);
  return false;
}

bool all_hold() {
  bool good = true;
  for (const Case &each : cases) good = holds(each) && good;
  return good;
}

// Rank 0 has 3,000 bytes, which go to ranks 0 (1,000), 1 (1,000) and 2 (1,000).
bool reshard_holds() {
  const Topology topology = made_topology(3, 1, kilo, tens);
  const Layout source = layout_of({3000, 0, 0}), target = layout_of({1000, 1000, 1000});
  ScheduleOptions options;
  options.direction = Direction::reshard;
  options.layout = &source;
  options.target_layout = &target;
  options.topology = &topology;
  return near(lower_bound(options).bandwidth_s, 2, 1e-12);
}

// Rails of their own speeds: 4,000 bytes into a node with rails of 1,000 and 3,000 bytes/s.
bool rails_hold() {
  Topology topology = made_topology(2, 2, kilo, tens);
  for (Node &node : topology.nodes) node.rails[1].bytes_per_second = 3000;
  const Layout layout = layout_of({4000, 0, 0, 0});
  ScheduleOptions options;
  options.layout = &layout;
  options.topology = &topology;
  return near(lower_bound(options).bandwidth_s, 1, 1e-12);
}

// As bounds.hpp says it, with a look at every rank and every node.
double plain_gather_s(const Topology &topology, const Layout &layout) {
  const std::vector<uint64_t> owned = owned_by_rank(layout);
  if (owned.size() < 2) return 0;
  std::vector<double> of_node(topology.nodes.size());
  double all = 0, bound = 0, rates = 0;
  for (size_t rank = 0; rank < owned.size(); ++rank) {
    of_node[static_cast<size_t>(topology.node_of(static_cast<int>(rank)))] += static_cast<double>(owned[rank]);
    all += static_cast<double>(owned[rank]);
    rates += rank_bytes_per_second(topology, static_cast<int>(rank));
  }
  for (size_t rank = 0; rank < owned.size(); ++rank) {
    const double out = static_cast<double>(owned[rank]);
    bound = std::max(bound, std::max(out, all - out) / rank_bytes_per_second(topology, static_cast<int>(rank)));
  }
  for (size_t node = 0; of_node.size() > 1 && node < of_node.size(); ++node)
    bound = std::max(bound, std::max(of_node[node], all - of_node[node]) /
                                node_bytes_per_second(topology, static_cast<int>(node)));
  return std::max(bound, static_cast<double>(owned.size() - 1) * all / rates);
}

Layout drawn_layout(int rank_count, std::mt19937_64 *draw) {
  std::vector<Segment> segments;
  uint64_t offset = 0;
  const uint64_t segment_count = (*draw)() % 7;
  for (uint64_t index = 0; index < segment_count; ++index) {
    const uint64_t bytes = (*draw)() % 5 == 0 ? 0 : (*draw)() % 100'000;
    segments.push_back({static_cast<int>((*draw)() % static_cast<uint64_t>(rank_count)), offset, bytes});
    offset += bytes;
  }
  Layout layout;
  make_layout(segments, rank_count, 1, &layout);
  return layout;
}

// One table serves all layouts of a topology, whose rails may all be alike, of two speeds, or each of its own.
bool gathers_hold() {
  std::mt19937_64 draw(7);
  for (const int rank_count : {1, 2, 3, 4, 7, 8, 23})
    for (TestTopology &each : test_topologies(rank_count))
      for (const uint64_t speeds : {1, 2, 1000}) {
        for (Node &node : each.topology.nodes)
          for (Rail &rail : node.rails) rail.bytes_per_second = 1000 + draw() % speeds;
        GatherBound gather(each.topology);
        for (int layouts = 0; layouts < 20; ++layouts) {
          const Layout layout = drawn_layout(rank_count, &draw);
          const double wanted = plain_gather_s(each.topology, layout), got = gather.of(layout).bandwidth_s;
          ScheduleOptions options;
          options.layout = &layout;
          options.topology = &each.topology;
          const Bound alone = lower_bound(options);
          if (got == wanted && alone.bandwidth_s == got && alone.latency_s == gather.of(layout).latency_s) continue;
          print_error("%d ranks, %s: %.9g s, not %.9g\n", rank_count, each.name.c_str(), got, wanted);
          return false;
        }
      }
  return true;
}

void bounds_are_those_computed_by_hand(void **) { assert_true(all_hold()); }
void a_reshard_is_bound_by_what_leaves_and_enters(void **) { assert_true(reshard_holds()); }
void rails_of_different_speeds_add_up(void **) { assert_true(rails_hold()); }
void bounds_of_gathers_are_equal_to_a_look_at_every_rank(void **) { assert_true(gathers_hold()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(bounds_are_those_computed_by_hand),
      cmocka_unit_test(a_reshard_is_bound_by_what_leaves_and_enters),
      cmocka_unit_test(rails_of_different_speeds_add_up),
      cmocka_unit_test(bounds_of_gathers_are_equal_to_a_look_at_every_rank),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
