// SPDX-License-Identifier: Apache-2.0
// The search and the lower bounds: against the best of all placements where these can be tried, and against each other.
#include <numeric>

#include "models.hpp"
#include "plan/bounds.hpp"
#include "plan/stages.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

using Sizes = std::vector<uint64_t>;

// The least worst load, by trying all placements.
uint64_t best_possible(const Sizes &sizes, size_t next, Sizes *loads, uint64_t best) {
  const uint64_t worst = *std::max_element(loads->begin(), loads->end());
  if (next == sizes.size() || worst >= best) return std::min(worst, best);
  for (size_t rank = 0; rank < loads->size(); ++rank) {
    const auto same = std::find(loads->begin(), loads->begin() + static_cast<std::ptrdiff_t>(rank), (*loads)[rank]);
    if (same != loads->begin() + static_cast<std::ptrdiff_t>(rank)) continue;  // a rank like an earlier one
    (*loads)[rank] += sizes[next];
    best = best_possible(sizes, next + 1, loads, best);
    (*loads)[rank] -= sizes[next];
  }
  return best;
}

bool bounds_are_below_the_best() {
  std::mt19937 random(3);
  int tight = 0;
  const int instance_count = 400;
  for (int instance = 0; instance < instance_count; ++instance) {
    Sizes sizes(1 + random() % 9), fixed(1 + random() % 4);
    const uint64_t range = instance % 2 ? 12 : 1000, kind_count = 1 + random() % 4;
    Sizes kinds(kind_count);
    for (uint64_t &kind : kinds) kind = 1 + random() % range;
    for (uint64_t &size : sizes) size = instance % 3 ? kinds[random() % kind_count] : random() % range;
    for (uint64_t &load : fixed) load = random() % 3 ? 0 : random() % (2 * range);
    std::sort(sizes.rbegin(), sizes.rend());
    const uint64_t all = std::accumulate(sizes.begin(), sizes.end(), *std::max_element(fixed.begin(), fixed.end()));
    Sizes loads = fixed;
    const uint64_t best = best_possible(sizes, 0, &loads, all + 1), bound = load_bound(sizes, fixed, all);
    if (bound > best) {
      print_error("instance %d: bound %zu, but %zu is possible\n", instance, bound, best);
      return false;
    }
    tight += bound == best;
  }
  if (tight * 10 < instance_count * 7) print_error("only %d of %d bounds are tight\n", tight, instance_count);
  return tight * 10 >= instance_count * 7;
}

// 240 of 8 and 160 of 3 on 64 ranks: 37.5 is the mean, 38 = 4 * 8 + 2 * 3 the best.
bool bounds_know_that_pieces_are_whole() {
  Sizes sizes(240, 8);
  sizes.insert(sizes.end(), 160, 3);
  if (load_bound(sizes, Sizes(64, 0), 50) != 38) return false;
  // 22.25 experts a rank, but 414 ranks need 23: what costs 8, 9 and 2.57 leaves others no fitting room.
  Sizes experts(44718, 100);
  experts.insert(experts.end(), 61, 800);
  experts.insert(experts.end(), 61, 257);
  experts.insert(experts.end(), 9, 900);
  return load_bound(experts, Sizes(2048, 0), 3000) == 2300;
}

bool bounds_see_fixed_loads() {
  // Water over fixed loads: the full rank doesn't count. 100 on three empty ones: 34.
  if (load_bound(Sizes(100, 1), {1000, 0, 0, 0}, 2000) != 1000) return false;
  if (load_bound(Sizes(100, 1), {20, 0, 0, 0}, 2000) != 30) return false;
  return load_bound({7}, {5, 3, 9}, 100) == 10 && load_bound({}, {5, 3, 9}, 9) == 9 && load_bound({}, {0}, 0) == 0 &&
         load_bound({UINT64_MAX, UINT64_MAX}, {0}, UINT64_MAX) == UINT64_MAX;
}

// ---- whole plans ----

struct Worsts {
  uint64_t step, bytes;
};

Worsts worsts(const Plan &plan) {
  return {plan.objectives[MXS_OBJECTIVE_STEP].worst, plan.objectives[MXS_OBJECTIVE_BYTES].worst};
}

Model random_matrices(unsigned seed, int count, int kind_count) {
  std::mt19937 random(seed);
  std::vector<std::pair<int64_t, int64_t>> kinds;
  for (int kind = 0; kind < kind_count; ++kind)
    kinds.push_back({static_cast<int64_t>(16 + random() % 400), static_cast<int64_t>(16 + random() % 400)});
  Model model;
  for (int index = 0; index < count; ++index) {
    const auto [rows, columns] = kinds[random() % kinds.size()];
    model.add(numbered("m", index), {rows, columns}, index / 5);
  }
  return model;
}

