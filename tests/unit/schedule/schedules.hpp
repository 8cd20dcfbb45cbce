// SPDX-License-Identifier: Apache-2.0
// What the tests of schedules share: a whole world's set of them, layouts and topologies of any world.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "layout/layout.hpp"
#include "schedule/schedule.hpp"
#include "schedule/trees.hpp"
#include "support/layouts.hpp"
#include "topology/topology.hpp"

namespace mxs {

struct Set {
  Layout layout, target_layout;
  std::vector<Schedule> schedules;
  std::string complaint;  // of making it

  std::string check(int window) const {
    return complaint.empty() ? check_schedules(layout, &target_layout, schedules, window) : complaint;
  }
};

inline Layout layout_of(const TestLayout &test, int rank_count, std::string *complaint) {
  std::vector<Segment> segments;
  for (const TestSegment &segment : test.segments) segments.push_back({segment.owner, segment.offset, segment.bytes});
  Layout layout;
  if (make_layout(segments, rank_count, test.alignment, &layout) != MXS_OK) *complaint = last_error_text();
  return layout;
}

// options: all but the layouts.
inline void make_set(Set *set, ScheduleOptions options, const TestLayout &source, const TestLayout &target,
                     int rank_count) {
  set->layout = layout_of(source, rank_count, &set->complaint);
  set->target_layout = layout_of(target, rank_count, &set->complaint);
  options.layout = &set->layout;
  options.target_layout = &set->target_layout;
  std::vector<Piece> pieces;
  if (!set->complaint.empty()) return;
  if (cut_pieces(options, &pieces) != MXS_OK) {
    set->complaint = last_error_text();
    return;
  }
  const std::unique_ptr<Trees> trees = make_trees(options);
  for (int rank = 0; rank < rank_count; ++rank) set->schedules.push_back(make_schedule(options, *trees, pieces, rank));
}

// Those of every test, and the shapes of ownership that algorithms differ in.
inline std::vector<TestLayout> schedule_layouts(int rank_count, uint64_t element, uint64_t scale) {
  std::vector<TestLayout> layouts = test_layouts(rank_count, element, scale);
  TestLayout two("two owners", 1), seven("seven owners", 64), zipf("zipf", 1), byte("all of rank 0 but one element", 1);
  for (int owner = 0; owner < 2; ++owner) two.add(owner * (rank_count - 1), element * (2 * scale + 1));
  for (int owner = 0; owner < 7; ++owner)
    seven.add(owner * rank_count / 7, element * (scale + static_cast<uint64_t>(owner)));
  for (int rank = 0; rank < rank_count; ++rank)  // in an order in which the largest is not the first
    zipf.add((rank + rank_count / 2) % rank_count, element * (4 * scale / (static_cast<uint64_t>(rank) + 1) + 1));
  byte.add(0, element * 3 * scale);
  byte.add(rank_count - 1, element);
  for (TestLayout *layout : {&two, &seven, &zipf, &byte}) layouts.push_back(*layout);
  return layouts;
}

struct NamedTopology {
  std::string name;
  Topology topology;
};

// node_sizes: filled in rank order, or dealt round if `in_turn`; the last is used again as long as ranks are left.
inline NamedTopology topology_of(const std::string &name, int rank_count, std::vector<int> node_sizes, bool in_turn,
                                 int rail_count) {
  std::vector<uint64_t> labels;
  if (in_turn) {
    for (int rank = 0; rank < rank_count; ++rank)
      labels.push_back(static_cast<uint64_t>(rank) % node_sizes.size());
  } else {
    for (uint64_t node = 0; static_cast<int>(labels.size()) < rank_count; ++node) {
      const int size = node_sizes[std::min<size_t>(node, node_sizes.size() - 1)];
      for (int i = 0; i < size && static_cast<int>(labels.size()) < rank_count; ++i) labels.push_back(node);
    }
  }
  NamedTopology result = {name, topology_from_nodes(labels)};
  for (Node &node : result.topology.nodes) {
    node.rails.resize(static_cast<size_t>(rail_count));
    for (size_t local = 0; local < node.ranks.size(); ++local)
      result.topology.ranks[static_cast<size_t>(node.ranks[local])].rail = static_cast<int>(local) % rail_count;
  }
  return result;
}

// Every rank by itself, nodes of equal and of unequal size, one node, ranks dealt to nodes in turn.
inline std::vector<NamedTopology> schedule_topologies(int rank_count) {
  std::vector<NamedTopology> topologies = {topology_of("a node each", rank_count, {1}, false, 1)};
  const auto add = [&](const char *name, std::vector<int> sizes, bool in_turn, int rail_count) {
    topologies.push_back(topology_of(name, rank_count, std::move(sizes), in_turn, rail_count));
  };
  if (rank_count == 1) return topologies;
  add("one node", {rank_count}, false, 1);
  if (rank_count == 7) add("1 + 6", {1, 6}, false, 2);
  if (rank_count == 8) add("3 + 5", {3, 5}, false, 1);
  if (rank_count == 9) add("4 + 3 + 2", {4, 3, 2}, false, 2);
  if (rank_count == 4) add("2 + 2", {2, 2}, false, 1);
  if (rank_count >= 16) add("nodes of 8", {8}, false, 2);
  if (rank_count >= 16) add("5 + 1 + 3 + nodes of 7", {5, 1, 3, 7}, false, 1);
  if (rank_count >= 3) add("in turn", std::vector<int>(rank_count < 16 ? 2 : static_cast<size_t>(rank_count) / 8, 1),
                           true, 1);
  return topologies;
}

inline const char *direction_name(Direction direction) {
  switch (direction) {
    case Direction::gather: return "gather";
    case Direction::reduce: return "reduce";
    case Direction::ordered_reduce: return "ordered reduce";
    case Direction::reshard: return "reshard";
  }
  return "";
}

}  // namespace mxs
