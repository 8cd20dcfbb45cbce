// SPDX-License-Identifier: Apache-2.0
// Units spread over ranks, nodes and rails: no rank or node has more of a unit than it must.
#include <numeric>
#include <queue>

#include "models.hpp"
#include "plan/stages.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

mxs_status make_on(const Model &model, const Topology &topology, Plan *plan) {
  return make_plan(model.tensors.data(), model.tensors.size(), topology, &model.options, plan);
}

// Nodes of so many ranks each.
Topology nodes_of(const std::vector<int> &rank_counts) {
  std::vector<uint64_t> labels;
  for (size_t node = 0; node < rank_counts.size(); ++node)
    labels.insert(labels.end(), static_cast<size_t>(rank_counts[node]), node);
  return topology_from_nodes(labels);
}

Model equal_units(int unit_count, int matrix_count) {
  Model model;
  for (int unit = 0; unit < unit_count; ++unit)
    for (int index = 0; index < matrix_count; ++index)
      model.add(numbered("m", unit * matrix_count + index), {64, 64}, unit);
  return model;
}
constexpr uint64_t matrix_bytes = 64 * 64 * 4;

std::string check_units(const Plan &plan, uint64_t rank_matrices, uint64_t nic_bytes) {
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    const UnitEgress &found = plan.units[unit].egress;
    if (found.rank_worst != rank_matrices * matrix_bytes || found.nic_worst != nic_bytes)
      return "unit " + std::to_string(unit) + ": " + std::to_string(found.rank_worst) + " of a rank, " +
             std::to_string(found.nic_worst) + " of a NIC";
  }
  return check_plan(plan);
}

