// SPDX-License-Identifier: Apache-2.0
// Re-planning: nothing moves without need, and what moves is little beside what a fresh plan would move.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "api/values.hpp"
#include "matrixshard/plan.h"
#include "models.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

mxs_status make_from(const Model &model, int rank_count, const Plan *previous, Plan *plan) {
  return make_plan(model.tensors.data(), model.tensors.size(), world(rank_count), &model.options, plan, previous);
}

uint64_t all_bytes(const Plan &plan) {
  uint64_t bytes = 0;
  for (const PlannedTensor &tensor : plan.tensors)
    if (tensor.role != MXS_ROLE_TIED) bytes += tensor.element_count * dtype_bytes(tensor.dtype);
  return bytes;
}

uint64_t moved_bytes(const Plan &source, const Plan &target) {
  std::vector<PlanMove> moves;
  if (plan_moves(source, target, &moves) != MXS_OK) return UINT64_MAX;
  uint64_t bytes = 0;
  for (const PlanMove &move : moves) bytes += move.bytes;
  return bytes;
}

uint64_t worst(const std::vector<uint64_t> &loads) { return *std::max_element(loads.begin(), loads.end()); }

bool stays(const Model &model, int rank_count) {
  Plan before, after;
  if (make(model, rank_count, &before) != MXS_OK || make_from(model, rank_count, &before, &after) != MXS_OK)
    return false;
  return check_plan(after).empty() && moved_bytes(before, after) == 0 && after.fingerprint != before.fingerprint &&
         worst(after.rank_step_ps) <= worst(before.rank_step_ps);
}

bool the_same_world_moves_nothing() {
  for (const int rank_count : {1, 2, 3, 4, 7, 8}) {
    if (!stays(gpt(6, 128), rank_count)) return false;
    for (unsigned seed = 0; seed < 30; ++seed)
      if (!stays(random_model(seed, rank_count), rank_count)) {
        print_error("seed %u, %d ranks\n", seed, rank_count);
        return false;
      }
  }
  return true;
}

// Of all bytes, in thousandths.
struct Shares {
  uint64_t moved, fresh_moved;
  uint64_t step, bytes, units;  // the worst, beside the fresh plan's
};

// What the worst rank owns of each unit, over all units: what gathers wait for.
uint64_t worst_of_units(const Plan &plan) {
  uint64_t sum = 0;
  for (const PlannedUnit &unit : plan.units) {
    uint64_t most = 0;
    for (int rank = 0; rank < plan.topology.rank_count(); ++rank)
      most = std::max(most, unit.weights.owned_bytes(rank));
    sum += most;
  }
  return sum;
}

bool replan(const Model &model, int before_ranks, const Model &next, int after_ranks, Shares *shares) {
  Plan before, fresh, after;
  if (make(model, before_ranks, &before) != MXS_OK || make(next, after_ranks, &fresh) != MXS_OK ||
      make_from(next, after_ranks, &before, &after) != MXS_OK || !check_plan(after).empty()) {
    print_error("%s\n", last_error_text());
    return false;
  }
  const uint64_t all = all_bytes(before);
  shares->moved = moved_bytes(before, after) * 1000 / all;
  shares->fresh_moved = moved_bytes(before, fresh) * 1000 / all;
  shares->step = worst(after.rank_step_ps) * 1000 / worst(fresh.rank_step_ps);
  shares->bytes = worst(after.rank_owned_bytes) * 1000 / worst(fresh.rank_owned_bytes);
  shares->units = worst_of_units(after) * 1000 / worst_of_units(fresh);
  print_message("# %d to %d ranks: %d of 1000 bytes move, %d for a fresh plan; worst step %d, bytes %d, units %d "
                "of its\n",
                before_ranks, after_ranks, static_cast<int>(shares->moved), static_cast<int>(shares->fresh_moved),
                static_cast<int>(shares->step), static_cast<int>(shares->bytes), static_cast<int>(shares->units));
  return true;
}

