// SPDX-License-Identifier: Apache-2.0
// Who gets what: balance, budgets, fixed owners, tails; and the costs that all of it is weighed by.
#include <cmath>

#include "models.hpp"
#include "plan/stages.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

double worst_flops(const Plan &plan) {
  return *std::max_element(plan.rank_step_flops.begin(), plan.rank_step_flops.end());
}

uint64_t worst_bytes(const Plan &plan) {
  return *std::max_element(plan.rank_owned_bytes.begin(), plan.rank_owned_bytes.end());
}

// The best possible worst rank, by trying all placements.
double best_worst_flops(const Plan &plan, size_t next, std::vector<double> *loads) {
  if (next == plan.placements.size()) return *std::max_element(loads->begin(), loads->end());
  double best = INFINITY;
  for (double &load : *loads) {
    const double flops = step_flops(MXS_RULE_MUON, plan.placements[next].shape), before = load;
    load += flops;
    best = std::min(best, best_worst_flops(plan, next + 1, loads));
    load = before;
    if (before == 0) break;  // further idle ranks are all alike
  }
  return best;
}

bool the_worst_rank_is_within_graham() {
  std::mt19937 random(7);
  const auto side = [&random] { return static_cast<int64_t>(8 + random() % 100); };
  for (int rank_count : {1, 2, 3})
    for (int repeat = 0; repeat < test::few(30); ++repeat) {
      Model model;
      for (int index = 0; index < 8; ++index)
        model.add(numbered("m", index), {side(), side()});
      Plan plan;
      if (make(model, rank_count, &plan) != MXS_OK) return false;
      std::vector<double> loads(static_cast<size_t>(rank_count), 0);
      const double best = best_worst_flops(plan, 0, &loads);
      if (worst_flops(plan) > best * (4.0 / 3.0)) {
        print_error("%d ranks: %g flops, %g would do\n", rank_count, worst_flops(plan), best);
        return false;
      }
    }
  return true;
}

bool equal_matrices_are_dealt_equally() {
  for (const int rank_count : {1, 2, 3, 4, 7, 8, 64}) {
    Model model;
    for (int index = 0; index < 3 * rank_count; ++index) model.add(numbered("m", index), {64, 64});
    Plan plan;
    if (make(model, rank_count, &plan) != MXS_OK) return false;
    for (int rank = 0; rank < rank_count; ++rank)
      if (rank_load(plan, rank).matrix_count != 3) return false;
  }
  return true;
}

bool cost_counts_before_bytes() {
  // One square matrix costs more than two thin ones that have twice its bytes each.
  Model model;
  model.add("square", {256, 256});
  model.add("thin0", {8, 16384});
  model.add("thin1", {8, 16384});
  Plan plan;
  return make(model, 2, &plan) == MXS_OK && plan.placements[0].owner == 0 && plan.placements[1].owner == 1 &&
         plan.placements[2].owner == 1;
}

bool more_ranks_than_matrices_leave_some_idle() {
  Model model;
  for (int index = 0; index < 3; ++index) model.add(numbered("m", index), {16, 16}, index);
  Plan plan;
  if (make(model, 64, &plan) != MXS_OK || !check_plan(plan).empty()) return false;
  int idle = 0;
  for (const uint64_t bytes : plan.rank_owned_bytes) idle += bytes == 0;
  return idle == 61;
}

bool fixed_owners_are_obeyed() {
  Model model = gpt(2, 64);
  for (mxs_tensor &tensor : model.tensors)
    if (std::strstr(tensor.name, "up") || std::strstr(tensor.name, "norm") || std::strstr(tensor.name, "qkv"))
      tensor.fixed_owner = MXS_FIXED_OWNER(5);
  Plan plan;
  if (make(model, 7, &plan) != MXS_OK || !check_plan(plan).empty()) return false;
  for (const Placement &piece : plan.placements) {
    const mxs_tensor &given = model.tensors[static_cast<size_t>(piece.tensor)];
    if (given.fixed_owner && piece.owner != 5) return false;
    // The rank is loaded already, so that the planner gives it no other matrix.
    if (!given.fixed_owner && plan.tensors[static_cast<size_t>(piece.tensor)].rule == MXS_RULE_MUON && piece.owner == 5)
      return false;
  }
  return true;
}

