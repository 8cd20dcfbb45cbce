// SPDX-License-Identifier: Apache-2.0
// Moves from one plan to another, carried out on what each rank holds and compared with what the target plan gives it.
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/values.hpp"
#include "matrixshard/plan.h"
#include "models.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

// Which elements of which tensors a rank holds. An element is told from all others by its tensor's name and offset.
using Held = std::vector<std::map<std::string, std::vector<bool>>>;

Held held_under(const Plan &plan, int rank_count) {
  Held held(static_cast<size_t>(rank_count));
  for (const Placement &piece : plan.placements) {
    const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(piece.tensor)];
    if (piece.element_count == 0) continue;
    std::vector<bool> &elements = held[static_cast<size_t>(piece.owner)][tensor.name];
    elements.resize(tensor.element_count);
    for (uint64_t e = 0; e < piece.element_count; ++e) elements[piece.element_offset + e] = true;
  }
  return held;
}

// "" or what is wrong with a move, seen by itself.
std::string check_move(const Plan &source, const Plan &target, const PlanMove &move,
                       const std::vector<int> &rank_now = {}) {
  const Placement &from = source.placements.at(move.source_placement);
  const Placement &to = target.placements.at(move.target_placement);
  const PlannedTensor &tensor = target.tensors.at(static_cast<size_t>(move.tensor));
  if (source.tensors.at(static_cast<size_t>(from.tensor)).name != tensor.name) return "another tensor's placement";
  if (to.tensor != move.tensor) return "a placement of another tensor";
  const int owner = rank_now.empty() ? from.owner : rank_now.at(static_cast<size_t>(from.owner));
  if (owner != move.source_rank || to.owner != move.target_rank) return "ranks that don't own the placements";
  if (move.source_rank == move.target_rank) return "a move to the same rank";
  if (move.element_count == 0) return "an empty move";
  for (const Placement *piece : {&from, &to})
    if (move.element_offset < piece->element_offset ||
        move.element_offset + move.element_count > piece->element_offset + piece->element_count)
      return "elements outside the placement";
  return move.bytes == move.element_count * dtype_bytes(tensor.dtype) ? "" : "wrong bytes";
}

// Takes each element from its source, who must have it, and gives it to its target, who must not. What is lost comes
// from nowhere.
std::string carry_out(const Plan &target, const std::vector<PlanMove> &moves, Held *held) {
  for (const PlanMove &move : moves) {
    const PlannedTensor &tensor = target.tensors.at(static_cast<size_t>(move.tensor));
    std::vector<bool> lost(tensor.element_count, true);
    std::vector<bool> &from =
        move.source_rank < 0 ? lost : held->at(static_cast<size_t>(move.source_rank))[tensor.name];
    std::vector<bool> &to = held->at(static_cast<size_t>(move.target_rank))[tensor.name];
    from.resize(tensor.element_count);
    to.resize(tensor.element_count);
    for (uint64_t e = move.element_offset; e < move.element_offset + move.element_count; ++e) {
      if (!from[e] || to[e]) return tensor.name + ": an element isn't where it is taken from, or moves twice";
      from[e] = false;
      to[e] = true;
    }
  }
  for (auto &rank : *held)
    std::erase_if(rank, [](const auto &entry) {
      return std::find(entry.second.begin(), entry.second.end(), true) == entry.second.end();
    });
  return "";
}

std::string moves_lead_there(const Plan &source, const Plan &target) {
  std::vector<PlanMove> moves;
  if (plan_moves(source, target, &moves) != MXS_OK) return last_error_text();
  for (size_t index = 0; index < moves.size(); ++index) {
    const std::string complaint = check_move(source, target, moves[index]);
    if (!complaint.empty()) return complaint;
    if (index > 0 && std::pair(moves[index - 1].tensor, moves[index - 1].element_offset) >=
                         std::pair(moves[index].tensor, moves[index].element_offset))
      return "not ascending by tensor and offset";
  }
  const int rank_count = std::max(source.topology.rank_count(), target.topology.rank_count());
  Held held = held_under(source, rank_count);
  const std::string complaint = carry_out(target, moves, &held);
  if (!complaint.empty()) return complaint;
  return held == held_under(target, rank_count) ? "" : "the ranks don't hold what the target plan gives them";
}

