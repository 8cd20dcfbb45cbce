// SPDX-License-Identifier: Apache-2.0
// Every algorithm in every direction, in every small world, on every layout and topology, byte for byte. What serves
// what is asked, so that a new algorithm is here as soon as it is in the list.
#include "schedules.hpp"
#include "support/thinned.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

struct Tally {
  size_t sets = 0, messages = 0, of_several_ranges = 0;
};

bool holds(const ScheduleOptions &options, const TestLayout &layout, const TestLayout &target,
           const NamedTopology &topology, int rank_count, Tally *tally) {
  Set set;
  make_set(&set, options, layout, target, rank_count);
  for (const Schedule &schedule : set.schedules)
    for (const Move &move : schedule.moves) {
      ++tally->messages;
      tally->of_several_ranges += move.range_count > 1;
      if (move.bytes > options.chunk_bytes) set.complaint = "a message is larger than a chunk";
    }
  ++tally->sets;
  for (const int window : {1, 3}) {
    const std::string complaint = set.check(window);
    if (complaint.empty()) continue;
    print_error("%s, %s, %d ranks, topology '%s', layout '%s', elements of %u, chunks of %llu, accumulate %d, %d spare "
                "slots, window %d: %s\n",
                direction_name(options.direction), algorithm_name(options.algorithm), rank_count, topology.name.c_str(),
                layout.name.c_str(), options.element_bytes, static_cast<unsigned long long>(options.chunk_bytes),
                options.accumulate, options.spare_slots, window, complaint.c_str());
    return false;
  }
  return true;
}

// How sums are made.
struct Sums {
  uint32_t element_bytes;
  bool accumulate;
  int spare_slots;
};
constexpr Sums no_sums[] = {{1, false, 2}};
constexpr Sums all_sums[] = {{2, false, 0}, {2, true, 2}, {4, true, 0}};

bool holds_on(ScheduleOptions options, const NamedTopology &topology, int rank_count, const Sums &sums, Tally *tally) {
  options.topology = &topology.topology;
  options.element_bytes = sums.element_bytes;
  options.accumulate = sums.accumulate;
  options.spare_slots = sums.spare_slots;
  for (const uint64_t chunk_bytes : {64u, 192u, 4096u})
    for (const TestLayout &layout : schedule_layouts(rank_count, options.element_bytes, 97)) {
      options.chunk_bytes = chunk_bytes;
      if (!holds(options, layout, layout, topology, rank_count, tally)) return false;
    }
  return true;
}

const std::vector<int> worlds = test::thinned<int>({1, 2, 3, 4, 5, 6, 7, 8, 9, 16});

bool all_hold(Direction direction) {
  for (const Algorithm algorithm : all_algorithms) {
    if (!serves(algorithm, direction)) continue;
    Tally tally;
    ScheduleOptions options;
    options.direction = direction;
    options.algorithm = algorithm;
    for (const int rank_count : worlds)
      for (const NamedTopology &topology : schedule_topologies(rank_count)) {
        const bool gathers = direction == Direction::gather;
        for (const Sums &sums : gathers ? std::span<const Sums>(no_sums) : std::span<const Sums>(all_sums))
          if (!holds_on(options, topology, rank_count, sums, &tally)) return false;
      }
    print_message("# %s %s: %zu sets, %zu messages, %zu of several ranges\n", algorithm_name(algorithm),
                  direction_name(direction), tally.sets, tally.messages, tally.of_several_ranges);
  }
  return true;
}

// From every layout without gaps to every other of as many bytes.
bool reshards_hold() {
  Tally tally;
  for (const int rank_count : worlds)
    for (const uint64_t chunk_bytes : {64u, 4096u})
      for (TestLayout source : schedule_layouts(rank_count, 1, 97))
        for (TestLayout target : schedule_layouts(rank_count, 1, 97)) {
          if (source.alignment != 1 || target.alignment != 1) continue;
          if (source.bytes < target.bytes) source.add(rank_count - 1, target.bytes - source.bytes);
          if (target.bytes < source.bytes) target.add(0, source.bytes - target.bytes);
          ScheduleOptions options;
          options.direction = Direction::reshard;
          options.algorithm = Algorithm::direct;
          options.chunk_bytes = chunk_bytes;
          if (!holds(options, source, target, {"none", {}}, rank_count, &tally)) return false;
        }
  return true;
}

// Merging is worth a test only if it happens: two owners whose small shares go through the same helpers.
bool messages_have_several_ranges() {
  for (const Direction direction : {Direction::gather, Direction::reduce, Direction::ordered_reduce}) {
    TestLayout layout("two owners", 1);
    layout.add(0, 4096);
    layout.add(4, 4096);
    ScheduleOptions options;
    options.direction = direction;
    options.algorithm = Algorithm::spread;
    options.element_bytes = direction == Direction::gather ? 1 : 2;
    options.accumulate = direction != Direction::gather;
    options.chunk_bytes = 4096;
    Tally tally;
    if (!holds(options, layout, layout, {"none", {}}, 8, &tally) || tally.of_several_ranges == 0) return false;
  }
  return true;
}

// What neighbours in memory are is one range: segments of several owners that all go the same way.
bool neighbours_are_one_range() {
  TestLayout layout("four segments", 1);
  for (const int owner : {0, 1, 2, 3}) layout.add(owner, 64);
  ScheduleOptions options;
  options.direction = Direction::gather;
  options.algorithm = Algorithm::spread;
  options.chunk_bytes = 4096;
  Set set;
  set.layout = layout_of(layout, 4, &set.complaint);
  options.layout = &set.layout;
  std::vector<Piece> pieces;
  if (cut_pieces(options, &pieces) != MXS_OK || pieces.size() != 4) return false;
  for (Piece &piece : pieces) piece.owner = piece.helper = 0;  // all come from rank 0, as if relayed
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i].packed = 64 * i;
  const Schedule sender = make_schedule(options, pieces, 0), receiver = make_schedule(options, pieces, 3);
  return receiver.moves.size() == 1 && receiver.ranges.size() == 1 && receiver.ranges[0].bytes == 256 &&
         std::all_of(sender.moves.begin(), sender.moves.end(), [](const Move &move) { return move.range_count == 1; });
}

void gathers(void **) { assert_true(all_hold(Direction::gather)); }
void reduces(void **) { assert_true(all_hold(Direction::reduce)); }
void reduces_in_rank_order(void **) { assert_true(all_hold(Direction::ordered_reduce)); }
void reshards(void **) { assert_true(reshards_hold()); }
void pieces_of_equal_time_travel_together(void **) { assert_true(messages_have_several_ranges()); }
void neighbours_in_memory_are_one_range(void **) { assert_true(neighbours_are_one_range()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(gathers),
      cmocka_unit_test(reduces),
      cmocka_unit_test(reduces_in_rank_order),
      cmocka_unit_test(reshards),
      cmocka_unit_test(pieces_of_equal_time_travel_together),
      cmocka_unit_test(neighbours_in_memory_are_one_range),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