uint64_t best_step(const Plan &plan) {
  Sizes costs;
  const PlanSettings settings;
  for (const Placement &piece : plan.placements)
    costs.push_back(step_ps(step_work(MXS_RULE_MUON, piece.shape), settings));
  std::sort(costs.rbegin(), costs.rend());
  Sizes loads(static_cast<size_t>(plan.topology.rank_count()), 0);
  return best_possible(costs, 0, &loads, plan.objectives[MXS_OBJECTIVE_STEP].worst + 1);
}

bool worst_steps_are_near_the_best() {
  for (unsigned seed = 0; seed < test::few(60u); ++seed) {
    Model model = random_matrices(seed, 9, 1 + static_cast<int>(seed) % 9);
    model.options.bytes_weight = 1;  // step time alone
    Plan plan;
    if (make(model, 3, &plan) != MXS_OK || !check_plan(plan).empty()) return false;
    const Objective &step = plan.objectives[MXS_OBJECTIVE_STEP];
    const uint64_t best = best_step(plan);
    if (step.bound <= best && best <= step.worst && step.worst <= best + best / 50) continue;
    print_error("seed %u: worst %zu, best %zu, bound %zu\n", seed, step.worst, best, step.bound);
    return false;
  }
  return true;
}

bool objectives_are_what_ranks_carry() {
  for (unsigned seed = 0; seed < test::few(60u); ++seed)
    for (const int rank_count : test::thinned<int>({1, 2, 3, 4, 7, 8})) {
      const Model model = random_model(seed, rank_count);
      Plan plan;
      if (make(model, rank_count, &plan) != MXS_OK) return false;
      for (const Objective &objective : plan.objectives)
        if (objective.worst < objective.bound) {
          print_error("seed %u, %d ranks: worst %zu below the bound %zu\n", seed, rank_count, objective.worst,
                      objective.bound);
          return false;
        }
      const Objective &bytes = plan.objectives[MXS_OBJECTIVE_BYTES], &egress = plan.objectives[MXS_OBJECTIVE_EGRESS];
      if (bytes.worst != *std::max_element(plan.rank_owned_bytes.begin(), plan.rank_owned_bytes.end())) return false;
      if (plan.rank_owned_bytes[static_cast<size_t>(bytes.rank)] != bytes.worst) return false;
      if ((egress.worst == 0) != (egress.unit < 0) || plan.objectives[MXS_OBJECTIVE_NIC].worst != 0) return false;
    }
  return true;
}

bool search_makes_plans_better() {
  int better = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    Model model = random_matrices(seed, 160, 12);
    Plan start, found;
    model.options.search_moves_max = 1;
    if (make(model, 8, &start) != MXS_OK) return false;
    model.options.search_moves_max = 0;
    if (make(model, 8, &found) != MXS_OK || !check_plan(found).empty()) return false;
    const Worsts before = worsts(start), after = worsts(found);
    better += after.bytes < before.bytes;
    const Objective &step = found.objectives[MXS_OBJECTIVE_STEP], &bytes = found.objectives[MXS_OBJECTIVE_BYTES];
    if (step.worst > step.bound + step.bound / 100 || bytes.worst > bytes.bound + bytes.bound * 3 / 100) {
      print_error("seed %u: step %zu of %zu, bytes %zu of %zu\n", seed, step.worst, step.bound, bytes.worst,
                  bytes.bound);
      return false;
    }
  }
  return better >= 20;
}

// Squares cost more than oblongs of the same bytes, so that both can't be even where matrices are few.
bool weights_choose_what_goes_first() {
  int differ = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    Model model = random_matrices(seed, 14, 14);
    Plan by_step, by_bytes;
    model.options.step_weight = 1'000'000;
    model.options.bytes_weight = 1;
    if (make(model, 4, &by_step) != MXS_OK) return false;
    std::swap(model.options.step_weight, model.options.bytes_weight);
    if (make(model, 4, &by_bytes) != MXS_OK || by_step.fingerprint == by_bytes.fingerprint) return false;
    if (worsts(by_step).step > worsts(by_bytes).step || worsts(by_step).bytes < worsts(by_bytes).bytes) {
      print_error("seed %u: by step %zu and %zu bytes, by bytes %zu and %zu bytes\n", seed, worsts(by_step).step,
                  worsts(by_step).bytes, worsts(by_bytes).step, worsts(by_bytes).bytes);
      return false;
    }
    differ += worsts(by_step).step < worsts(by_bytes).step && worsts(by_step).bytes > worsts(by_bytes).bytes;
  }
  if (differ < 10) print_error("only %d of 20 differ\n", differ);
  return differ >= 10;
}

