// SPDX-License-Identifier: Apache-2.0
// Who keeps whose backup: a pure function of who is where.
#include <algorithm>
#include <string>
#include <vector>

#include "plan/keepers.hpp"
#include "topology/topology.hpp"
#include "support/cmocka_all.h"

namespace {

using mxs::keeper_of;
using mxs::Topology;
using mxs::wards_of;

// Ranks are dealt to nodes as the list says.
Topology topology_of(const std::vector<int> &node_of_rank) {
  std::vector<mxs::RankView> views;
  for (const int node : node_of_rank) {
    mxs::RankView view;
    view.node_label = static_cast<uint64_t>(node);
    views.push_back(view);
  }
  return mxs::topology_from_views(views);
}

std::vector<int> keepers_of(const std::vector<int> &node_of_rank) {
  const Topology topology = topology_of(node_of_rank);
  std::vector<int> keepers;
  for (int rank = 0; rank < topology.rank_count(); ++rank) keepers.push_back(keeper_of(topology, rank));
  return keepers;
}

void on_one_node_the_next_rank_keeps(void **) {
  assert_true((keepers_of({0, 0, 0, 0}) == std::vector<int>{1, 2, 3, 0}));
  assert_true((keepers_of({0, 0}) == std::vector<int>{1, 0}));
}

void one_rank_has_no_keeper(void **) {
  assert_true((keepers_of({0}) == std::vector<int>{mxs::no_keeper}));
  assert_true(wards_of(topology_of({0}), 0).empty());
}

void on_even_nodes_the_same_place_on_the_next_node_keeps(void **) {
  assert_true((keepers_of({0, 0, 1, 1, 2, 2}) == std::vector<int>{2, 3, 4, 5, 0, 1}));
  assert_true((keepers_of({0, 1, 2, 0, 1, 2}) == std::vector<int>{1, 2, 0, 4, 5, 3}));
}

void on_uneven_nodes_the_ranks_of_the_next_node_take_turns(void **) {
  assert_true((keepers_of({0, 0, 0, 1, 1}) == std::vector<int>{3, 4, 3, 0, 1}));
  assert_true((wards_of(topology_of({0, 0, 0, 1, 1}), 3) == std::vector<int>{0, 2}));
  assert_true(wards_of(topology_of({0, 0, 0, 1, 1}), 2).empty());
}

// Of every world: one keeper each, another rank, on another node where there is one; and each rank is one's ward.
void everybody_is_kept_once_by_somebody_else(void **) {
  for (int ranks = 2; ranks <= 40; ++ranks)
    for (int nodes = 1; nodes <= 6; ++nodes) {
      std::vector<int> places;
      for (int rank = 0; rank < ranks; ++rank) places.push_back(rank * rank % 7 % nodes);
      const Topology topology = topology_of(places);
      std::vector<int> kept(static_cast<size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        const int keeper = keeper_of(topology, rank);
        assert_int_not_equal(keeper, rank);
        assert_true(topology.node_count() == 1 || !topology.same_node(keeper, rank));
        for (const int ward : wards_of(topology, rank)) ++kept[static_cast<size_t>(ward)];
      }
      assert_true(std::all_of(kept.begin(), kept.end(), [](int count) { return count == 1; }));
    }
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(on_one_node_the_next_rank_keeps),
      cmocka_unit_test(one_rank_has_no_keeper),
      cmocka_unit_test(on_even_nodes_the_same_place_on_the_next_node_keeps),
      cmocka_unit_test(on_uneven_nodes_the_ranks_of_the_next_node_take_turns),
      cmocka_unit_test(everybody_is_kept_once_by_somebody_else),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
