// SPDX-License-Identifier: Apache-2.0
// Topologies from words, and from what ranks say of their nodes; queries; speeds.
#include "topology/topology.hpp"

#include <cstring>
#include <random>
#include <string>
#include <vector>

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

// ---- words ----

// What a line of words comes to, as a text: nodes by their ranks, then rails of each rank, speeds.
std::string told(const mxs::Topology &topology) {
  std::string text;
  for (const mxs::Node &node : topology.nodes)
    text.append(text.empty() ? "" : "+").append(std::to_string(node.rank_count())).append("/").append(
        std::to_string(node.rails.size()));
  text += " rails ";
  for (int rank = 0; rank < std::min(topology.rank_count(), 9); ++rank)
    text += std::to_string(topology.ranks[static_cast<size_t>(rank)].rail);
  const auto add = [&](const char *name, const mxs::LinkSpeed &speed) {
    text.append(" ").append(name).append(" ").append(std::to_string(speed.latency_ns)).append(",");
    text.append(std::to_string(speed.overhead_ns)).append(",").append(std::to_string(speed.bytes_per_second));
  };
  const mxs::Speeds defaults;
  if (topology.local != defaults.local) add("local", topology.local);
  if (topology.network != defaults.network) add("network", topology.network);
  return text;
}

bool words_mean_what_they_say() {
  const struct {
    const char *words, *meaning;
  } table[] = {
      {"ranks:4", "4/1 rails 0000"},
      {"ranks:3+5", "3/1+5/1 rails 00000000"},
      {"nodes:2 ranks:3+5", "3/1+5/1 rails 00000000"},
      {"ranks:4+3+2 nic:1", "4/4+3/3+2/2 rails 012301201 network 30000,20000,1000000000"},
      {"ranks:4 rails:2", "4/2 rails 0101"},
      {"nodes:2 ranks:3 rails:2", "3/2+3/2 rails 010010"},
      {"ranks:2 rails:4", "2/4 rails 01"},
      {"nodes:2 ranks:2 nic:25 rails:1", "2/1+2/1 rails 0000 network 30000,20000,25000000000"},
      {"nodes:8 ranks:1 nic:25 local:200 latency:10 overhead:1",
       "1/1+1/1+1/1+1/1+1/1+1/1+1/1+1/1 rails 00000000 local 300,200,200000000000 network 10000,1000,25000000000"},
      {"ranks:1 latency:0.5 overhead:0 nic:0.025", "1/1 rails 0 network 500,0,25000000"},
      {"local-latency:0.25 ranks:1 local-overhead:0.1", "1/1 rails 0 local 250,100,5000000000"},
  };
  for (const auto &line : table) {
    mxs::Topology topology;
    if (mxs::parse_topology(line.words, &topology) == MXS_OK && told(topology) == line.meaning) continue;
    print_error("\"%s\" is %s, not %s\n", line.words, told(topology).c_str(), line.meaning);
    return false;
  }
  return true;
}

bool impossible_words_are_shown() {
  const struct {
    const char *words, *shown;
  } table[] = {
      {"nodes:3 ranks:3+5", "\"nodes:3\""},
      {"ranks:3+", "\"ranks:3+\""},
      {"ranks:+3", "\"ranks:+3\""},
      {"ranks:3++5", "\"ranks:3++5\""},
      {"ranks:3+0", "\"ranks:3+0\""},
      {"ranks:1048576+1", "1048576"},
      {"ranks:4 nic:0", "\"nic:0\""},
      {"ranks:4 nic:-1", "\"nic:-1\""},
      {"ranks:4 nic:fast", "\"nic:fast\""},
      {"ranks:4 nic:", "\"nic:\""},
      {"ranks:4 nic:nan", "\"nic:nan\""},
      {"ranks:4 nic:inf", "\"nic:inf\""},
      {"ranks:4 nic:1e3", "\"nic:1e3\""},
      {"ranks:4 nic:25GB", "\"nic:25GB\""},
      {"ranks:4 nic:10000000", "\"nic:10000000\""},
      {"ranks:4 latency:-1", "\"latency:-1\""},
      {"ranks:4 latency:4000001", "\"latency:4000001\""},
      {"ranks:4 latency:1 latency:1", "given twice"},
      {"ranks:4 ranks:3+5", "given twice"},
      {"ranks:4 rails:0", "\"rails:0\""},
      {"ranks:4 rails:1048577", "\"rails:1048577\""},
      {"nodes:1024 ranks:1 rails:1025", "\"rails:1025\""},
      {"ranks:4 rails:2 rails:2", "given twice"},
      {"ranks:4 hwloc:", "\"hwloc:\""},
      {"ranks:4 rails:2 hwloc:m.xml", "\"rails:2\""},
      {"hwloc:m.xml ranks:4", "ranks:N is missing"},  // the path is all that follows
      {"ranks", "\"ranks\""},
      {":4", "\":4\""},
      {"Ranks:4", "\"Ranks:4\""},
  };
  for (const auto &line : table)
    if (!is_refused(line.words, line.shown)) return false;
  return true;
}