bool is_spread(const Model &model, const Topology &topology, uint64_t rank_matrices, uint64_t nic_bytes) {
  Plan plan;
  if (make_on(model, topology, &plan) != MXS_OK) return false;
  const std::string complaint = check_units(plan, rank_matrices, nic_bytes);
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

bool like_matrices_are_spread() {
  // As many as ranks: each has one. Three a unit on four nodes: each on a node of its own.
  return is_spread(equal_units(8, 8), nodes_of({8}), 1, 0) &&
         is_spread(equal_units(8, 8), nodes_of({4, 4}), 1, 4 * matrix_bytes) &&
         is_spread(equal_units(16, 3), nodes_of({4, 4, 4, 4}), 1, matrix_bytes) &&
         is_spread(equal_units(5, 21), nodes_of({7}), 3, 0);
}

// One of 8 for each rank of 3 and 5. Of 4, those with 2 and 6 ranks have 1 and 3, since all ranks have the same work.
bool uneven_nodes_are_spread() {
  return is_spread(equal_units(8, 8), nodes_of({3, 5}), 1, 5 * matrix_bytes) &&
         is_spread(equal_units(8, 4), nodes_of({2, 6}), 1, 3 * matrix_bytes);
}

// A node with three NICs and one with one: of 4 matrices, 3 and 1 take as long.
bool rails_count() {
  Topology topology = nodes_of({6, 2});
  topology.nodes[0].rails.resize(3);
  deal_rails(&topology);
  Plan plan;
  if (make_on(equal_units(8, 4), topology, &plan) != MXS_OK) return false;
  return plan.objectives[MXS_OBJECTIVE_NIC].bound == matrix_bytes &&
         check_units(plan, 1, matrix_bytes).empty();
}

bool fixed_owners_count() {
  Model model = equal_units(6, 4);
  for (mxs_tensor &tensor : model.tensors)
    if (&tensor - model.tensors.data() == 4 * tensor.unit)
      tensor.fixed_owner = MXS_FIXED_OWNER(tensor.unit % 4);  // the first of each unit
  return is_spread(model, nodes_of({4}), 1, 0);
}

// Without a search the worst step is that of longest processing time first.
bool no_search_is_longest_processing_time() {
  for (unsigned seed = 0; seed < test::few(20u); ++seed) {
    std::mt19937 random(seed);
    Model model;
    const PlanSettings settings;
    std::vector<uint64_t> costs;
    for (int index = 0; index < 60; ++index) {
      const std::vector<int64_t> shape = {16 + static_cast<int64_t>(random() % 300),
                                          16 + static_cast<int64_t>(random() % 300)};
      model.add(numbered("m", index), shape, index / 6);
      costs.push_back(step_ps(step_work(MXS_RULE_MUON, shape), settings));
    }
    std::sort(costs.rbegin(), costs.rend());
    std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> loads;
    uint64_t worst = 0;
    for (int rank = 0; rank < 7; ++rank) loads.push(0);
    for (const uint64_t cost : costs) {
      const uint64_t load = loads.top() + cost;
      loads.pop();
      loads.push(load);
      worst = std::max(worst, load);
    }
    model.options.search_moves_max = 1;
    Plan plan;
    if (make_on(model, nodes_of({7}), &plan) != MXS_OK || plan.objectives[MXS_OBJECTIVE_STEP].worst != worst)
      return false;
  }
  return true;
}

Model odd_units(unsigned seed) {
  std::mt19937 random(seed);
  Model model;
  for (int index = 0; index < 120; ++index)
    model.add(numbered("m", index),
              {16 + static_cast<int64_t>(random() % 300), 16 + static_cast<int64_t>(random() % 300)}, index / 12);
  return model;
}

// Unlike matrices change places if the weight allows it: units get more even, for a worse step.
bool weight_of_egress_counts() {
  uint64_t before = 0, after = 0;
  for (unsigned seed = 0; seed < test::few(10u); ++seed) {
    Model model = odd_units(seed);
    Plan plan, spread;
    model.options.egress_weight = 1;
    if (make_on(model, nodes_of({4, 4}), &plan) != MXS_OK) return false;
    model.options.egress_weight = 100'000;
    if (make_on(model, nodes_of({4, 4}), &spread) != MXS_OK || !check_plan(spread).empty()) return false;
    before += plan.objectives[MXS_OBJECTIVE_EGRESS].worst + plan.objectives[MXS_OBJECTIVE_NIC].worst;
    after += spread.objectives[MXS_OBJECTIVE_EGRESS].worst + spread.objectives[MXS_OBJECTIVE_NIC].worst;
    const Objective &step = spread.objectives[MXS_OBJECTIVE_STEP];
    if (step.worst > plan.objectives[MXS_OBJECTIVE_STEP].worst * 111 / 100) return false;
  }
  if (after * 10 > before * 9) print_error("%zu bytes, %zu before\n", after, before);
  return after * 10 <= before * 9;
}

bool budgets_bind_swaps() {
  for (unsigned seed = 0; seed < test::few(10u); ++seed) {
    Model model = odd_units(seed);
    model.options.egress_weight = 1'000'000;
    Plan plan;
    model.options.rank_bytes_max = 1;
    if (make_on(model, nodes_of({4, 4}), &plan) != MXS_OVER_BUDGET) return false;
    const std::string text = last_error_text();
    model.options.rank_bytes_max = std::stoull(text.substr(text.find("works is ") + 9));
    if (make_on(model, nodes_of({4, 4}), &plan) != MXS_OK) return false;
    if (plan.objectives[MXS_OBJECTIVE_BYTES].worst > model.options.rank_bytes_max) return false;
  }
  return true;
}

void like_matrices_of_a_unit_go_to_different_ranks_and_nodes(void **) { assert_true(like_matrices_are_spread()); }
void uneven_nodes_get_what_their_ranks_can_take(void **) { assert_true(uneven_nodes_are_spread()); }
void nodes_with_more_nics_get_more(void **) { assert_true(rails_count()); }
void a_rank_with_a_fixed_matrix_gets_no_other_of_its_unit(void **) { assert_true(fixed_owners_count()); }
void without_moves_the_worst_step_is_the_start_s(void **) { assert_true(no_search_is_longest_processing_time()); }
void egress_weight_lets_unlike_matrices_change_places(void **) { assert_true(weight_of_egress_counts()); }
void swaps_keep_the_budget(void **) { assert_true(budgets_bind_swaps()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(like_matrices_of_a_unit_go_to_different_ranks_and_nodes),
      cmocka_unit_test(uneven_nodes_get_what_their_ranks_can_take),
      cmocka_unit_test(nodes_with_more_nics_get_more),
      cmocka_unit_test(a_rank_with_a_fixed_matrix_gets_no_other_of_its_unit),
      cmocka_unit_test(without_moves_the_worst_step_is_the_start_s),
      cmocka_unit_test(egress_weight_lets_unlike_matrices_change_places),
      cmocka_unit_test(swaps_keep_the_budget),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
