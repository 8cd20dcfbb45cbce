// SPDX-License-Identifier: Apache-2.0
// 20,000 tensors on 1,024 ranks: as sound as small plans, with few pieces, and every rank can be asked.
#include "models.hpp"
#include "plan/memory.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

constexpr int rank_count = 1024, unit_count = 100;

// Of 200 tensors in a unit: 150 matrices, of which some are frozen, ten large flat ones, norms.
Model large_model() {
  Model model;
  model.tensors.reserve(20'000);
  for (int unit = 0; unit < unit_count; ++unit)
    for (int index = 0; index < 200; ++index) {
      const std::string name = numbered("t", 200 * unit + index);
      const mxs_rule rule = index % 5 == 1 ? MXS_RULE_FROZEN : MXS_RULE_AUTO;
      if (index < 100) model.add(name, {256, 640}, unit, rule);
      else if (index < 150) model.add(name, {640 + index, 256}, unit, rule);
      else if (index < 160) model.add(name, {500'000 + index}, unit);
      else model.add(name, {640}, unit);
      model.tensors.back().dtype = MXS_BF16;
    }
  return model;
}

Topology large_cluster() {
  std::vector<uint64_t> nodes;
  for (uint64_t rank = 0; rank < rank_count; ++rank) nodes.push_back(rank / 8);
  return topology_from_nodes(nodes);
}

bool make_large(Plan *plan) {
  const Model model = large_model();
  const mxs_status status =
      make_plan(model.tensors.data(), model.tensors.size(), large_cluster(), &model.options, plan);
  if (status != MXS_OK) print_error("%s\n", last_error_text());
  return status == MXS_OK;
}

// A cut for each 64 KiB of a unit's flat tensors, no more: a share for each rank of each would be 15 million.
bool pieces_are_sound_and_few(const Plan &plan) {
  const std::string complaint = check_plan(plan);
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  uint64_t flat_bytes = 0;
  for (const PlannedTensor &tensor : plan.tensors)
    if (tensor.role == MXS_ROLE_FLAT) flat_bytes += tensor.element_count * dtype_bytes(tensor.dtype);
  const uint64_t most = plan.tensors.size() + flat_bytes / 65536;
  if (plan.placements.size() > most)
    print_error("%zu placements, not at most %lu\n", plan.placements.size(), static_cast<unsigned long>(most));
  return complaint.empty() && plan.placements.size() <= most;
}

bool every_rank_is_told_its_load(const Plan &plan) {
  uint64_t weights = 0, owned = 0, state = 0, matrices = 0;
  for (int rank = 0; rank < rank_count; ++rank) {
    const mxs_rank_load load = rank_load(plan, rank);
    const mxs_memory memory = predict_memory(plan, rank, MXS_MEMORY_OPTIONS_INIT);
    if (memory.weights + memory.masters + memory.gradients + memory.state < load.owned_bytes) return false;
    weights += memory.weights;
    owned += load.owned_bytes;
    state += memory.state;
    matrices += static_cast<uint64_t>(load.matrix_count);
  }
  uint64_t unit_weights = 0, tensor_owned = 0, tensor_state = 0;
  for (const PlannedUnit &unit : plan.units)
    for (const Segment &segment : unit.weights.segments) unit_weights += segment.bytes;
  for (const PlannedTensor &tensor : plan.tensors) {
    tensor_owned += owned_bytes(tensor, tensor.shape, tensor.element_count);
    tensor_state += state_bytes(tensor, tensor.shape, tensor.element_count);
  }
  return weights == unit_weights && owned == tensor_owned && state == tensor_state && matrices == plan.matrices.size();
}

// By the slow way: all foreign segments, rounded to pages.
bool slot_pages_are_right(const Plan &plan, int rank) {
  std::vector<bool> foreign(pool_sizes(plan).slot / pool_page_bytes, false), listed = foreign;
  for (const PlannedUnit &unit : plan.units)
    for (const Segment &segment : unit.weights.segments)
      for (uint64_t page = segment.offset / pool_page_bytes;
           segment.owner != rank && page * pool_page_bytes < segment.offset + segment.bytes; ++page)
        foreign[page] = true;
  uint64_t bytes = 0;
  for (const PageRange &range : slot_pages(plan, rank)) {
    bytes += range.bytes;
    for (uint64_t page = range.offset / pool_page_bytes; page < (range.offset + range.bytes) / pool_page_bytes; ++page)
      listed[page] = true;
  }
  return foreign == listed && bytes == slot_pages_bytes(plan, rank);
}

bool a_large_plan_is_sound() {
  Plan plan;
  return make_large(&plan) && pieces_are_sound_and_few(plan) && every_rank_is_told_its_load(plan) &&
         slot_pages_are_right(plan, 0) && slot_pages_are_right(plan, 511) && slot_pages_are_right(plan, 1023);
}

void plans_of_20_000_tensors_on_1024_ranks_are_sound(void **) { assert_true(a_large_plan_is_sound()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(plans_of_20_000_tensors_on_1024_ranks_are_sound)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
