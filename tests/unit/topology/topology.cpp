// SPDX-License-Identifier: Apache-2.0
// Topologies from words, and from what ranks say of their nodes.
#include "topology/topology.hpp"

#include <cstring>
#include <string>

#include "matrixshard/topology.h"
#include "support/cmocka_all.h"

namespace {

bool has_nodes(const char *text, int node_count, int local_count) {
  mxs_topology *topology = nullptr;
  if (mxs_topology_create(&topology, text) != MXS_OK) {
    print_error("%s\n", mxs_last_error());
    return false;
  }
  bool good = mxs_topology_rank_count(topology) == node_count * local_count &&
              mxs_topology_node_count(topology) == node_count;
  for (int rank = 0; good && rank < node_count * local_count; ++rank) {
    mxs_rank_info info = MXS_RANK_INFO_INIT;
    good = mxs_topology_rank(topology, rank, &info) == MXS_OK && info.node == rank / local_count &&
           info.local_rank == rank % local_count && info.local_rank_count == local_count;
  }
  mxs_topology_destroy(&topology);
  return good && topology == nullptr;
}

bool is_refused(const std::string &text, const char *word) {
  auto *const untouched = reinterpret_cast<mxs_topology *>(0x10);
  mxs_topology *topology = untouched;
  const mxs_status status = mxs_topology_create(&topology, text.c_str());
  if (status == MXS_INVALID_ARGUMENT && topology == untouched && std::strstr(mxs_last_error(), word)) return true;
  print_error("\"%s\": status %d, sentence \"%s\" without \"%s\"\n", text.c_str(), status, mxs_last_error(), word);
  return false;
}

bool scattered_ranks_are_numbered_by_lowest_rank() {
  const mxs::Topology topology = mxs::topology_from_nodes({77, 5, 77, UINT64_MAX, 5, 77});
  const int nodes[] = {0, 1, 0, 2, 1, 0}, locals[] = {0, 0, 1, 0, 1, 2};
  for (size_t rank = 0; rank < 6; ++rank)
    if (topology.ranks[rank].node != nodes[rank] || topology.ranks[rank].local_rank != locals[rank]) return false;
  return topology.node_count() == 3 && topology.node(0).ranks == std::vector<int>({0, 2, 5}) &&
         topology.node(1).ranks == std::vector<int>({1, 4}) && topology.node(2).ranks == std::vector<int>({3});
}

bool hashes_tell_nodes_apart() {
  mxs::Topology words;
  if (mxs::parse_topology("nodes:2 ranks:2", &words) != MXS_OK) return false;
  return words.hash() == mxs::topology_from_nodes({9, 9, 3, 3}).hash() &&
         words.hash() != mxs::topology_from_nodes({9, 3, 9, 3}).hash() &&
         words.hash() != mxs::topology_from_nodes({9, 9, 9, 9}).hash();
}

void understands_ranks_and_nodes(void **) {
  assert_true(has_nodes("ranks:1", 1, 1));
  assert_true(has_nodes("ranks:4", 1, 4));
  assert_true(has_nodes("nodes:2 ranks:4", 2, 4));
  assert_true(has_nodes("  ranks:3\tnodes:5 \n", 5, 3));
  assert_true(has_nodes("nodes:1024 ranks:1", 1024, 1));
}

void accepts_1048576_ranks_and_not_one_more(void **) {
  mxs_topology *topology = nullptr;
  assert_int_equal(mxs_topology_create(&topology, "ranks:1048576"), MXS_OK);
  mxs_topology_destroy(&topology);
  assert_true(is_refused("ranks:1048577", "1048576"));
  assert_true(is_refused("nodes:1048576 ranks:2", "1048576 nodes of 2 ranks"));
  assert_true(is_refused("nodes:99999999999999999999999 ranks:2", "nodes:9999"));
}

void refuses_a_world_of_0_ranks(void **) {
  assert_true(is_refused("ranks:0", "\"ranks:0\""));
  assert_true(is_refused("nodes:0 ranks:4", "\"nodes:0\""));
  assert_true(is_refused("", "world of 0 ranks"));
  assert_true(is_refused(" ", "ranks:N is missing"));
  assert_true(is_refused("nodes:2", "ranks:N is missing"));
}

void shows_the_word_that_was_not_understood(void **) {
  assert_true(is_refused("ranks:4 gpus:8", "\"gpus:8\""));
  assert_true(is_refused("4", "\"4\""));
  assert_true(is_refused("ranks:-1", "\"ranks:-1\""));
  assert_true(is_refused("ranks:", "\"ranks:\""));
  assert_true(is_refused("ranks:4x", "\"ranks:4x\""));
  assert_true(is_refused("ranks:4,nodes:2", "\"ranks:4,nodes:2\""));
  assert_true(is_refused("ranks: 4", "\"ranks:\""));
  assert_true(is_refused("ranks:4 ranks:4", "given twice"));
  assert_true(is_refused(std::string(100000, 'x'), "xxxx"));
}

void refuses_nulls_wrong_sizes_and_ranks_outside_the_world(void **) {
  mxs_topology *topology = nullptr;
  mxs_rank_info info = MXS_RANK_INFO_INIT;
  assert_int_equal(mxs_topology_create(nullptr, "ranks:4"), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_create(&topology, nullptr), MXS_INVALID_ARGUMENT);
  assert_null(topology);
  assert_int_equal(mxs_topology_rank(nullptr, 0, &info), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_create(&topology, "ranks:4"), MXS_OK);
  assert_int_equal(mxs_topology_rank(topology, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_rank(topology, 4, &info), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_rank(topology, -1, &info), MXS_INVALID_ARGUMENT);
  info.size = 0;
  assert_int_equal(mxs_topology_rank(topology, 0, &info), MXS_INVALID_ARGUMENT);
  assert_int_equal(info.local_rank_count, 0);
  mxs_topology_destroy(&topology);
  mxs_topology_destroy(&topology);
  mxs_topology_destroy(nullptr);
  assert_int_equal(mxs_topology_rank_count(nullptr), 0);
  assert_int_equal(mxs_topology_node_count(nullptr), 0);
}

void numbers_nodes_by_their_lowest_rank(void **) { assert_true(scattered_ranks_are_numbered_by_lowest_rank()); }
void the_hash_tells_who_shares_a_node(void **) { assert_true(hashes_tell_nodes_apart()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(understands_ranks_and_nodes),
      cmocka_unit_test(accepts_1048576_ranks_and_not_one_more),
      cmocka_unit_test(refuses_a_world_of_0_ranks),
      cmocka_unit_test(shows_the_word_that_was_not_understood),
      cmocka_unit_test(refuses_nulls_wrong_sizes_and_ranks_outside_the_world),
      cmocka_unit_test(numbers_nodes_by_their_lowest_rank),
      cmocka_unit_test(the_hash_tells_who_shares_a_node),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