// Thousands of lines that are nearly right: each is understood or refused with a sentence, and nothing is half done.
bool mutated_words_never_crash() {
  const std::string seeds[] = {"nodes:8 ranks:8 nic:25 local:200 latency:10 overhead:1 rails:2",
                               "ranks:3+5 local-latency:0.3 local-overhead:0.1", "nodes:2 ranks:4 hwloc:a b.xml"};
  const std::string letters = "0123456789+:.- \tnrx\xff" + std::string(1, '\1');
  std::mt19937 random(20261129);
  int good = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    std::string words = seeds[random() % 3];
    for (unsigned change = random() % 4; change < 4; ++change) {
      const size_t place = words.empty() ? 0 : random() % words.size();
      switch (random() % 4) {
        case 0: words.insert(words.begin() + static_cast<long>(place), letters[random() % letters.size()]); break;
        case 1: words.erase(place, random() % 4); break;
        case 2: words.insert(place, words.substr(words.size() / 2, random() % 8)); break;
        default: if (!words.empty()) words[place] = letters[random() % letters.size()];
      }
    }
    mxs::Topology topology;
    const mxs_status status = mxs::parse_topology(words, &topology);
    if (status == MXS_OK)
      ++good;
    else if (status != MXS_INVALID_ARGUMENT || !*mxs_last_error() || topology.rank_count() != 0)
      return false;
    for (const mxs::RankPlace &place : topology.ranks)
      if (place.rail < 0 || static_cast<size_t>(place.rail) >= topology.node(place.node).rails.size()) return false;
  }
  return good > 100 && good < 19000;
}

// ---- views ----

mxs::RankView view(uint64_t label, int numa, int numa_count, std::vector<mxs::Rail> rails) {
  return {label, numa, numa_count, std::move(rails)};
}

bool views_are_merged() {
  // Node 7: two NUMA nodes, a NIC in each and one near to none; rank 2 sees one more, and knows eth1's speed.
  const mxs::Topology topology = mxs::topology_from_views({
      view(7, 0, 2, {{"eth1", 1, 0}, {"eth0", 0, 100}}),
      view(9, -1, 1, {}),
      view(7, 1, 2, {{"eth0", 0, 200}, {"eth1", 1, 300}, {"zz", -1, 5}}),
      view(7, 0, 2, {}),
      view(7, -1, 2, {}),
      view(7, -1, 2, {}),
  });
  const std::vector<mxs::Rail> rails = {{"eth0", 0, 100}, {"eth1", 1, 300}, {"zz", -1, 5}};
  if (topology.node_count() != 2 || topology.node(0).rails != rails || topology.node(0).numa_count != 2) return false;
  if (topology.node(1).rails != std::vector<mxs::Rail>(1)) return false;
  const int expected[] = {0, 0, 1, 0, 0, 1};  // the last two take all in turns
  for (size_t rank = 0; rank < 6; ++rank)
    if (topology.ranks[rank].rail != expected[rank]) return false;
  return true;
}

bool equally_near_rails_are_taken_in_turns() {
  std::vector<mxs::RankView> views;
  for (int rank = 0; rank < 6; ++rank)
    views.push_back(view(1, rank / 3, 2, {{"a", 0, 0}, {"b", 0, 0}, {"c", 1, 0}, {"d", 1, 0}}));
  const mxs::Topology topology = mxs::topology_from_views(views);
  const int expected[] = {0, 1, 0, 2, 3, 2};
  for (size_t rank = 0; rank < 6; ++rank)
    if (topology.ranks[rank].rail != expected[rank]) return false;
  return true;
}

