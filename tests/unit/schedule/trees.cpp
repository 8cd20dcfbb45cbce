// SPDX-License-Identifier: Apache-2.0
// Trees of all algorithms: each rank is reached once, times grow along every path both ways, and two-level takes each
// byte across each node's border once.
#include <algorithm>
#include <map>

#include "schedule/trees.hpp"
#include "schedules.hpp"
#include "topologies.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

constexpr Algorithm algorithms[] = {Algorithm::flat,           Algorithm::chain,           Algorithm::spread,
                                    Algorithm::circulant,      Algorithm::two_level_flat,  Algorithm::two_level_chain,
                                    Algorithm::two_level_circulant};
constexpr Algorithm two_level[] = {Algorithm::two_level_flat, Algorithm::two_level_chain,
                                   Algorithm::two_level_circulant};

// A layout, its pieces and their trees.
struct Forest {
  Layout layout;
  ScheduleOptions options;
  std::vector<Piece> pieces;
  std::unique_ptr<Trees> trees;
  std::string complaint;

  Forest(const TestLayout &test, int rank_count, const Topology *topology, Algorithm algorithm, uint64_t chunk_bytes) {
    layout = layout_of(test, rank_count, &complaint);
    options.algorithm = algorithm;
    options.layout = &layout;
    options.topology = topology;
    options.chunk_bytes = chunk_bytes;
    if (complaint.empty() && cut_pieces(options, &pieces) != MXS_OK) complaint = last_error_text();
    if (complaint.empty()) trees = make_trees(options);
  }
  Forest(const Forest &) = delete;
  Forest &operator=(const Forest &) = delete;
};

// "" or what is wrong with the tree of a piece.
std::string tree_complaint(const Trees &trees, const Piece &piece, int rank_count) {
  std::vector<int> children;
  std::vector<int> found(static_cast<size_t>(rank_count), -2);
  int reached = 0;
  for (int rank = 0; rank < rank_count; ++rank) {
    trees.children(piece, rank, &children);
    for (const int child : children) {
      if (child < 0 || child >= rank_count) return "a child is no rank";
      if (found[static_cast<size_t>(child)] != -2) return "a rank has two parents";
      found[static_cast<size_t>(child)] = rank;
      ++reached;
    }
  }
  if (reached != rank_count - 1) return "not every rank is reached";
  for (int rank = 0; rank < rank_count; ++rank) {
    const int parent = trees.parent(piece, rank);
    if (rank == piece.owner) {
      if (parent != -1 || trees.depth(piece, rank) != 0 || found[static_cast<size_t>(rank)] != -2)
        return "the owner has a parent";
      continue;
    }
    if (parent != found[static_cast<size_t>(rank)]) return "parent and children disagree";
    if (trees.depth(piece, rank) != trees.depth(piece, parent) + 1) return "depth is not one more than the parent's";
    if (parent == piece.owner) continue;
    if (trees.gather_time(piece, rank) <= trees.gather_time(piece, parent)) return "gather times do not grow";
    if (trees.reduce_time(piece, rank) >= trees.reduce_time(piece, parent)) return "reduce times do not grow";
  }
  return "";
}

bool are_trees(const Forest &forest, int rank_count, const std::string &topology) {
  std::string complaint = forest.complaint;
  // Large worlds: a few pieces of each block.
  const size_t step = rank_count > 100 ? std::max<size_t>(forest.pieces.size() / 40, 1) : 1;
  for (size_t index = 0; index < forest.pieces.size() && complaint.empty(); index += step)
    complaint = tree_complaint(*forest.trees, forest.pieces[index], rank_count);
  if (complaint.empty()) return true;
  print_error("%s, %d ranks, %s: %s\n", algorithm_name(forest.options.algorithm), rank_count, topology.c_str(),
              complaint.c_str());
  return false;
}