bool plans_are_found_again() {
  for (unsigned seed = 0; seed < test::few(10u); ++seed) {
    const Model model = random_matrices(seed, 100, 100);
    Plan first, second;
    if (make(model, 7, &first) != MXS_OK || make(model, 7, &second) != MXS_OK) return false;
    if (first.fingerprint != second.fingerprint) return false;
  }
  return true;
}

// The number in the refusal.
uint64_t told_budget() {
  const std::string text = last_error_text();
  const size_t place = text.find("works is ");
  return place == std::string::npos ? 0 : std::stoull(text.substr(place + 9));
}

bool told_budgets_work() {
  for (unsigned seed = 0; seed < test::few(40u); ++seed)
    for (const int rank_count : {1, 3, 8}) {
      Model model = random_matrices(seed, 24, 10);
      if (seed % 2)
        for (size_t index = 0; index < 6; ++index) model.tensors[index].fixed_owner = MXS_FIXED_OWNER(0);
      Plan plan;
      model.options.rank_bytes_max = 1;
      if (make(model, rank_count, &plan) != MXS_OVER_BUDGET) return false;
      model.options.rank_bytes_max = told_budget();
      if (make(model, rank_count, &plan) != MXS_OK || worsts(plan).bytes > model.options.rank_bytes_max) {
        print_error("seed %u, %d ranks: %zu was told to work: %s\n", seed, rank_count, model.options.rank_bytes_max,
                    last_error_text());
        return false;
      }
      model.options.rank_bytes_max -= 1;
      if (make(model, rank_count, &plan) == MXS_OK) {
        print_error("seed %u, %d ranks: %zu works, too\n", seed, rank_count, model.options.rank_bytes_max);
        return false;
      }
    }
  return true;
}

bool refusals_name_the_tensor() {
  Model model;
  for (int index = 0; index < 8; ++index) model.add(numbered("small", index), {16, 16});
  model.add("large", {64, 64});
  model.options.rank_bytes_max = 64 * 64 * 12 - 1;
  Plan plan;
  if (make(model, 4, &plan) != MXS_OVER_BUDGET) return false;
  if (!std::strstr(last_error_text(), "\"large\" has 49152") || told_budget() != 49152) return false;
  model.tensors[3].fixed_owner = model.tensors[4].fixed_owner = MXS_FIXED_OWNER(2);
  model.options.rank_bytes_max = 16 * 16 * 12;
  return make(model, 4, &plan) == MXS_OVER_BUDGET && std::strstr(last_error_text(), "rank 2 has 6144") &&
         std::strstr(last_error_text(), "\"small3\"");
}

void no_bound_is_above_the_best(void **) { assert_true(bounds_are_below_the_best()); }
void a_bound_knows_that_pieces_are_whole(void **) { assert_true(bounds_know_that_pieces_are_whole()); }
void a_bound_takes_fixed_loads_as_given(void **) { assert_true(bounds_see_fixed_loads()); }
void the_worst_step_is_within_2_percent_of_the_best(void **) { assert_true(worst_steps_are_near_the_best()); }
void objectives_are_not_below_their_bounds(void **) { assert_true(objectives_are_what_ranks_carry()); }
void the_search_evens_out_bytes_and_keeps_steps_even(void **) { assert_true(search_makes_plans_better()); }
void the_weights_say_what_goes_first(void **) { assert_true(weights_choose_what_goes_first()); }
void the_same_plan_is_found_again(void **) { assert_true(plans_are_found_again()); }
void the_budget_that_a_refusal_tells_works_and_one_less_does_not(void **) { assert_true(told_budgets_work()); }
void a_refusal_names_the_tensor_that_is_too_large(void **) { assert_true(refusals_name_the_tensor()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(no_bound_is_above_the_best),
      cmocka_unit_test(a_bound_knows_that_pieces_are_whole),
      cmocka_unit_test(a_bound_takes_fixed_loads_as_given),
      cmocka_unit_test(the_worst_step_is_within_2_percent_of_the_best),
      cmocka_unit_test(objectives_are_not_below_their_bounds),
      cmocka_unit_test(the_search_evens_out_bytes_and_keeps_steps_even),
      cmocka_unit_test(the_weights_say_what_goes_first),
      cmocka_unit_test(the_same_plan_is_found_again),
      cmocka_unit_test(the_budget_that_a_refusal_tells_works_and_one_less_does_not),
      cmocka_unit_test(a_refusal_names_the_tensor_that_is_too_large),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