bool views_travel_as_bytes() {
  const mxs::RankView sent = view(UINT64_MAX, 1, 4, {{"mlx5_0", 1, 50'000'000'000}, {"", -1, 0}});
  const std::vector<std::byte> bytes = mxs::pack_view(sent);
  mxs::RankView got;
  if (mxs::unpack_view(bytes.data(), bytes.size(), &got) != MXS_OK || !(got == sent)) return false;
  std::mt19937 random(7);
  for (size_t cut = 0; cut < bytes.size(); ++cut)
    if (mxs::unpack_view(bytes.data(), cut, &got) != MXS_INVALID_ARGUMENT) return false;
  for (int turn = 0; turn < 20000; ++turn) {  // any answer, but no crash
    std::vector<std::byte> wrong = bytes;
    for (int change = 0; change < 3; ++change) wrong[random() % wrong.size()] = std::byte(random());
    if (mxs::unpack_view(wrong.data(), wrong.size(), &got) == MXS_OK && got.rails.size() > 64) return false;
  }
  return got.numa < 1 << 16;
}

// ---- queries and speeds ----

bool queries_answer() {
  mxs_topology *topology = nullptr;
  if (mxs_topology_create(&topology, "ranks:3+5 rails:2 nic:10 latency:7 overhead:2 local:50") != MXS_OK) return false;
  mxs_rank_info rank = MXS_RANK_INFO_INIT;
  mxs_node_info node = MXS_NODE_INFO_INIT;
  mxs_rail_info rail = MXS_RAIL_INFO_INIT;
  mxs_link_info near = MXS_LINK_INFO_INIT, far = MXS_LINK_INFO_INIT;
  bool good = mxs_topology_rank(topology, 4, &rank) == MXS_OK && rank.rail == 1 && rank.numa == -1 && rank.node == 1;
  good = good && mxs_topology_node(topology, 1, &node) == MXS_OK && node.rank_count == 5 && node.rail_count == 2 &&
         node.numa_count == 1;
  good = good && mxs_topology_rail(topology, 0, 1, &rail) == MXS_OK && std::strcmp(rail.name, "") == 0 &&
         rail.bytes_per_second == 10'000'000'000u && rail.numa == -1;
  good = good && mxs_topology_link(topology, 0, 2, &near) == MXS_OK && near.same_node == 1 &&
         near.bytes_per_second == 50'000'000'000u;
  good = good && mxs_topology_link(topology, 2, 3, &far) == MXS_OK && far.same_node == 0 && far.latency_ns == 7000 &&
         far.overhead_ns == 2000 && far.bytes_per_second == 10'000'000'000u;
  mxs_topology_destroy(&topology);
  return good;
}

bool an_older_rank_info_is_filled() {
  mxs_topology *topology = nullptr;
  if (mxs_topology_create(&topology, "ranks:2 rails:2") != MXS_OK) return false;
  mxs_rank_info info = MXS_RANK_INFO_INIT;
  info.size = 16;
  info.rail = 77;
  const bool good = mxs_topology_rank(topology, 1, &info) == MXS_OK && info.local_rank_count == 2 && info.size == 16 &&
                    info.rail == 77;
  mxs_topology_destroy(&topology);
  return good;
}

bool speeds_can_be_changed() {
  mxs_topology *first = nullptr, *second = nullptr, *third = nullptr;
  if (mxs_topology_create(&first, "nodes:2 ranks:2") != MXS_OK) return false;
  mxs_algorithm_factor factors[2] = {MXS_ALGORITHM_FACTOR_INIT, MXS_ALGORITHM_FACTOR_INIT};
  factors[0].algorithm = "spread";
  factors[0].per_mille = 1250;
  factors[1].algorithm = "chain";
  mxs_speeds speeds = MXS_SPEEDS_INIT, got = MXS_SPEEDS_INIT;
  speeds.network_latency_ns = 123;
  speeds.network_bytes_per_second = 25'000'000;
  speeds.factors = factors;
  speeds.factor_count = 2;
  bool good = mxs_topology_with_speeds(&second, first, &speeds) == MXS_OK &&
              mxs_topology_speeds(second, &got) == MXS_OK && got.network_latency_ns == 123 &&
              got.local_latency_ns == 300 && got.network_bytes_per_second == 25'000'000 && got.factor_count == 2 &&
              std::strcmp(got.factors[0].algorithm, "chain") == 0 && got.factors[1].per_mille == 1250;
  speeds = MXS_SPEEDS_INIT;
  factors[0].per_mille = 900;
  speeds.factors = factors;
  speeds.factor_count = 1;
  good = good && mxs_topology_with_speeds(&third, second, &speeds) == MXS_OK &&
         mxs_topology_speeds(third, &got) == MXS_OK && got.factor_count == 2 && got.factors[1].per_mille == 900 &&
         got.network_latency_ns == 123;
  mxs_topology_destroy(&first);
  mxs_topology_destroy(&second);
  mxs_topology_destroy(&third);
  return good;
}

bool bad_speeds_are_refused() {
  mxs_topology *first = nullptr, *second = nullptr;
  if (mxs_topology_create(&first, "ranks:2") != MXS_OK) return false;
  mxs_algorithm_factor factor = MXS_ALGORITHM_FACTOR_INIT;
  const auto refused = [&](const mxs_speeds &speeds, const char *word) {
    return mxs_topology_with_speeds(&second, first, &speeds) == MXS_INVALID_ARGUMENT && !second &&
           std::strstr(mxs_last_error(), word);
  };
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  bool good = mxs_topology_with_speeds(nullptr, first, &speeds) == MXS_INVALID_ARGUMENT &&
              mxs_topology_with_speeds(&second, nullptr, &speeds) == MXS_INVALID_ARGUMENT &&
              mxs_topology_with_speeds(&second, first, nullptr) == MXS_INVALID_ARGUMENT;
  speeds.factor_count = 1;
  good = good && refused(speeds, "factors is NULL");
  speeds.factors = &factor;
  good = good && refused(speeds, "algorithm is NULL");
  factor.algorithm = "chain";
  factor.per_mille = 0;
  good = good && refused(speeds, "per_mille of \"chain\" is 0");
  speeds.factor_count = 65;
  good = good && refused(speeds, "more than 64");
  speeds = MXS_SPEEDS_INIT;
  speeds.add_bytes_per_second = UINT64_MAX;
  good = good && refused(speeds, "add_bytes_per_second");
  speeds.size = 8;
  good = good && refused(speeds, "speeds.size is 8");
  good = good && mxs_topology_speeds(first, nullptr) == MXS_INVALID_ARGUMENT;
  mxs_topology_destroy(&first);
  return good;
}

bool plans_do_not_see_speeds_or_rails() {
  mxs::Topology plain, other;
  if (mxs::parse_topology("nodes:2 ranks:2", &plain) != MXS_OK ||
      mxs::parse_topology("nodes:2 ranks:2 nic:3 rails:2 latency:1", &other) != MXS_OK)
    return false;
  if (plain.hash() != other.hash() || plain.hash(true) == other.hash(true)) return false;
  other = plain;
  other.set_factor("chain", 1001);
  return plain.hash() == other.hash() && plain.hash(true) != other.hash(true);
}

void words_tell_nodes_ranks_rails_and_speeds(void **) { assert_true(words_mean_what_they_say()); }
void impossible_words_get_a_sentence_that_shows_them(void **) { assert_true(impossible_words_are_shown()); }
void words_that_are_nearly_right_never_crash(void **) { assert_true(mutated_words_never_crash()); }
void what_ranks_see_of_a_node_becomes_one(void **) { assert_true(views_are_merged()); }
void ranks_take_equally_near_rails_in_turns(void **) { assert_true(equally_near_rails_are_taken_in_turns()); }
void what_a_rank_sees_travels_as_bytes(void **) { assert_true(views_travel_as_bytes()); }
void nodes_rails_and_links_can_be_asked_for(void **) { assert_true(queries_answer()); }
void a_struct_of_the_first_size_is_filled(void **) { assert_true(an_older_rank_info_is_filled()); }
void a_copy_can_have_other_speeds(void **) { assert_true(speeds_can_be_changed()); }
void bad_speeds_get_a_sentence(void **) { assert_true(bad_speeds_are_refused()); }
void the_plain_hash_sees_neither_speeds_nor_rails(void **) { assert_true(plans_do_not_see_speeds_or_rails()); }

void queries_refuse_what_is_not_there(void **) {
  mxs_topology *topology = nullptr;
  mxs_node_info node = MXS_NODE_INFO_INIT;
  mxs_rail_info rail = MXS_RAIL_INFO_INIT;
  mxs_link_info link = MXS_LINK_INFO_INIT;
  assert_int_equal(mxs_topology_create(&topology, "ranks:4"), MXS_OK);
  assert_int_equal(mxs_topology_node(nullptr, 0, &node), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_node(topology, 1, &node), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_node(topology, -1, &node), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_node(topology, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_rail(topology, 0, 1, &rail), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_rail(topology, 1, 0, &rail), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_rail(topology, 0, -1, &rail), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_rail(nullptr, 0, 0, &rail), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_link(topology, 0, 4, &link), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_link(topology, -1, 0, &link), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_topology_link(topology, 1, 1, &link), MXS_INVALID_ARGUMENT);
  node.size = 4;
  assert_int_equal(mxs_topology_node(topology, 0, &node), MXS_INVALID_ARGUMENT);
  mxs_topology_destroy(&topology);
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
      cmocka_unit_test(words_tell_nodes_ranks_rails_and_speeds),
      cmocka_unit_test(impossible_words_get_a_sentence_that_shows_them),
      cmocka_unit_test(words_that_are_nearly_right_never_crash),
      cmocka_unit_test(what_ranks_see_of_a_node_becomes_one),
      cmocka_unit_test(ranks_take_equally_near_rails_in_turns),
      cmocka_unit_test(what_a_rank_sees_travels_as_bytes),
      cmocka_unit_test(nodes_rails_and_links_can_be_asked_for),
      cmocka_unit_test(queries_refuse_what_is_not_there),
      cmocka_unit_test(a_struct_of_the_first_size_is_filled),
      cmocka_unit_test(a_copy_can_have_other_speeds),
      cmocka_unit_test(bad_speeds_get_a_sentence),
      cmocka_unit_test(the_plain_hash_sees_neither_speeds_nor_rails),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