bool good(const Shares &shares, uint64_t most_moved) {
  return shares.moved <= most_moved && shares.moved * 2 < shares.fresh_moved && shares.step <= 1050 &&
         shares.bytes <= 1050 && shares.units <= 1150;
}

// An eighth must move; little more does.
bool a_rank_less_and_a_rank_more_move_little() {
  Shares less, more;
  const Model model = gpt(24, 256);
  return replan(model, 8, model, 7, &less) && good(less, 125 + 60) && replan(model, 7, model, 8, &more) &&
         good(more, 125 + 60);
}

bool a_tighter_budget_is_kept() {
  const Model model = gpt(6, 128);
  Plan before, after;
  if (make(model, 4, &before) != MXS_OK) return false;
  Model tight = gpt(6, 128);
  uint64_t sum = 0;
  for (const uint64_t bytes : before.rank_owned_bytes) sum += bytes;
  tight.options.rank_bytes_max = sum / 4 + sum / 100;
  if (make_from(tight, 4, &before, &after) != MXS_OK) {
    print_error("%s\n", last_error_text());
    return false;
  }
  return check_plan(after).empty() && worst(after.rank_owned_bytes) <= tight.options.rank_bytes_max &&
         moved_bytes(before, after) * 4 < all_bytes(before);
}

bool any_plan_follows_any_other() {
  for (const int before_ranks : {1, 2, 3, 4, 7, 8})
    for (const int after_ranks : {1, 2, 3, 4, 7, 8})
      for (unsigned seed = 0; seed < 12; ++seed) {
        const int least = std::min(before_ranks, after_ranks);
        Model model = random_model(seed, least), other = random_model(seed + 1, least);
        Plan before, after, again, stranger;
        std::string what;
        if (make(model, before_ranks, &before) != MXS_OK || make_from(model, after_ranks, &before, &after) != MXS_OK ||
            make_from(model, after_ranks, &before, &again) != MXS_OK ||
            make_from(other, after_ranks, &before, &stranger) != MXS_OK)
          what = last_error_text();
        if (what.empty()) what = check_plan(after);
        if (what.empty()) what = check_plan(stranger);
        if (what.empty() && again.fingerprint != after.fingerprint) what = "not the same each time";
        if (what.empty()) continue;
        print_error("seed %u, %d to %d ranks: %s\n", seed, before_ranks, after_ranks, what.c_str());
        return false;
      }
  return true;
}

bool the_option_takes_a_handle() {
  Model model = gpt(2, 64);
  Plan made;
  if (make(model, 4, &made) != MXS_OK) return false;
  const mxs_plan before(std::move(made));
  const mxs_topology topology(world(3));
  mxs_plan *after = nullptr;
  model.options.previous = &before;
  if (mxs_plan_create(&after, model.tensors.data(), model.tensors.size(), &topology, &model.options) != MXS_OK)
    return false;
  const bool noted = after->value.previous_fingerprint == before.value.fingerprint;
  mxs_plan_destroy(&after);
  return noted;
}

void equal_worlds_keep_every_owner(void **) { assert_true(the_same_world_moves_nothing()); }
void one_rank_less_or_more_moves_little(void **) { assert_true(a_rank_less_and_a_rank_more_move_little()); }
void a_smaller_budget_moves_what_it_must(void **) { assert_true(a_tighter_budget_is_kept()); }
void every_plan_can_follow_every_other(void **) { assert_true(any_plan_follows_any_other()); }
void the_option_is_a_plan(void **) { assert_true(the_option_takes_a_handle()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(equal_worlds_keep_every_owner),       cmocka_unit_test(one_rank_less_or_more_moves_little),
      cmocka_unit_test(a_smaller_budget_moves_what_it_must), cmocka_unit_test(every_plan_can_follow_every_other),
      cmocka_unit_test(the_option_is_a_plan),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
