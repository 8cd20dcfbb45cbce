// SPDX-License-Identifier: Apache-2.0
// Algorithms that look at nodes, on even and uneven ones: byte for byte, in both directions; and how many messages the
// rounds of circulant take.
#include <algorithm>

#include "schedules.hpp"
#include "support/thinned.hpp"
#include "topologies.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

bool holds(const ScheduleOptions &options, const TestLayout &layout, const TestTopology &topology, int rank_count,
           int window) {
  Set set;
  make_set(&set, options, layout, layout, rank_count);
  const std::string complaint = set.check(window);
  if (complaint.empty()) return true;
  print_error("%s, %s, %d ranks, %s, layout '%s', chunks of %llu, accumulate %d, window %d: %s\n",
              direction_name(options.direction), algorithm_name(options.algorithm), rank_count, topology.name.c_str(),
              layout.name.c_str(), static_cast<unsigned long long>(options.chunk_bytes), options.accumulate, window,
              complaint.c_str());
  return false;
}

bool all_hold(Algorithm algorithm) {
  for (const int rank_count : test::thinned<int>({1, 2, 3, 4, 5, 6, 7, 8, 9, 16}))
    for (const TestTopology &topology : test_topologies(rank_count))
      for (const TestLayout &layout : test_layouts(rank_count, 2, 97))
        for (const uint64_t chunk_bytes : {128u, 4096u}) {
          ScheduleOptions options;
          options.algorithm = algorithm;
          options.topology = &topology.topology;
          options.chunk_bytes = chunk_bytes;
          if (!holds(options, layout, topology, rank_count, 1)) return false;
          options.direction = Direction::reduce;
          options.element_bytes = 2;
          options.accumulate = rank_count % 2 == 0;
          options.spare_slots = chunk_bytes == 128 ? 0 : 2;
          if (!holds(options, layout, topology, rank_count, 1) || !holds(options, layout, topology, rank_count, 4))
            return false;
        }
  return true;
}

bool large_worlds_hold() {
  for (const int rank_count : test::under_valgrind() ? std::vector{64} : std::vector{64, 1024})
    for (const std::vector<int> &sizes : {std::vector<int>{8}, std::vector<int>{3, 5}}) {
      const TestTopology topology = {"large", topology_of_sizes(rank_count, sizes)};
      TestLayout seven("seven owners and a tail", 1), even("even", 1);
      for (int owner = 0; owner < 7; ++owner) seven.add(owner * (rank_count / 7), 4 * 700);
      seven.add(rank_count - 1, 52);
      for (int rank = 0; rank < rank_count; ++rank) even.add(rank, 4 * 23);
      for (const Algorithm algorithm : {Algorithm::circulant, Algorithm::two_level_flat, Algorithm::two_level_chain,
                                        Algorithm::two_level_circulant})
        for (const Direction direction : {Direction::gather, Direction::reduce})
          for (const TestLayout *layout : {&seven, &even}) {
            if (layout == &even && rank_count == 1024) continue;  // a million pieces and more
            ScheduleOptions options;
            options.direction = direction;
            options.algorithm = algorithm;
            options.topology = &topology.topology;
            options.element_bytes = direction == Direction::reduce ? 4 : 1;
            options.accumulate = true;
            options.chunk_bytes = 1024;
            if (!holds(options, *layout, topology, rank_count, 1)) return false;
          }
    }
  return true;
}

// Small buffers of many owners: a message per round and not per owner, both ways.
bool messages_are_few() {
  for (const int rank_count : {2, 7, 8, 33, 64, 100}) {
    TestLayout layout("a little each", 1);
    for (int rank = 0; rank < rank_count; ++rank) layout.add(rank, 36);
    uint64_t rounds = 0;
    for (int reached = 1; reached < rank_count; reached *= 2) ++rounds;
    for (const Direction direction : {Direction::gather, Direction::reduce}) {
      ScheduleOptions options;
      options.direction = direction;
      options.algorithm = Algorithm::circulant;
      options.element_bytes = 4;
      options.chunk_bytes = 65536;
      Set set;
      make_set(&set, options, layout, layout, rank_count);
      if (!set.complaint.empty()) return false;
      // Reduce: gradients of leaves and sums of relays are messages of two kinds.
      const uint64_t most = 2 * rounds * (direction == Direction::reduce ? 2 : 1);
      for (const Schedule &schedule : set.schedules)
        if (schedule.message_count > most) {
          print_error("%s, %d ranks: rank %d has %llu messages\n", direction_name(direction), rank_count, schedule.rank,
                      static_cast<unsigned long long>(schedule.message_count));
          return false;
        }
    }
  }
  return true;
}

// n blocks in n - 1 + q rounds: a message per round each way, however many owners there are. Blocks are as much smaller
// than a chunk that a granule more for each owner still fits.
bool rounds_are_full() {
  constexpr int rank_count = 24;
  constexpr uint64_t chunk_bytes = 16384, bytes = uint64_t{4} << 20;
  for (const uint64_t owners : {1u, 2u, 7u, 24u}) {
    TestLayout layout("some owners", 1);
    for (uint64_t owner = 0; owner < owners; ++owner)
      layout.add(static_cast<int>(owner), bytes / owners / 64 * 64 + 4 * owner);
    ScheduleOptions options;
    options.algorithm = Algorithm::circulant;
    options.chunk_bytes = chunk_bytes;
    Set set;
    make_set(&set, options, layout, layout, rank_count);
    if (!set.complaint.empty()) return false;
    for (const Schedule &schedule : set.schedules)
      if (schedule.message_count > 2 * (bytes / (chunk_bytes - owners * 64) + 1 + 5)) {
        print_error("%d owners: rank %d has %llu messages\n", static_cast<int>(owners), schedule.rank,
                    static_cast<unsigned long long>(schedule.message_count));
        return false;
      }
  }
  return true;
}

void circulant(void **) { assert_true(all_hold(Algorithm::circulant)); }
void chain(void **) { assert_true(all_hold(Algorithm::chain)); }
void two_level_flat(void **) { assert_true(all_hold(Algorithm::two_level_flat)); }
void two_level_chain(void **) { assert_true(all_hold(Algorithm::two_level_chain)); }
void two_level_circulant(void **) { assert_true(all_hold(Algorithm::two_level_circulant)); }
void in_large_worlds(void **) { assert_true(large_worlds_hold()); }
void small_buffers_take_log_p_messages(void **) { assert_true(messages_are_few()); }
void large_ones_take_a_message_per_chunk(void **) { assert_true(rounds_are_full()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(circulant),
      cmocka_unit_test(chain),
      cmocka_unit_test(two_level_flat),
      cmocka_unit_test(two_level_chain),
      cmocka_unit_test(two_level_circulant),
      cmocka_unit_test(in_large_worlds),
      cmocka_unit_test(small_buffers_take_log_p_messages),
      cmocka_unit_test(large_ones_take_a_message_per_chunk),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
