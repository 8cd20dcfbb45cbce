// SPDX-License-Identifier: Apache-2.0
// The checker can fail: schedules are damaged in many ways, and it must complain about each.
#include <algorithm>

#include "schedules.hpp"

#include "support/cmocka_all.h"

using namespace mxs;

namespace {

constexpr int rank_count = 4;

Set good_set(Direction direction, Algorithm algorithm) {
  TestLayout layout("two owners", 1);
  layout.add(0, 4 * 64);
  layout.add(2, 4 * 96);
  layout.add(0, 4 * 40);
  ScheduleOptions options;
  options.direction = direction;
  options.algorithm = algorithm;
  options.element_bytes = direction == Direction::gather ? 1 : 2;
  options.accumulate = true;
  options.chunk_bytes = 64;
  options.spare_slots = 0;
  Set set;
  make_set(&set, options, layout, layout, rank_count);
  return set;
}

// Messages of several ranges in slots: all own small segments, which meet on their ways around the ring.
Set merged_ring() {
  TestLayout layout("many segments", 1);
  for (int turn = 0; turn < 5; ++turn)
    for (int rank = 0; rank < rank_count; ++rank) layout.add(rank, 64);
  ScheduleOptions options;
  options.direction = Direction::reduce;
  options.algorithm = Algorithm::chain;
  options.element_bytes = 2;
  options.accumulate = true;
  options.chunk_bytes = 192;
  options.spare_slots = 0;
  Set set;
  make_set(&set, options, layout, layout, rank_count);
  return set;
}

// Two owners whose shares go through the same helpers.
Set merged_set(Direction direction) {
  TestLayout layout("two owners", 1);
  layout.add(0, 4 * 512);
  layout.add(4, 4 * 512);
  layout.add(0, 4 * 100);
  ScheduleOptions options;
  options.direction = direction;
  options.algorithm = Algorithm::spread;
  options.element_bytes = direction == Direction::gather ? 1 : 2;
  options.accumulate = true;
  options.chunk_bytes = 192;
  options.spare_slots = 0;
  Set set;
  make_set(&set, options, layout, layout, 8);
  return set;
}

// Damages a good set; the checker must have liked it before, and must say `expected` (part of a sentence) after.
template <class Damage>
bool complains(Set set, const char *expected, Damage &&damage) {
  const ScheduleOptions options = set.schedules.empty() ? ScheduleOptions() : set.schedules[0].options;
  const std::string before = set.check(2);
  if (!before.empty()) {
    print_error("undamaged, %s %s: %s\n", algorithm_name(options.algorithm), direction_name(options.direction),
                before.c_str());
    return false;
  }
  if (!damage(set)) {
    print_error("there was nothing to damage\n");
    return false;
  }
  const std::string after = set.check(2);
  if (after.find(expected) != std::string::npos) return true;
  print_error("%s %s: expected '%s', got '%s'\n", algorithm_name(options.algorithm),
              direction_name(options.direction), expected, after.c_str());
  return false;
}
template <class Damage>
bool complains(Direction direction, Algorithm algorithm, const char *expected, Damage &&damage) {
  return complains(good_set(direction, algorithm), expected, damage);
}

// Removes a move; what waited for it waits for nothing.
void remove_move(Schedule *schedule, uint32_t index) {
  schedule->moves.erase(schedule->moves.begin() + index);
  std::vector<uint32_t> dependencies;
  for (Move &move : schedule->moves) {
    std::vector<uint32_t> kept;
    for (const uint32_t cause : schedule->dependencies_of(move))
      if (cause != index) kept.push_back(cause > index ? cause - 1 : cause);
    move.first_dependency = static_cast<uint32_t>(dependencies.size());
    move.dependency_count = static_cast<uint32_t>(kept.size());
    dependencies.insert(dependencies.end(), kept.begin(), kept.end());
  }
  schedule->dependencies = dependencies;
}

template <class Test>
Move *find_move(Schedule *schedule, Test &&test) {
  const auto found = std::find_if(schedule->moves.begin(), schedule->moves.end(), test);
  return found == schedule->moves.end() ? nullptr : &*found;
}

// The first of a move.
Range &range_of(Schedule *schedule, const Move &move) { return schedule->ranges[move.first_range]; }

uint32_t index_of(const Schedule &schedule, const Move *move) {
  return static_cast<uint32_t>(move - schedule.moves.data());
}

bool an_edge_dropped_at_one_end() {
  return complains(Direction::gather, Algorithm::chain, "which receives", [](Set &set) {
    Schedule &schedule = set.schedules[1];
    Move *send = find_move(&schedule, [](const Move &move) { return move.kind == MoveKind::send; });
    if (send) remove_move(&schedule, index_of(schedule, send));
    return send != nullptr;
  });
}

// At both ends, at the end of the ring, so that the channel agrees and nobody passes it on.
template <class Set>
bool drop_last_edge(Set &set) {
  Schedule &schedule = set.schedules[3];
  Move *receive = find_move(&schedule, [](const Move &move) { return move.kind == MoveKind::receive; });
  if (!receive) return false;
  const Move dropped = *receive;
  Schedule &other = set.schedules[static_cast<size_t>(dropped.peer)];
  Move *send = find_move(&other, [&](const Move &move) {
    return move.kind == MoveKind::send && move.peer == 3 &&
           range_of(&other, move).offset == range_of(&schedule, dropped).offset;
  });
  if (!send) return false;
  remove_move(&schedule, index_of(schedule, receive));
  remove_move(&other, index_of(other, send));
  return true;
}
bool an_edge_dropped_at_both_ends() {
  return complains(Direction::gather, Algorithm::flat, "arrived 0 times", drop_last_edge<Set>);
}

bool an_edge_doubled() {
  return complains(Direction::gather, Algorithm::flat, "arrived 2 times", [](Set &set) {
    for (const MoveKind kind : {MoveKind::send, MoveKind::receive}) {
      const int rank = kind == MoveKind::send ? 0 : 3, peer = 3 - rank;
      Schedule &schedule = set.schedules[static_cast<size_t>(rank)];
      const Move *move = find_move(&schedule, [&](const Move &m) { return m.kind == kind && m.peer == peer; });
      if (!move) return false;
      schedule.moves.push_back(Move(*move));
    }
    return true;
  });
}

bool a_gradient_added_twice() {
  return complains(Direction::reduce, Algorithm::flat, "gradients were added", [](Set &set) {
    Move *receive = find_move(&set.schedules[0], [](const Move &move) { return move.kind == MoveKind::receive; });
    if (receive) range_of(&set.schedules[0], *receive).flags |= move_own_after;
    return receive != nullptr;
  });
}

bool an_accumulator_forgotten() {
  return complains(Direction::ordered_reduce, Algorithm::flat, "what the target held", [](Set &set) {
    Move *receive = find_move(&set.schedules[0], [](const Move &move) { return move.kind == MoveKind::receive; });
    if (receive) range_of(&set.schedules[0], *receive).flags |= move_starts;
    return receive != nullptr;
  });
}

bool keys_swapped_at_one_end() {
  return complains(Direction::gather, Algorithm::flat, "received", [](Set &set) {
    std::vector<Move> &moves = set.schedules[3].moves;
    for (size_t i = 0; i < moves.size(); ++i)
      for (size_t j = i + 1; j < moves.size(); ++j)
        if (moves[i].kind == MoveKind::receive && moves[j].kind == MoveKind::receive &&
            moves[i].peer == moves[j].peer) {
          std::swap(moves[i], moves[j]);
          return true;
        }
    return false;
  });
}

bool rank_order_broken() {
  return complains(Direction::ordered_reduce, Algorithm::flat, "another order", [](Set &set) {
    // Rank 0 owns and helps: its messages are those of 1, 2, 3; let it take 2 before 1.
    std::vector<Move> &moves = set.schedules[0].moves;
    for (size_t i = 0; i + 1 < moves.size(); ++i)
      if (moves[i].kind == MoveKind::receive && moves[i].peer == 1)
        for (size_t j = i + 1; j < moves.size(); ++j)
          if (moves[j].kind == MoveKind::receive && moves[j].peer == 2 &&
              range_of(&set.schedules[0], moves[j]).offset == range_of(&set.schedules[0], moves[i]).offset) {
            std::swap(moves[i].peer, moves[j].peer);
            return true;
          }
    return false;
  });
}

// Slot reuse without waiting for the send that still reads it.
bool a_slot_reused_too_early() {
  return complains(Direction::reduce, Algorithm::chain, "neither waits", [](Set &set) {
    for (Schedule &schedule : set.schedules)
      for (Move &move : schedule.moves)
        if (range_of(&schedule, move).place == Place::slot && (range_of(&schedule, move).flags & move_starts) &&
            move.dependency_count > 0) {
          move.dependency_count = 0;
          return true;
        }
    return false;
  });
}

bool a_relay_that_does_not_wait() {
  return complains(Direction::gather, Algorithm::chain, "neither waits", [](Set &set) {
    Move *send = find_move(&set.schedules[1], [&](const Move &move) {
      return move.kind == MoveKind::send && range_of(&set.schedules[1], move).place == Place::target;
    });
    if (send) send->dependency_count = 0;
    return send != nullptr;
  });
}

bool a_range_that_straddles() {
  return complains(Direction::gather, Algorithm::flat, "straddles", [](Set &set) {
    for (Schedule &schedule : set.schedules)
      for (Move &move : schedule.moves) {
        Range &range = range_of(&schedule, move);
        if (range.offset == 192) range.bytes = move.bytes = 128;  // the first segment ends at 256
      }
    return true;
  });
}

bool a_packed_place_that_is_wrong() {
  return complains(Direction::reduce, Algorithm::flat, "wrong place", [](Set &set) {
    Move *receive = find_move(&set.schedules[2], [&](const Move &move) {
      return range_of(&set.schedules[2], move).flags & move_into_target;
    });
    if (receive) range_of(&set.schedules[2], *receive).packed += 64;
    return receive != nullptr;
  });
}

bool a_dependency_on_the_future() {
  return complains(Direction::gather, Algorithm::chain, "later move", [](Set &set) {
    Schedule &schedule = set.schedules[1];
    schedule.dependencies.push_back(static_cast<uint32_t>(schedule.moves.size() - 1));
    schedule.moves[0].dependency_count = 1;
    schedule.moves[0].first_dependency = static_cast<uint32_t>(schedule.dependencies.size() - 1);
    return true;
  });
}

// Every rank's sends wait for its last receive: round the ring, each waits for the one before it.
bool a_deadlock() {
  return complains(Direction::gather, Algorithm::chain, "deadlock", [](Set &set) {
    for (Schedule &schedule : set.schedules) {
      const auto rank_of = [](const Move &move) {
        return move.kind == MoveKind::local ? 0 : move.kind == MoveKind::receive ? 1 : 2;
      };
      std::stable_sort(schedule.moves.begin(), schedule.moves.end(),
                       [&](const Move &a, const Move &b) { return rank_of(a) < rank_of(b); });
      uint32_t first_send = 0;
      while (schedule.moves[first_send].kind != MoveKind::send) ++first_send;
      schedule.dependencies.assign(1, first_send - 1);
      for (Move &move : schedule.moves) {
        move.first_dependency = 0;
        move.dependency_count = move.kind == MoveKind::send ? 1 : 0;
      }
    }
    return true;
  });
}

// ---- messages of several ranges ----

// The first move of any rank that the test likes.
template <class Test>
Move *find_anywhere(Set *set, Schedule **schedule, Test &&test) {
  for (Schedule &each : set->schedules)
    for (Move &move : each.moves)
      if (test(each, move)) {
        *schedule = &each;
        return &move;
      }
  return nullptr;
}

bool ranges_swapped_in_a_message() {
  return complains(merged_set(Direction::gather), "is sent where offset", [](Set &set) {
    Schedule *schedule = nullptr;
    const Move *send = find_anywhere(&set, &schedule, [](const Schedule &, const Move &move) {
      return move.kind == MoveKind::send && move.range_count > 1;
    });
    if (send) std::swap(schedule->ranges[send->first_range], schedule->ranges[send->first_range + 1]);
    return send != nullptr;
  });
}

// The receiver takes one message for two.
bool a_message_merged_at_one_end() {
  return complains(merged_set(Direction::gather), "which receives", [](Set &set) {
    Schedule *schedule = nullptr;
    Move *receive = find_anywhere(&set, &schedule, [](const Schedule &, const Move &move) {
      return move.kind == MoveKind::receive && move.range_count > 1;
    });
    if (!receive) return false;
    Move second = *receive;
    second.range_count = static_cast<uint16_t>(second.range_count - 1);
    ++second.first_range;
    receive->range_count = 1;
    receive->bytes = schedule->ranges[receive->first_range].bytes;
    second.bytes -= receive->bytes;
    const uint32_t index = index_of(*schedule, receive);
    schedule->moves.insert(schedule->moves.begin() + index + 1, second);
    for (uint32_t &cause : schedule->dependencies) cause += cause > index;
    return true;
  });
}

// As many messages at both ends, but a range moved from one to the next.
bool messages_merged_in_two_ways() {
  return complains(merged_set(Direction::gather), "bytes of elements are sent", [](Set &set) {
    for (Schedule &schedule : set.schedules)
      for (Move &first : schedule.moves)
        for (Move &second : schedule.moves) {
          const bool neighbours = first.first_range + first.range_count == second.first_range;
          if (first.kind != MoveKind::receive || second.kind != MoveKind::receive || first.peer != second.peer ||
              !neighbours || first.range_count < 2)
            continue;
          const uint32_t bytes = schedule.ranges[--second.first_range].bytes;
          --first.range_count;
          ++second.range_count;
          first.bytes -= bytes;
          second.bytes += bytes;
          return true;
        }
    return false;
  });
}

bool a_dependency_of_a_second_range_forgotten() {
  return complains(merged_set(Direction::gather), "neither waits", [](Set &set) {
    Schedule *schedule = nullptr;
    Move *send = find_anywhere(&set, &schedule, [](const Schedule &, const Move &move) {
      return move.kind == MoveKind::send && move.range_count > 1 && move.dependency_count > 1;
    });
    if (send) --send->dependency_count;
    return send != nullptr;
  });
}

bool a_slot_of_a_second_range_reused_too_early() {
  return complains(merged_ring(), "neither waits", [](Set &set) {
    Schedule *schedule = nullptr;
    Move *receive = find_anywhere(&set, &schedule, [](const Schedule &each, const Move &move) {
      return move.kind == MoveKind::receive && move.range_count > 1 && move.dependency_count > 0 &&
             (each.ranges[move.first_range + 1].flags & move_starts);
    });
    if (receive) --receive->dependency_count;
    return receive != nullptr;
  });
}

bool two_ranges_in_one_slot() {
  return complains(merged_ring(), "two ranges both use slot", [](Set &set) {
    Schedule *schedule = nullptr;
    const Move *receive = find_anywhere(&set, &schedule, [](const Schedule &each, const Move &move) {
      return move.kind == MoveKind::receive && move.range_count > 1 &&
             each.ranges[move.first_range].place == Place::slot &&
             each.ranges[move.first_range + 1].place == Place::slot;
    });
    if (receive) schedule->ranges[receive->first_range + 1].slot = schedule->ranges[receive->first_range].slot;
    return receive != nullptr;
  });
}

// The last byte of a range, at both ends of a message.
bool a_byte_dropped() {
  return complains(merged_set(Direction::gather), "arrived 0 times", [](Set &set) {
    Schedule *schedule = nullptr;
    Move *receive = find_anywhere(&set, &schedule, [](const Schedule &each, const Move &move) {
      return move.kind == MoveKind::receive && move.range_count > 1 && each.rank == 7;
    });
    if (!receive) return false;
    const Range dropped = range_of(schedule, *receive);
    Schedule &other = set.schedules[static_cast<size_t>(receive->peer)];
    Move *send = find_move(&other, [&](const Move &move) {
      return move.kind == MoveKind::send && move.peer == 7 && range_of(&other, move).offset == dropped.offset;
    });
    if (!send || range_of(&other, *send).bytes != dropped.bytes) return false;
    --range_of(schedule, *receive).bytes;
    --range_of(&other, *send).bytes;
    --receive->bytes;
    --send->bytes;
    return true;
  });
}

bool a_message_that_counts_wrong() {
  return complains(merged_set(Direction::gather), "its ranges", [](Set &set) {
    Schedule *schedule = nullptr;
    Move *send = find_anywhere(&set, &schedule,
                               [](const Schedule &, const Move &move) { return move.range_count > 1; });
    if (send) send->range_count = static_cast<uint16_t>(send->range_count - 1);
    return send != nullptr;
  });
}

bool a_gap_that_is_sent() {
  return complains(merged_set(Direction::gather), "touches a gap", [](Set &set) {
    Schedule &schedule = set.schedules[7];
    Move *receive = find_move(&schedule, [&](const Move &move) {
      return range_of(&schedule, move).offset + range_of(&schedule, move).bytes == set.layout.bytes;
    });
    if (!receive) return false;
    range_of(&schedule, *receive).bytes += 64;
    receive->bytes += 64;
    return true;
  });
}

// A generator that is wrong everywhere alike: a chunk goes on into the segment of the next owner, for whom the rest of
// the piece is missing. A checker of pieces would be content.
bool a_chunk_that_straddles_owners(Direction direction, Algorithm algorithm, const char *expected) {
  return complains(good_set(direction, algorithm), expected, [&](Set &set) {
    ScheduleOptions options = set.schedules[0].options;
    options.layout = &set.layout;
    std::vector<Piece> pieces;
    if (cut_pieces(options, &pieces) != MXS_OK) return false;
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      if (pieces[i].owner == pieces[i + 1].owner) continue;
      pieces[i].bytes += pieces[i + 1].bytes;
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      for (Schedule &schedule : set.schedules) schedule = make_schedule(options, pieces, schedule.rank);
      return true;
    }
    return false;
  });
}

