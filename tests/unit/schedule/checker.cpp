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

// Damages a good set; the checker must have liked it before, and must say `expected` (part of a sentence) after.
template <class Damage>
bool complains(Direction direction, Algorithm algorithm, const char *expected, Damage &&damage) {
  Set set = good_set(direction, algorithm);
  const std::string before = set.check(2);
  if (!before.empty()) {
    print_error("undamaged, %s %s: %s\n", algorithm_name(algorithm), direction_name(direction), before.c_str());
    return false;
  }
  if (!damage(set)) {
    print_error("there was nothing to damage\n");
    return false;
  }
  const std::string after = set.check(2);
  if (after.find(expected) != std::string::npos) return true;
  print_error("%s %s: expected '%s', got '%s'\n", algorithm_name(algorithm), direction_name(direction), expected,
              after.c_str());
  return false;
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
void missing_schedule(void **) { assert_true(a_schedule_missing()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(dropped_at_one_end),     cmocka_unit_test(dropped_at_both_ends),
      cmocka_unit_test(doubled),                cmocka_unit_test(added_twice),
      cmocka_unit_test(accumulator_forgotten),  cmocka_unit_test(swapped_keys),
      cmocka_unit_test(broken_rank_order),      cmocka_unit_test(slot_reused_too_early),
      cmocka_unit_test(relay_that_does_not_wait), cmocka_unit_test(straddling_range),
      cmocka_unit_test(wrong_packed_place),     cmocka_unit_test(dependency_on_the_future),
      cmocka_unit_test(deadlock),               cmocka_unit_test(missing_schedule),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
