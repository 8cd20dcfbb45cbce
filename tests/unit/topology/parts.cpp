// SPDX-License-Identifier: Apache-2.0
// Topologies of some ranks of another, such as a shard group of replicas; and plans made for them.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.h"
#include "support/cmocka_all.h"

namespace {

class Topologies {
 public:
  Topologies() = default;
  Topologies(const Topologies &) = delete;
  ~Topologies() {
    mxs_topology_destroy(&whole);
    mxs_topology_destroy(&part);
  }
  bool make(const char *words) { return mxs_topology_create(&whole, words) == MXS_OK; }
  mxs_status take(const std::vector<int32_t> &ranks) {
    mxs_topology_destroy(&part);
    return mxs_topology_of_ranks(&part, whole, ranks.data(), static_cast<int32_t>(ranks.size()));
  }
  mxs_topology *whole = nullptr, *part = nullptr;
};

mxs_rank_info rank_of(const mxs_topology *topology, int32_t rank) {
  mxs_rank_info info = MXS_RANK_INFO_INIT;
  mxs_topology_rank(topology, rank, &info);
  return info;
}

bool ranks_are_numbered_in_the_order_given() {
  Topologies topologies;
  if (!topologies.make("nodes:3 ranks:4") || topologies.take({9, 2, 8, 0, 3}) != MXS_OK) return false;
  // Old nodes 2, 0, 2, 0, 0 become 0, 1, 0, 1, 1.
  const int32_t nodes[] = {0, 1, 0, 1, 1}, local_ranks[] = {0, 0, 1, 1, 2}, local_counts[] = {2, 3, 2, 3, 3};
  for (int32_t rank = 0; rank < 5; ++rank) {
    const mxs_rank_info info = rank_of(topologies.part, rank);
    if (info.node != nodes[rank] || info.local_rank != local_ranks[rank] ||
        info.local_rank_count != local_counts[rank])
      return false;
  }
  return mxs_topology_rank_count(topologies.part) == 5 && mxs_topology_node_count(topologies.part) == 2 &&
         mxs_topology_rank_count(topologies.whole) == 12;
}

bool parts_keep_speeds_and_rails() {
  Topologies topologies;
  if (!topologies.make("nodes:2 ranks:4 rails:2 nic:25 local:200 latency:7") ||
      topologies.take({4, 5, 6, 7}) != MXS_OK)
    return false;
  mxs_speeds whole = MXS_SPEEDS_INIT, part = MXS_SPEEDS_INIT;
  mxs_topology_speeds(topologies.whole, &whole);
  mxs_topology_speeds(topologies.part, &part);
  if (whole.network_bytes_per_second != part.network_bytes_per_second ||
      whole.local_bytes_per_second != part.local_bytes_per_second ||
      whole.network_latency_ns != part.network_latency_ns)
    return false;
  mxs_node_info node = MXS_NODE_INFO_INIT;
  if (mxs_topology_node(topologies.part, 0, &node) != MXS_OK || node.rail_count != 2) return false;
  // Two ranks of a node are dealt both rails anew, whichever two they are.
  if (topologies.take({4, 6}) != MXS_OK) return false;
  return rank_of(topologies.part, 0).rail != rank_of(topologies.part, 1).rail;
}

// Rail r joins the ranks with local rank r: they go on through the NICs that are nearest to them.
bool ranks_that_are_spread_keep_their_rails() {
  Topologies topologies;
  if (!topologies.make("nodes:3 ranks:4 rails:4")) return false;
  for (int32_t local = 0; local < 4; ++local) {
    if (topologies.take({local, local + 4, local + 8}) != MXS_OK) return false;
    for (int32_t rank = 0; rank < 3; ++rank)
      if (rank_of(topologies.part, rank).rail != local) return false;
  }
  if (topologies.take({3, 1, 6}) != MXS_OK) return false;
  return rank_of(topologies.part, 0).rail == 3 && rank_of(topologies.part, 1).rail == 1 &&
         rank_of(topologies.part, 2).rail == 2;
}

bool a_part_may_be_everything_or_one_rank() {
  Topologies topologies;
  if (!topologies.make("nodes:2 ranks:2") || topologies.take({0, 1, 2, 3}) != MXS_OK) return false;
  for (int32_t rank = 0; rank < 4; ++rank)
    if (rank_of(topologies.part, rank).node != rank / 2) return false;
  return topologies.take({3}) == MXS_OK && mxs_topology_rank_count(topologies.part) == 1 &&
         rank_of(topologies.part, 0).node == 0;
}

bool bad_parts_are_refused() {
  Topologies topologies;
  if (!topologies.make("nodes:2 ranks:2")) return false;
  auto *const untouched = reinterpret_cast<mxs_topology *>(0x10);
  const auto refused = [&](const std::vector<int32_t> &ranks, const char *words) {
    mxs_topology *part = untouched;
    const mxs_status status =
        mxs_topology_of_ranks(&part, topologies.whole, ranks.data(), static_cast<int32_t>(ranks.size()));
    if (status == MXS_INVALID_ARGUMENT && part == untouched && std::strstr(mxs_last_error(), words)) return true;
    print_error("status %d, \"%s\" without \"%s\"\n", status, mxs_last_error(), words);
    return false;
  };
  const int32_t rank = 0;
  mxs_topology *part = untouched;
  return refused({}, "rank_count is 0") && refused({0, 4}, "ranks[1] is 4, outside a world of 4 ranks") &&
         refused({-1}, "ranks[0] is -1") && refused({INT32_MIN}, "ranks[0] is -2147483648") &&
         refused({1, 2, 1}, "ranks[2] is 1, and so is ranks[0]") && refused({0, 1, 2, 3, 0}, "ranks[4] is 0") &&
         mxs_topology_of_ranks(nullptr, topologies.whole, &rank, 1) == MXS_INVALID_ARGUMENT &&
         mxs_topology_of_ranks(&part, nullptr, &rank, 1) == MXS_INVALID_ARGUMENT &&
         mxs_topology_of_ranks(&part, topologies.whole, nullptr, 1) == MXS_INVALID_ARGUMENT &&
         mxs_topology_of_ranks(&part, topologies.whole, &rank, -5) == MXS_INVALID_ARGUMENT && part == untouched;
}

// Of a small model; 0: no plan.
uint64_t plan_fingerprint(const mxs_topology *topology) {
  const char *const names[] = {"qkv", "out", "up", "down", "norm"};
  const int64_t shapes[][2] = {{768, 256}, {256, 256}, {1024, 256}, {256, 1024}, {256, 1}};
  std::vector<std::string> texts;
  std::vector<mxs_tensor> tensors;
  for (int unit = 0; unit < 4; ++unit)
    for (int index = 0; index < 5; ++index) {
      mxs_tensor tensor = MXS_TENSOR_INIT;
      tensor.unit = unit;
      tensor.dimension_count = index == 4 ? 1 : 2;
      std::memcpy(tensor.shape, shapes[index], sizeof shapes[index]);
      texts.push_back(std::string(names[index]).append(std::to_string(unit)));
      tensors.push_back(tensor);
    }
  for (size_t index = 0; index < tensors.size(); ++index) tensors[index].name = texts[index].c_str();
  mxs_plan *plan = nullptr;
  if (mxs_plan_create(&plan, tensors.data(), tensors.size(), topology, nullptr) != MXS_OK) return 0;
  const uint64_t fingerprint = mxs_plan_fingerprint(plan);
  mxs_plan_destroy(&plan);
  return fingerprint;
}

// One for each shard group of so many ranks.
std::vector<uint64_t> fingerprints_of_groups(const char *words, int32_t group_ranks) {
  Topologies topologies;
  std::vector<uint64_t> fingerprints;
  if (!topologies.make(words)) return {};
  for (int32_t first = 0; first < mxs_topology_rank_count(topologies.whole); first += group_ranks) {
    std::vector<int32_t> ranks;
    for (int32_t rank = first; rank < first + group_ranks; ++rank) ranks.push_back(rank);
    if (topologies.take(ranks) != MXS_OK) return {};
    fingerprints.push_back(plan_fingerprint(topologies.part));
  }
  return fingerprints;
}

bool groups_of_like_nodes_have_one_plan() {
  const struct {
    const char *words;
    int32_t group_ranks;
  } worlds[] = {
      {"nodes:4 ranks:4", 4}, {"nodes:8 ranks:2", 4}, {"nodes:2 ranks:8", 4}, {"nodes:4 ranks:8 rails:2", 16}};
  for (const auto &world : worlds) {
    const std::vector<uint64_t> found = fingerprints_of_groups(world.words, world.group_ranks);
    if (found.size() < 2 || found[0] == 0) return false;
    for (const uint64_t fingerprint : found)
      if (fingerprint != found[0]) return false;
  }
  return true;
}

// Ranks 0 to 3 are on two nodes, 4 to 7 on one: one of the two topologies must stand for both.
bool groups_of_unlike_nodes_have_several() {
  const std::vector<uint64_t> found = fingerprints_of_groups("ranks:3+5", 4);
  return found.size() == 2 && found[0] != 0 && found[1] != 0 && found[0] != found[1];
}

void a_part_is_numbered_anew(void **) { assert_true(ranks_are_numbered_in_the_order_given()); }
void a_part_keeps_speeds_and_deals_rails_anew(void **) { assert_true(parts_keep_speeds_and_rails()); }
void ranks_of_a_part_keep_rails_that_nobody_shares(void **) { assert_true(ranks_that_are_spread_keep_their_rails()); }
void a_part_of_everything_and_of_one_rank(void **) { assert_true(a_part_may_be_everything_or_one_rank()); }
void no_ranks_doubles_and_strangers_get_a_sentence(void **) { assert_true(bad_parts_are_refused()); }
void shard_groups_that_lie_alike_have_equal_plans(void **) { assert_true(groups_of_like_nodes_have_one_plan()); }
void shard_groups_that_lie_differently_do_not(void **) { assert_true(groups_of_unlike_nodes_have_several()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_part_is_numbered_anew),
      cmocka_unit_test(a_part_keeps_speeds_and_deals_rails_anew),
      cmocka_unit_test(ranks_of_a_part_keep_rails_that_nobody_shares),
      cmocka_unit_test(a_part_of_everything_and_of_one_rank),
      cmocka_unit_test(no_ranks_doubles_and_strangers_get_a_sentence),
      cmocka_unit_test(shard_groups_that_lie_alike_have_equal_plans),
      cmocka_unit_test(shard_groups_that_lie_differently_do_not),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