bool tails_of_a_unit_stay_together() {
  const Model model = gpt(6, 64);
  Plan plan;
  if (make(model, 4, &plan) != MXS_OK) return false;
  std::vector<int> owner_of_unit(plan.units.size(), -1);
  std::vector<int> tails_of_rank(4, 0);
  for (const Placement &piece : plan.placements) {
    if (plan.tensors[static_cast<size_t>(piece.tensor)].role != MXS_ROLE_TAIL) continue;
    int &owner = owner_of_unit[static_cast<size_t>(piece.unit)];
    if (owner < 0) ++tails_of_rank[static_cast<size_t>(piece.owner)];
    if (owner >= 0 && owner != piece.owner) return false;
    owner = piece.owner;
  }
  return true;
}

bool external_matrices_are_balanced_by_bytes() {
  Model model;
  model.add("muon", {512, 512});
  for (int index = 0; index < 40; ++index) model.add(numbered("x", index), {100, 100}, 0, MXS_RULE_EXTERNAL);
  Plan plan;
  if (make(model, 4, &plan) != MXS_OK) return false;
  const auto [least, most] = std::minmax_element(plan.rank_owned_bytes.begin(), plan.rank_owned_bytes.end());
  return *most <= uint64_t{512} * 512 * 12 + 100 * 100 * 8 && *least > 0 && rank_load(plan, 0).step_flops > 0;
}

bool a_budget_is_kept_where_cost_alone_would_break_it() {
  // By cost rank 0 takes the square and the others the thin ones, three times its bytes.
  Model model;
  model.options.memory_bytes_per_second = uint64_t{1} << 62;  // products alone count
  model.options.search_moves_max = 1;                         // the search would keep it anyway
  model.add("square", {256, 256});
  for (int index = 0; index < 4; ++index) model.add(numbered("thin", index), {8, 8192});
  Plan plan;
  if (make(model, 2, &plan) != MXS_OK || worst_bytes(plan) != uint64_t{4} * 65536 * 12) return false;
  model.options.rank_bytes_max = uint64_t{3} * 65536 * 12;
  if (make(model, 2, &plan) != MXS_OK || !check_plan(plan).empty()) return false;
  return worst_bytes(plan) == uint64_t{3} * 65536 * 12;
}

bool too_small_a_budget_names_the_worst_rank() {
  Model model = gpt(2, 64);
  Plan plan;
  if (make(model, 3, &plan) != MXS_OK) return false;
  model.options.rank_bytes_max = 1000;
  plan.fingerprint = 77;
  if (make(model, 3, &plan) != MXS_OVER_BUDGET || plan.fingerprint != 77) return false;
  if (!std::strstr(last_error_text(), "rank ") || !std::strstr(last_error_text(), "1000 bytes")) return false;
  Model fixed;
  fixed.add("a", {64, 64}).fixed_owner = MXS_FIXED_OWNER(2);
  fixed.options.rank_bytes_max = 64 * 64 * 12;
  if (make(fixed, 3, &plan) != MXS_OK) return false;
  fixed.options.rank_bytes_max -= 1;
  return make(fixed, 3, &plan) == MXS_OVER_BUDGET && std::strstr(last_error_text(), "rank 2 has 49152");
}

bool a_budget_that_bytes_alone_can_keep_is_kept() {
  // By cost rank 0 has the square and rank 1 the three oblongs; then one of the large ones fits nowhere. By bytes each
  // rank has a large one and two of the others.
  Model model;
  model.add("square", {128, 128});
  for (int index = 0; index < 3; ++index) model.add(numbered("oblong", index), {64, 256});
  for (int index = 0; index < 2; ++index) model.add(numbered("large", index), {8, 4096});
  model.options.rank_bytes_max = uint64_t{4} * 16384 * 12;
  Plan plan;
  return make(model, 2, &plan) == MXS_OK && check_plan(plan).empty() &&
         plan.rank_owned_bytes == std::vector<uint64_t>(2, model.options.rank_bytes_max);
}

bool costs_are_the_formulas() {
  const std::vector<int64_t> shape = {30, 100};
  const double elements = 3000, n = 30, m = 100, cubes = n * n * n + m * m * m;
  return step_flops(MXS_RULE_ADAMW, shape) == 12 * elements && step_flops(MXS_RULE_FROZEN, shape) == 0 &&
         step_flops(MXS_RULE_EXTERNAL, shape) == 0 && step_flops(MXS_RULE_ADAMW, {}) == 12 &&
         step_flops(MXS_RULE_MUON, shape) == 5 * (4 * m * n * n + 2 * n * n * n) + 12 * elements &&
         step_flops(MXS_RULE_MUON, {100, 30}) == step_flops(MXS_RULE_MUON, shape) &&
         step_flops(MXS_RULE_SOAP, shape) ==
             6 * elements * 130 + std::floor((4 * elements * 130 + std::floor(14 * cubes / 3)) / 10) + 12 * elements &&
         step_flops(MXS_RULE_SHAMPOO, shape) == 4 * elements * 130 + std::floor(24 * cubes / 10) + 12 * elements &&
         step_flops(MXS_RULE_MUON, {0, 5}) == 0;
}