// ---- rank order around a chain ----

bool a_chain_that_skips_a_rank() {
  return complains(Direction::ordered_reduce, Algorithm::chain, "gradients were added", [](Set &set) {
    Move *receive = find_move(&set.schedules[2], [](const Move &move) { return move.kind == MoveKind::receive; });
    if (receive) range_of(&set.schedules[2], *receive).flags &= static_cast<uint8_t>(~move_own_after);
    return receive != nullptr;
  });
}

bool a_chain_that_adds_before_its_turn() {
  return complains(Direction::ordered_reduce, Algorithm::chain, "another order", [](Set &set) {
    for (Schedule &schedule : set.schedules)
      for (const Move &move : schedule.moves) {
        Range &range = range_of(&schedule, move);
        if (move.kind != MoveKind::receive || !(range.flags & move_own_after) || schedule.rank != 2) continue;
        range.flags = move_starts | move_own_before;  // own + sum instead of sum + own
        return true;
      }
    return false;
  });
}

// The sum comes back and is written over an accumulator that may still be on its way out.
bool an_accumulator_overwritten() {
  return complains(Direction::ordered_reduce, Algorithm::chain, "neither waits", [](Set &set) {
    Schedule &schedule = set.schedules[2];
    Move *result = find_move(&schedule, [&](const Move &move) {
      return move.kind == MoveKind::receive && range_of(&schedule, move).place == Place::target;
    });
    if (result) result->dependency_count = 0;
    return result != nullptr;
  });
}

