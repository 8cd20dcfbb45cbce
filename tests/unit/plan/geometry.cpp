// SPDX-License-Identifier: Apache-2.0
// Whatever the model and the world: every byte of every unit belongs to exactly one piece, in a segment of its owner.
#include "models.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

constexpr int worlds[] = {1, 2, 3, 4, 7, 8, 64};

bool is_sound(const Model &model, int rank_count, const char *what) {
  Plan plan;
  const mxs_status status = make(model, rank_count, &plan);
  const std::string complaint = status == MXS_OK ? check_plan(plan) : last_error_text();
  if (!complaint.empty()) print_error("%s, %d ranks: %s\n", what, rank_count, complaint.c_str());
  return complaint.empty();
}

bool random_models_are_sound() {
  for (const int rank_count : worlds)
    for (unsigned seed = 0; seed < 150; ++seed)
      if (!is_sound(random_model(seed, rank_count), rank_count, numbered("seed ", seed).c_str())) return false;
  return true;
}

bool gpts_are_sound() {
  for (const int rank_count : worlds)
    for (const int64_t width : {8, 100, 256})
      if (!is_sound(gpt(3, width), rank_count, "gpt")) return false;
  return true;
}

bool a_rank_has_one_segment_where_tensors_have_one_owner() {
  Model model;
  for (int index = 0; index < 30; ++index) {
    model.add(numbered("m", index), {16 + index, 24}).dtype = index % 2 ? MXS_BF16 : MXS_F32;
    model.add(numbered("v", index), {index}).dtype = index % 3 ? MXS_BF16 : MXS_F32;
  }
  for (const int rank_count : worlds) {
    Plan plan;
    if (make(model, rank_count, &plan) != MXS_OK || !check_plan(plan).empty()) return false;
    std::vector<int> seen(static_cast<size_t>(rank_count), 0);
    for (const Segment &segment : plan.units[0].weights.segments)
      if (++seen[static_cast<size_t>(segment.owner)] > 1) return false;
  }
  return true;
}

bool a_flat_tensor_is_cut_evenly() {
  for (const int rank_count : worlds) {
    Model model;
    for (int index = 0; index < 8; ++index)
      model.add(numbered("flat", index), {1'000'003}, 0, MXS_RULE_ADAMW);
    Plan plan;
    if (make(model, rank_count, &plan) != MXS_OK || !check_plan(plan).empty()) return false;
    std::vector<uint64_t> elements(static_cast<size_t>(rank_count), 0);
    for (const Placement &piece : plan.placements) elements[static_cast<size_t>(piece.owner)] += piece.element_count;
    const auto [least, most] = std::minmax_element(elements.begin(), elements.end());
    // One chunk by rotation, and as much again because the last chunk of a tensor is short.
    if (*most - *least > 2 * 4096) {
      print_error("%d ranks: %lu to %lu elements\n", rank_count, static_cast<unsigned long>(*least),
                  static_cast<unsigned long>(*most));
      return false;
    }
  }
  return true;
}

bool empty_units_and_empty_models_are_plans() {
  Model none, far;
  far.add("only", {3, 3}, 6);
  Plan plan;
  if (make(none, 4, &plan) != MXS_OK || !plan.units.empty() || !plan.placements.empty()) return false;
  if (make(far, 4, &plan) != MXS_OK || plan.units.size() != 7 || !check_plan(plan).empty()) return false;
  return plan.units[0].weights.bytes == 0 && plan.units[0].weights.rank_count == 4 && plan.units[6].weights.bytes == 36;
}

bool tensors_without_elements_have_a_placement() {
  Model model;
  model.add("vector", {0});
  model.add("matrix", {0, 7});
  model.add("stack", {0, 4, 4});
  model.add("thin stack", {3, 0, 4});
  model.add("frozen", {5, 0}, 0, MXS_RULE_FROZEN);
  model.add("huge but empty", {int64_t{1} << 62, int64_t{1} << 62, 0}, 0, MXS_RULE_ADAMW);
  Plan plan;
  if (make(model, 3, &plan) != MXS_OK || !check_plan(plan).empty() || plan.units[0].weights.bytes != 0) return false;
  for (const PlannedTensor &tensor : plan.tensors)
    if (tensor.placement_count != (tensor.name == "thin stack" ? 3u : 1u) ||
        plan.placements[tensor.placement_index].element_count != 0)
      return false;
  return true;
}

bool large_alignment_is_kept() {
  Model model = gpt(2, 128);
  model.options.alignment = uint64_t{2} << 20;
  return is_sound(model, 4, "2 MiB");
}

void every_byte_of_random_models_is_covered_once_in_every_world(void **) { assert_true(random_models_are_sound()); }
void every_byte_of_a_gpt_is_covered_once_in_every_world(void **) { assert_true(gpts_are_sound()); }
void a_rank_has_one_segment_of_single_owner_tensors(void **) {
  assert_true(a_rank_has_one_segment_where_tensors_have_one_owner());
}
void flat_tensors_are_cut_evenly_and_the_extra_chunk_rotates(void **) { assert_true(a_flat_tensor_is_cut_evenly()); }
void empty_units_and_models_are_ordinary(void **) { assert_true(empty_units_and_empty_models_are_plans()); }
void empty_tensors_are_ordinary(void **) { assert_true(tensors_without_elements_have_a_placement()); }
void borders_keep_an_alignment_of_2_mib(void **) { assert_true(large_alignment_is_kept()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_byte_of_random_models_is_covered_once_in_every_world),
      cmocka_unit_test(every_byte_of_a_gpt_is_covered_once_in_every_world),
      cmocka_unit_test(a_rank_has_one_segment_of_single_owner_tensors),
      cmocka_unit_test(flat_tensors_are_cut_evenly_and_the_extra_chunk_rotates),
      cmocka_unit_test(empty_units_and_models_are_ordinary),
      cmocka_unit_test(empty_tensors_are_ordinary),
      cmocka_unit_test(borders_keep_an_alignment_of_2_mib),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