// What those held under the source plan who are still there, by the numbers that they have now.
Held held_by_living(const Plan &source, const std::vector<int> &rank_now, int rank_count) {
  const Held before = held_under(source, source.topology.rank_count());
  Held held(static_cast<size_t>(rank_count));
  for (size_t rank = 0; rank < before.size(); ++rank)
    if (rank_now[rank] >= 0) held[static_cast<size_t>(rank_now[rank])] = before[rank];
  return held;
}

std::string moves_lead_there_from(const Plan &source, const Plan &target, const std::vector<int32_t> &source_ranks) {
  std::vector<int> rank_now;
  std::vector<PlanMove> moves;
  const int rank_count = target.topology.rank_count();
  if (renumber_ranks(source_ranks.data(), rank_count, source.topology.rank_count(), "ranks", &rank_now) != MXS_OK ||
      plan_moves_from(source, target, rank_now, &moves) != MXS_OK)
    return last_error_text();
  for (const PlanMove &move : moves) {
    const std::string complaint = check_move(source, target, move, rank_now);
    if (!complaint.empty()) return complaint;
  }
  Held held = held_by_living(source, rank_now, rank_count);
  const std::string complaint = carry_out(target, moves, &held);
  if (!complaint.empty()) return complaint;
  return held == held_under(target, rank_count) ? "" : "the ranks don't hold what the target plan gives them";
}

// Some are lost, some are new, the rest have any numbers.
bool moves_between_renumbered_worlds() {
  for (unsigned seed = 0; seed < test::few(60u); ++seed) {
    std::mt19937 random(seed);
    const int before = 1 + static_cast<int>(random() % 8), after = 1 + static_cast<int>(random() % 8);
    std::vector<int32_t> numbers;
    for (int rank = 0; rank < before; ++rank) numbers.push_back(rank);
    std::shuffle(numbers.begin(), numbers.end(), random);
    numbers.resize(static_cast<size_t>(after), -1);
    for (int32_t &number : numbers)
      if (random() % 4 == 0) number = -1;
    const Model model = random_model(seed, std::min(before, after));
    Plan source, target;
    if (make(model, before, &source) != MXS_OK || make(model, after, &target) != MXS_OK) return false;
    const std::string complaint = moves_lead_there_from(source, target, numbers);
    if (complaint.empty()) continue;
    print_error("seed %u, %d to %d ranks: %s\n", seed, before, after, complaint.c_str());
    return false;
  }
  return true;
}

// Other units, another order, other alignment and flat threshold: nothing of these changes what an element is.
Model rearranged(Model model, unsigned seed) {
  std::mt19937 random(seed);
  for (mxs_tensor &tensor : model.tensors) tensor.unit = 0;
  std::shuffle(model.tensors.begin(), model.tensors.end(), random);
  model.options.unit_count = 0;
  model.options.alignment = 64;
  model.options.flat_bytes = 8192;
  return model;
}

bool leads(const Model &before, int before_ranks, const Model &after, int after_ranks) {
  Plan source, target;
  if (make(before, before_ranks, &source) != MXS_OK || make(after, after_ranks, &target) != MXS_OK) {
    print_error("%s\n", last_error_text());
    return false;
  }
  const std::string complaint = moves_lead_there(source, target);
  if (complaint.empty()) return true;
  print_error("%d to %d ranks: %s\n", before_ranks, after_ranks, complaint.c_str());
  return false;
}

bool moves_between_random_plans() {
  for (const int before : test::thinned<int>({1, 2, 3, 4, 7, 8}))
    for (const int after : test::thinned<int>({1, 2, 3, 4, 7, 8}))
      for (unsigned seed = 0; seed < test::few(6u); ++seed) {
        Model model = random_model(seed, std::min(before, after));  // fixed owners are in both worlds
        const Model other = rearranged(model, seed);
        if (!leads(model, before, model, after) || !leads(model, before, other, after) ||
            !leads(other, before, model, after)) {
          print_error("seed %u\n", seed);
          return false;
        }
      }
  return true;
}

bool moves_when_the_budget_binds() {
  Model model = gpt(3, 64);
  Plan free;
  if (make(model, 4, &free) != MXS_OK) return false;
  Model tight = gpt(3, 64);
  uint64_t all_bytes = 0;
  for (const uint64_t bytes : free.rank_owned_bytes) all_bytes += bytes;
  tight.options.rank_bytes_max = all_bytes / 4 + all_bytes / 20;
  return leads(model, 4, tight, 4) && leads(tight, 4, model, 7);
}