// Shampoo's blocks end at 1,024; SOAP has no factor for a side above 10,000.
bool long_sides_cost_by_their_blocks() {
  const auto shampoo = [](int64_t rows, int64_t columns) { return step_work(MXS_RULE_SHAMPOO, {rows, columns}).flops; };
  const auto soap = [](int64_t rows, int64_t columns) { return step_work(MXS_RULE_SOAP, {rows, columns}).flops; };
  const auto near = [](uint64_t a, uint64_t b) { return a >= b && a - b < 16; };  // of rounding, once for each block
  const uint64_t d = 10'000, rest = 12'345;
  return near(shampoo(2048, 1500), 2 * shampoo(1024, 1024) + 2 * shampoo(1024, 476)) &&
         near(shampoo(2500, 30), 2 * shampoo(1024, 30) + shampoo(452, 30)) &&
         soap(rest, d) == 6 * rest * d * d + (4 * rest * d * d + 14 * d * d * d / 3) / 10 && soap(rest, rest) == 0 &&
         soap(rest, d) == soap(d, rest);
}

bool costs_stay_at_the_top() {
  const int64_t huge = int64_t{1} << 40;
  PlanSettings settings;
  settings.matrix_flops_per_second = settings.memory_bytes_per_second = 1;
  return step_work(MXS_RULE_MUON, {huge, huge}).flops == UINT64_MAX &&
         step_work(MXS_RULE_SHAMPOO, {huge, huge}).flops == UINT64_MAX &&
         step_work(MXS_RULE_ADAMW, {huge, huge}).bytes == UINT64_MAX &&
         step_ps(step_work(MXS_RULE_MUON, {huge, huge}), settings) == UINT64_MAX &&
         step_ps({1, 0}, settings) == 1'000'000'000'000 && saturating_add(UINT64_MAX - 1, 2) == UINT64_MAX &&
         saturating_add(1, 2) == 3;
}

void costs_of_long_sides_go_by_blocks(void **) { assert_true(long_sides_cost_by_their_blocks()); }
void the_worst_rank_costs_at_most_4_3_of_the_best_possible(void **) { assert_true(the_worst_rank_is_within_graham()); }
void equal_matrices_give_each_rank_as_many(void **) { assert_true(equal_matrices_are_dealt_equally()); }
void cost_is_balanced_before_bytes(void **) { assert_true(cost_counts_before_bytes()); }
void more_ranks_than_matrices_are_ordinary(void **) { assert_true(more_ranks_than_matrices_leave_some_idle()); }
void fixed_owners_come_first(void **) { assert_true(fixed_owners_are_obeyed()); }
void the_tails_of_a_unit_have_one_owner(void **) { assert_true(tails_of_a_unit_stay_together()); }
void matrices_that_cost_no_step_are_balanced_by_bytes(void **) {
  assert_true(external_matrices_are_balanced_by_bytes());
}
void a_budget_is_kept(void **) {
  assert_true(a_budget_is_kept_where_cost_alone_would_break_it());
  assert_true(a_budget_that_bytes_alone_can_keep_is_kept());
}
void too_small_a_budget_is_refused_with_the_worst_rank(void **) {
  assert_true(too_small_a_budget_names_the_worst_rank());
}
void step_costs_are_those_of_the_rules(void **) { assert_true(costs_are_the_formulas()); }
void monstrous_costs_do_not_wrap_around(void **) { assert_true(costs_stay_at_the_top()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_worst_rank_costs_at_most_4_3_of_the_best_possible),
      cmocka_unit_test(equal_matrices_give_each_rank_as_many),
      cmocka_unit_test(cost_is_balanced_before_bytes),
      cmocka_unit_test(more_ranks_than_matrices_are_ordinary),
      cmocka_unit_test(fixed_owners_come_first),
      cmocka_unit_test(the_tails_of_a_unit_have_one_owner),
      cmocka_unit_test(matrices_that_cost_no_step_are_balanced_by_bytes),
      cmocka_unit_test(a_budget_is_kept),
      cmocka_unit_test(too_small_a_budget_is_refused_with_the_worst_rank),
      cmocka_unit_test(step_costs_are_those_of_the_rules),
      cmocka_unit_test(costs_of_long_sides_go_by_blocks),
      cmocka_unit_test(monstrous_costs_do_not_wrap_around),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