bool all_are_trees() {
  for (const int rank_count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64, 100, 1024})
    for (const TestTopology &test : test_topologies(rank_count))
      for (const Algorithm algorithm : algorithms) {
        if (rank_count == 1024 && algorithm == Algorithm::spread) continue;  // a piece per helper
        if (rank_count > 16) {
          TestLayout seven("seven owners", 1);
          for (int owner = 0; owner < 7; ++owner) seven.add(owner * 5, 700 + static_cast<uint64_t>(owner) * 64);
          const Forest forest(seven, rank_count, &test.topology, algorithm, 256);
          if (!are_trees(forest, rank_count, test.name)) return false;
          continue;
        }
        for (const TestLayout &layout : test_layouts(rank_count, 4, 97)) {
          const Forest forest(layout, rank_count, &test.topology, algorithm, 128);
          if (!are_trees(forest, rank_count, test.name)) return false;
        }
      }
  return true;
}

// Bytes into and out of each node, and those that each rank sends inside its node.
struct Traffic {
  std::vector<uint64_t> in, out, local_out;

  explicit Traffic(const Forest &forest)
      : in(forest.options.topology->nodes.size()), out(in.size()),
        local_out(static_cast<size_t>(forest.layout.rank_count)) {
    for (const Piece &piece : forest.pieces)
      for (int rank = 0; rank < forest.layout.rank_count; ++rank) {
        if (rank == piece.owner) continue;
        const int parent = forest.trees->parent(piece, rank);
        const size_t from = static_cast<size_t>(forest.options.topology->node_of(parent));
        const size_t to = static_cast<size_t>(forest.options.topology->node_of(rank));
        if (from == to) {
          local_out[static_cast<size_t>(parent)] += piece.bytes;
        } else {
          out[from] += piece.bytes;
          in[to] += piece.bytes;
        }
      }
  }
};

// A reduce has the same edges the other way: what comes in here leaves there.
bool borders_are_crossed_once() {
  for (const int rank_count : {2, 3, 7, 8, 9, 33})
    for (const TestTopology &test : test_topologies(rank_count))
      for (const Algorithm algorithm : two_level)
        for (const TestLayout &layout : test_layouts(rank_count, 4, 97)) {
          const Forest forest(layout, rank_count, &test.topology, algorithm, 128);
          const Traffic traffic(forest);
          uint64_t total = 0;
          std::vector<uint64_t> owned(traffic.in.size());
          for (const Segment &segment : forest.layout.segments) {
            owned[static_cast<size_t>(test.topology.node_of(segment.owner))] += segment.bytes;
            total += segment.bytes;
          }
          for (size_t node = 0; node < owned.size(); ++node) {
            const uint64_t others = owned.size() - 1;
            const bool star = algorithm == Algorithm::two_level_flat;
            const bool right_out = !star || traffic.out[node] == owned[node] * others;
            if (traffic.in[node] == total - owned[node] && right_out) continue;
            print_error("%s, %d ranks, %s, layout '%s': %llu bytes come into node %zu\n", algorithm_name(algorithm),
                        rank_count, test.name.c_str(), layout.name.c_str(),
                        static_cast<unsigned long long>(traffic.in[node]), node);
            return false;
          }
        }
  return true;
}

// One owner with 8 local ranks: its port inside the node carries what it owns once, the others' less than that.
bool owners_leave_fan_out_to_others() {
  constexpr int rank_count = 32;
  const Topology topology = topology_of_sizes(rank_count, {8});
  TestLayout one("one owner", 1);
  one.add(9, uint64_t{1} << 20);
  for (const Algorithm algorithm : two_level) {
    const Forest forest(one, rank_count, &topology, algorithm, 4096);
    const Traffic traffic(forest);
    for (size_t rank = 0; rank < traffic.local_out.size(); ++rank)
      if (traffic.local_out[rank] > one.bytes + 64 * 8) {
        print_error("%s: rank %zu sends %llu bytes inside its node\n", algorithm_name(algorithm), rank,
                    static_cast<unsigned long long>(traffic.local_out[rank]));
        return false;
      }
    if (traffic.local_out[9] != one.bytes) return false;
  }
  return true;
}

// Rails share what leaves a node: each relay sends about as much as any other.
bool lanes_share_evenly() {
  constexpr int rank_count = 32;
  const Topology topology = with_rails(topology_of_sizes(rank_count, {8}), 4);
  TestLayout one("one owner", 1);
  one.add(3, uint64_t{1} << 20);
  const Forest forest(one, rank_count, &topology, Algorithm::two_level_chain, 4096);
  std::vector<uint64_t> out(4);
  for (const Piece &piece : forest.pieces)
    for (int rank = 8; rank < rank_count; ++rank) {
      const int parent = forest.trees->parent(piece, rank);
      if (topology.same_node(parent, rank)) continue;
      const int rail = topology.ranks[static_cast<size_t>(parent)].rail;
      if (topology.node_of(parent) == 0) out[static_cast<size_t>(rail)] += piece.bytes;
      if (topology.ranks[static_cast<size_t>(rank)].rail != rail) return false;
    }
  return std::all_of(out.begin(), out.end(), [&](uint64_t bytes) { return bytes == one.bytes / 4; });
}

