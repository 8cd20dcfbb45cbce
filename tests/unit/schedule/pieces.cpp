// SPDX-License-Identifier: Apache-2.0
// Pieces and shares: what is cut, how evenly spread deals, what is refused, how much scratch a rank needs.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "schedules.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

// Every owner's bytes are dealt, and the busiest port has little more than its part.
bool shares_are_balanced() {
  for (const int rank_count : {3, 4, 8, 64})
    for (const int owner_count : {1, 2, 3}) {
      TestLayout test("some owners", 1);
      for (int owner = 0; owner < owner_count; ++owner) test.add(owner, (uint64_t{1} << 24) + 64);
      std::string complaint;
      const Layout layout = layout_of(test, rank_count, &complaint);
      const std::vector<uint64_t> shares = spread_shares(layout, 1);
      const size_t count = static_cast<size_t>(rank_count);
      uint64_t busiest = 0;
      for (size_t rank = 0; rank < count; ++rank) {
        uint64_t row = 0, column = 0;
        for (size_t other = 0; other < count; ++other) {
          row += shares[rank * count + other];
          column += shares[other * count + rank];
        }
        if (row != layout.owned_bytes(static_cast<int>(rank))) return false;
        busiest = std::max(busiest, row + column * (count - 2));
      }
      // All bytes leave p - 1 times in all; nobody can do with less than what it owns.
      const uint64_t least = std::max(layout.bytes / static_cast<uint64_t>(owner_count),
                                      layout.bytes * (count - 1) / count);
      if (static_cast<double>(busiest) > 1.02 * static_cast<double>(least)) {
        print_error("%d ranks, %d owners: %llu bytes, %llu would do\n", rank_count, owner_count,
                    static_cast<unsigned long long>(busiest), static_cast<unsigned long long>(least));
        return false;
      }
    }
  return true;
}

bool even_owners_help_themselves() {
  TestLayout test("even", 1);
  for (int rank = 0; rank < 8; ++rank) test.add(rank, 4096);
  std::string complaint;
  const std::vector<uint64_t> shares = spread_shares(layout_of(test, 8, &complaint), 1);
  for (size_t rank = 0; rank < 8; ++rank)
    if (shares[rank * 8 + rank] != 4096) return false;
  return true;
}

mxs_status cut(uint64_t segment_bytes, uint32_t element_bytes, uint64_t chunk_bytes) {
  Layout layout;
  if (make_layout({{0, 0, segment_bytes}}, 2, 1, &layout) != MXS_OK) return MXS_INTERNAL;
  ScheduleOptions options;
  options.direction = Direction::reduce;
  options.layout = &layout;
  options.element_bytes = element_bytes;
  options.chunk_bytes = chunk_bytes;
  std::vector<Piece> pieces;
  return cut_pieces(options, &pieces);
}

bool bad_cuts_are_refused() {
  return cut(4096, 4, 100) == MXS_INVALID_ARGUMENT && std::strstr(last_error_text(), "chunk_bytes is 100") &&
         cut(4096, 4, 0) == MXS_INVALID_ARGUMENT && cut(4096, 4, uint64_t{1} << 40) == MXS_INVALID_ARGUMENT &&
         cut(4098, 4, 64) == MXS_INVALID_ARGUMENT && std::strstr(last_error_text(), "cuts an element") &&
         cut(uint64_t{1} << 61, 4, 4096) == MXS_INVALID_ARGUMENT &&
         std::strstr(last_error_text(), "raise chunk_bytes") &&
         cut(4096, 4, 64) == MXS_OK;
}

// A ring of 8 with one owner needs two live sums per relay, not one per chunk.
bool scratch_is_small() {
  TestLayout test("one owner", 1);
  test.add(3, 64 * 256);
  ScheduleOptions options;
  options.direction = Direction::reduce;
  options.algorithm = Algorithm::chain;
  options.element_bytes = 2;
  options.accumulate = true;
  options.chunk_bytes = 64;
  options.spare_slots = 0;
  Set set;
  make_set(&set, options, test, test, 8);
  for (const Schedule &schedule : set.schedules)
    if (schedule.slot_count > 2 || (schedule.slot_count > 0 && schedule.slot_bytes != 128)) {
      print_error("rank %d: %d slots of %llu bytes\n", schedule.rank, schedule.slot_count,
                  static_cast<unsigned long long>(schedule.slot_bytes));
      return false;
    }
  return true;
}

// One owner's small segments between those of others travel as one message; large ones one by one, and what is large
// depends on what a message costs.
bool small_segments_travel_together() {
  for (const bool small : {true, false})
    for (const bool local : {true, false}) {
      TestLayout test("segments in turn", 1);
      for (int turn = 0; turn < 10; ++turn)
        for (int owner = 0; owner < 2; ++owner) test.add(owner, small ? 400 : 40000);
      const NamedTopology topology = topology_of("", 3, {local ? 3 : 1}, false, 1);
      ScheduleOptions options;
      options.topology = &topology.topology;
      options.chunk_bytes = uint64_t{1} << 20;
      Set set;
      make_set(&set, options, test, test, 3);
      const uint64_t expected = small || !local ? 2 : 20;  // that rank 2 receives of two owners
      if (set.check(1).empty() && set.schedules[2].message_count == expected) continue;
      print_error("small %d, local %d: rank 2 receives %llu messages\n", small, local,
                  static_cast<unsigned long long>(set.schedules[2].message_count));
      return false;
    }
  return true;
}

// An algorithm can't bring in less than the bound, and flat and chain gathers bring in no more.
bool bounds_are_kept() {
  for (const int rank_count : test_worlds)
    for (const TestLayout &test : test_layouts(rank_count, 4, 97))
      for (const Algorithm algorithm : {Algorithm::flat, Algorithm::chain, Algorithm::spread})
        for (const Direction direction : {Direction::gather, Direction::reduce, Direction::ordered_reduce}) {
          ScheduleOptions options;
          options.direction = direction;
          options.algorithm = algorithm;
          options.element_bytes = direction == Direction::gather ? 1 : 2;
          options.chunk_bytes = 128;
          Set set;
          make_set(&set, options, test, test, rank_count);
          options.layout = &set.layout;
          uint64_t in = 0, out = 0;
          for (const Schedule &schedule : set.schedules) {
            const uint64_t least = bytes_in_least(options, schedule.rank);
            const bool wasteful = direction == Direction::gather && schedule.bytes_in > least;
            if (schedule.bytes_in < least || wasteful) return false;
            in += schedule.bytes_in;
            out += schedule.bytes_out;
          }
          if (in != out) return false;
        }
  return true;
}

void spread_balances_ports(void **) { assert_true(shares_are_balanced()); }
void spread_of_an_even_layout_is_flat(void **) { assert_true(even_owners_help_themselves()); }
void what_cannot_be_cut_is_refused(void **) { assert_true(bad_cuts_are_refused()); }
void a_ring_needs_two_slots(void **) { assert_true(scratch_is_small()); }
void one_owners_small_segments_travel_together(void **) { assert_true(small_segments_travel_together()); }
void nothing_beats_the_bound(void **) { assert_true(bounds_are_kept()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(spread_balances_ports),         cmocka_unit_test(spread_of_an_even_layout_is_flat),
      cmocka_unit_test(what_cannot_be_cut_is_refused), cmocka_unit_test(a_ring_needs_two_slots),
      cmocka_unit_test(one_owners_small_segments_travel_together),
      cmocka_unit_test(nothing_beats_the_bound),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