bool equal_plans_have_no_moves() {
  Plan one, two;
  std::vector<PlanMove> moves(1);
  return make(gpt(2, 64), 4, &one) == MXS_OK && make(gpt(2, 64), 4, &two) == MXS_OK &&
         plan_moves(one, two, &moves) == MXS_OK && moves.empty();
}

bool is_mismatch(const Model &one, const Model &two, const char *name) {
  Plan source, target;
  std::vector<PlanMove> moves(3);
  if (make(one, 2, &source) != MXS_OK || make(two, 2, &target) != MXS_OK) return false;
  if (plan_moves(source, target, &moves) == MXS_MISMATCH && std::strstr(last_error_text(), name) && moves.size() == 3)
    return true;
  print_error("no mismatch about %s: %s\n", name, last_error_text());
  return false;
}

bool strangers_are_refused() {
  const auto base = [] {
    Model model;
    model.add("a", {64, 64});
    model.add("b", {300});
    model.add("c", {300});
    return model;
  };
  Model shape = base(), dtype = base(), less = base(), more = base(), renamed = base(), tied = base();
  shape.tensors[1].shape[0] = 301;
  dtype.tensors[0].dtype = MXS_BF16;
  less.tensors.pop_back();
  more.add("d", {1});
  renamed.tensors[1].name = "z";
  tied.tensors[2].tied_to = "b";
  return is_mismatch(base(), shape, "\"b\" has shape (300)") && is_mismatch(base(), dtype, "\"a\" has dtype f32") &&
         is_mismatch(base(), less, "\"c\" is in the source plan only") &&
         is_mismatch(base(), more, "\"d\" is in the target plan only") &&
         is_mismatch(base(), renamed, "\"z\" is in the target plan only") &&
         is_mismatch(base(), tied, "\"c\" is tied to \"\"") && is_mismatch(tied, base(), "\"c\" is tied to \"b\"");
}

bool the_call_tells_what_the_function_finds() {
  Plan source, target;
  if (make(gpt(2, 64), 4, &source) != MXS_OK || make(gpt(2, 64), 3, &target) != MXS_OK) return false;
  std::vector<PlanMove> expected;
  if (plan_moves(source, target, &expected) != MXS_OK || expected.size() < 3) return false;
  const mxs_plan from(std::move(source)), to(std::move(target));
  uint64_t count = 0;
  if (mxs_plan_moves(&from, &to, nullptr, 0, &count) != MXS_OK || count != expected.size()) return false;
  std::vector<mxs_plan_move> moves(count, mxs_plan_move MXS_PLAN_MOVE_INIT);
  if (mxs_plan_moves(&from, &to, moves.data(), 2, &count) != MXS_OK || count != expected.size()) return false;
  if (moves[1].bytes == 0 || moves[2].bytes != 0) return false;
  if (mxs_plan_moves(&from, &to, moves.data(), count, &count) != MXS_OK) return false;
  for (size_t i = 0; i < count; ++i)
    if (moves[i].tensor != expected[i].tensor || moves[i].source_rank != expected[i].source_rank ||
        moves[i].target_rank != expected[i].target_rank ||
        moves[i].source_placement != expected[i].source_placement ||
        moves[i].target_placement != expected[i].target_placement ||
        moves[i].element_offset != expected[i].element_offset ||
        moves[i].element_count != expected[i].element_count || moves[i].bytes != expected[i].bytes)
      return false;
  moves[0].size = 8;
  uint64_t untouched = 7;
  return mxs_plan_moves(nullptr, &to, moves.data(), 1, &untouched) == MXS_INVALID_ARGUMENT &&
         mxs_plan_moves(&from, nullptr, moves.data(), 1, &untouched) == MXS_INVALID_ARGUMENT &&
         mxs_plan_moves(&from, &to, nullptr, 1, &untouched) == MXS_INVALID_ARGUMENT &&
         mxs_plan_moves(&from, &to, nullptr, 0, nullptr) == MXS_INVALID_ARGUMENT &&
         mxs_plan_moves(&from, &to, moves.data(), 1, &untouched) == MXS_INVALID_ARGUMENT &&
         std::strstr(last_error_text(), "moves->size is 8") && untouched == 7;
}