bool a_schedule_missing() {
  Set set = good_set(Direction::gather, Algorithm::flat);
  set.schedules.pop_back();
  return set.check(1) == "3 schedules for 4 ranks";
}

void dropped_at_one_end(void **) { assert_true(an_edge_dropped_at_one_end()); }
void dropped_at_both_ends(void **) { assert_true(an_edge_dropped_at_both_ends()); }
void doubled(void **) { assert_true(an_edge_doubled()); }
void added_twice(void **) { assert_true(a_gradient_added_twice()); }
void accumulator_forgotten(void **) { assert_true(an_accumulator_forgotten()); }
void swapped_keys(void **) { assert_true(keys_swapped_at_one_end()); }
void broken_rank_order(void **) { assert_true(rank_order_broken()); }
void slot_reused_too_early(void **) { assert_true(a_slot_reused_too_early()); }
void relay_that_does_not_wait(void **) { assert_true(a_relay_that_does_not_wait()); }
void straddling_range(void **) { assert_true(a_range_that_straddles()); }
void wrong_packed_place(void **) { assert_true(a_packed_place_that_is_wrong()); }
void dependency_on_the_future(void **) { assert_true(a_dependency_on_the_future()); }
void deadlock(void **) { assert_true(a_deadlock()); }
void swapped_ranges(void **) { assert_true(ranges_swapped_in_a_message()); }
void merged_at_one_end(void **) { assert_true(a_message_merged_at_one_end()); }
void merged_in_two_ways(void **) { assert_true(messages_merged_in_two_ways()); }
void forgotten_dependency_of_second_range(void **) { assert_true(a_dependency_of_a_second_range_forgotten()); }
void second_slot_reused_too_early(void **) { assert_true(a_slot_of_a_second_range_reused_too_early()); }
void two_ranges_share_a_slot(void **) { assert_true(two_ranges_in_one_slot()); }
void dropped_byte(void **) { assert_true(a_byte_dropped()); }
void miscounted_message(void **) { assert_true(a_message_that_counts_wrong()); }
void sent_gap(void **) { assert_true(a_gap_that_is_sent()); }
void chunk_that_straddles_owners(void **) {
  assert_true(a_chunk_that_straddles_owners(Direction::gather, Algorithm::flat, "straddles"));
  assert_true(a_chunk_that_straddles_owners(Direction::gather, Algorithm::chain, "straddles"));
  assert_true(a_chunk_that_straddles_owners(Direction::reduce, Algorithm::flat, "straddles"));
  assert_true(a_chunk_that_straddles_owners(Direction::ordered_reduce, Algorithm::spread, "straddles"));
}
void chain_skips_a_rank(void **) { assert_true(a_chain_that_skips_a_rank()); }
void chain_adds_before_its_turn(void **) { assert_true(a_chain_that_adds_before_its_turn()); }
void overwritten_accumulator(void **) { assert_true(an_accumulator_overwritten()); }
void missing_schedule(void **) { assert_true(a_schedule_missing()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(dropped_at_one_end),
      cmocka_unit_test(dropped_at_both_ends),
      cmocka_unit_test(doubled),
      cmocka_unit_test(added_twice),
      cmocka_unit_test(accumulator_forgotten),
      cmocka_unit_test(swapped_keys),
      cmocka_unit_test(broken_rank_order),
      cmocka_unit_test(slot_reused_too_early),
      cmocka_unit_test(relay_that_does_not_wait),
      cmocka_unit_test(straddling_range),
      cmocka_unit_test(wrong_packed_place),
      cmocka_unit_test(dependency_on_the_future),
      cmocka_unit_test(deadlock),
      cmocka_unit_test(swapped_ranges),
      cmocka_unit_test(merged_at_one_end),
      cmocka_unit_test(merged_in_two_ways),
      cmocka_unit_test(forgotten_dependency_of_second_range),
      cmocka_unit_test(second_slot_reused_too_early),
      cmocka_unit_test(two_ranges_share_a_slot),
      cmocka_unit_test(dropped_byte),
      cmocka_unit_test(miscounted_message),
      cmocka_unit_test(sent_gap),
      cmocka_unit_test(chunk_that_straddles_owners),
      cmocka_unit_test(chain_skips_a_rank),
      cmocka_unit_test(chain_adds_before_its_turn),
      cmocka_unit_test(overwritten_accumulator),
      cmocka_unit_test(missing_schedule),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