// One rank per node: the tree over nodes is all there is.
bool single_ranks_have_the_inner_tree() {
  constexpr int rank_count = 13;
  const Topology topology = topology_of_sizes(rank_count, {1});
  TestLayout test("two owners", 1);
  test.add(2, 1024);
  test.add(11, 640);
  const std::pair<Algorithm, Algorithm> pairs[] = {{Algorithm::two_level_flat, Algorithm::flat},
                                                   {Algorithm::two_level_chain, Algorithm::chain},
                                                   {Algorithm::two_level_circulant, Algorithm::circulant}};
  for (const auto &[outer, inner] : pairs) {
    const Forest a(test, rank_count, &topology, outer, 128), b(test, rank_count, &topology, inner, 128);
    if (a.pieces.size() != b.pieces.size()) return false;
    for (size_t index = 0; index < a.pieces.size(); ++index)
      for (int rank = 0; rank < rank_count; ++rank)
        if (a.pieces[index].offset != b.pieces[index].offset ||
            a.trees->parent(a.pieces[index], rank) != b.trees->parent(b.pieces[index], rank))
          return false;
  }
  return true;
}

// All owners' blocks of a round come from one peer, at one time: so they can travel together.
bool circulant_rounds_have_one_peer() {
  for (const int rank_count : {2, 5, 8, 33, 100})
    for (const uint64_t chunk_bytes : {uint64_t{64}, uint64_t{512}, uint64_t{1} << 20}) {
      TestLayout even("even", 1);
      for (int rank = 0; rank < rank_count; ++rank) even.add(rank, 192 + 64 * static_cast<uint64_t>(rank % 3));
      const Topology topology = topology_of_sizes(rank_count, {1});
      const Forest forest(even, rank_count, &topology, Algorithm::circulant, chunk_bytes);
      for (int rank = 0; rank < rank_count; ++rank) {
        std::map<uint32_t, int> gather_peers, reduce_peers;
        std::map<uint32_t, uint64_t> bytes;
        for (const Piece &piece : forest.pieces) {
          if (piece.owner == rank) continue;
          const int parent = forest.trees->parent(piece, rank);
          const uint32_t time = forest.trees->gather_time(piece, rank), back = forest.trees->reduce_time(piece, rank);
          if (gather_peers.emplace(time, parent).first->second != parent) return false;
          if (reduce_peers.emplace(back, parent).first->second != parent) return false;
          bytes[time] += piece.bytes;
        }
        const bool small = chunk_bytes == uint64_t{1} << 20;
        if (small && gather_peers.size() > 7) return false;  // n = 1: log2 p rounds, whatever the number of owners
        for (const auto &[time, sum] : bytes)
          if (!small && sum > chunk_bytes + 64 * 64) return false;
      }
    }
  return true;
}

void every_piece_has_a_tree(void **) { assert_true(all_are_trees()); }
void two_level_crosses_each_border_once(void **) { assert_true(borders_are_crossed_once()); }
void owners_send_inside_their_node_once(void **) { assert_true(owners_leave_fan_out_to_others()); }
void rails_share_what_leaves_a_node(void **) { assert_true(lanes_share_evenly()); }
void two_level_of_single_ranks_is_one_level(void **) { assert_true(single_ranks_have_the_inner_tree()); }
void a_circulant_round_has_one_peer(void **) { assert_true(circulant_rounds_have_one_peer()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_piece_has_a_tree),
      cmocka_unit_test(two_level_crosses_each_border_once),
      cmocka_unit_test(owners_send_inside_their_node_once),
      cmocka_unit_test(rails_share_what_leaves_a_node),
      cmocka_unit_test(two_level_of_single_ranks_is_one_level),
      cmocka_unit_test(a_circulant_round_has_one_peer),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