bool refuses(const mxs_plan *source, const mxs_plan *target, std::vector<int32_t> numbers, const char *word) {
  uint64_t untouched = 7;
  return mxs_plan_moves_from(source, target, numbers.data(), nullptr, 0, &untouched) == MXS_INVALID_ARGUMENT &&
         std::strstr(last_error_text(), word) && untouched == 7;
}

// Of four, rank 1 is lost: by hand, and by numbers.
bool the_call_tells_what_is_lost() {
  Plan four, three;
  if (make(gpt(2, 64), 4, &four) != MXS_OK || make(gpt(2, 64), 3, &three) != MXS_OK) return false;
  const uint64_t lost_bytes = [&] {
    uint64_t bytes = 0;
    for (const Placement &piece : four.placements)
      if (piece.owner == 1)
        bytes += piece.element_count * dtype_bytes(four.tensors[static_cast<size_t>(piece.tensor)].dtype);
    return bytes;
  }();
  const mxs_plan source(std::move(four)), target(std::move(three));
  const int32_t numbers[] = {0, 2, 3};
  uint64_t count = 0;
  if (mxs_plan_moves_from(&source, &target, numbers, nullptr, 0, &count) != MXS_OK) return false;
  std::vector<mxs_plan_move> moves(count, mxs_plan_move MXS_PLAN_MOVE_INIT);
  if (mxs_plan_moves_from(&source, &target, numbers, moves.data(), count, &count) != MXS_OK) return false;
  uint64_t bytes = 0;
  for (const mxs_plan_move &move : moves) {
    if (move.source_rank < -1 || move.source_rank > 2 || move.source_rank == move.target_rank) return false;
    if (move.source_rank == -1) bytes += move.bytes;
  }
  // Without numbers rank 3 is the one that is gone.
  uint64_t plain_count = 0;
  if (mxs_plan_moves_from(&source, &target, nullptr, nullptr, 0, &plain_count) != MXS_OK) return false;
  std::vector<mxs_plan_move> plain(plain_count, mxs_plan_move MXS_PLAN_MOVE_INIT);
  if (mxs_plan_moves_from(&source, &target, nullptr, plain.data(), plain_count, &plain_count) != MXS_OK) return false;
  for (const mxs_plan_move &move : plain)
    if (move.source_rank > 2) return false;
  return bytes == lost_bytes && refuses(&source, &target, {0, 2, 4}, "source_ranks[2] is 4") &&
         refuses(&source, &target, {0, -2, 3}, "source_ranks[1] is -2") &&
         refuses(&source, &target, {3, 1, 3}, "source_ranks[0] and [2] are both 3") &&
         mxs_plan_moves_from(nullptr, &target, numbers, nullptr, 0, &count) == MXS_INVALID_ARGUMENT &&
         mxs_plan_moves_from(&source, &target, numbers, nullptr, 0, nullptr) == MXS_INVALID_ARGUMENT;
}

void moves_know_ranks_by_other_numbers_and_lost_ones(void **) { assert_true(moves_between_renumbered_worlds()); }
void the_call_says_what_is_lost(void **) { assert_true(the_call_tells_what_is_lost()); }
void moves_lead_from_any_plan_to_any_other_in_every_world(void **) { assert_true(moves_between_random_plans()); }
void moves_lead_into_a_tighter_budget_and_out_of_it(void **) { assert_true(moves_when_the_budget_binds()); }
void equal_plans_need_no_moves(void **) { assert_true(equal_plans_have_no_moves()); }
void plans_of_other_tensors_are_refused_by_name(void **) { assert_true(strangers_are_refused()); }
void the_call_gives_what_there_is_room_for(void **) { assert_true(the_call_tells_what_the_function_finds()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(moves_lead_from_any_plan_to_any_other_in_every_world),
      cmocka_unit_test(moves_lead_into_a_tighter_budget_and_out_of_it),
      cmocka_unit_test(equal_plans_need_no_moves),
      cmocka_unit_test(plans_of_other_tensors_are_refused_by_name),
      cmocka_unit_test(the_call_gives_what_there_is_room_for),
      cmocka_unit_test(moves_know_ranks_by_other_numbers_and_lost_ones),
      cmocka_unit_test(the_call_says_what_is_lost),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
