// SPDX-License-Identifier: Apache-2.0
// Whatever the model and the world: every byte of every unit belongs to exactly one piece, in a segment of its owner.
#include "models.hpp"
#include "support/thinned.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

const std::vector<int> worlds = test::thinned<int>({1, 2, 3, 4, 7, 8, 64});

bool is_sound(const Model &model, int rank_count, const char *what) {
  Plan plan;
  const mxs_status status = make(model, rank_count, &plan);
  const std::string complaint = status == MXS_OK ? check_plan(plan) : last_error_text();
  if (!complaint.empty()) print_error("%s, %d ranks: %s\n", what, rank_count, complaint.c_str());
  return complaint.empty();
}

bool random_models_are_sound() {
  for (const int rank_count : worlds)
    for (unsigned seed = 0; seed < test::few(150u); ++seed)
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
    // One chunk by rounding, and as much again because the last chunk of a tensor is short.
    if (*most - *least > 2 * 4096) {
      print_error("%d ranks: %lu to %lu elements\n", rank_count, static_cast<unsigned long>(*least),
                  static_cast<unsigned long>(*most));
      return false;
    }
  }
  return true;
}

// Each unit: as many pieces as tensors and cuts, no more; no piece below flat_bytes unless its tensor is.
bool shares_are_few_and_large(const Model &model, const Topology &topology, uint64_t flat_bytes) {
  Plan plan;
  if (make_plan(model.tensors.data(), model.tensors.size(), topology, &model.options, &plan) != MXS_OK) return false;
  const std::string complaint = check_plan(plan);
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  std::vector<uint64_t> tensors(2 * plan.units.size()), pieces = tensors, bytes = tensors;
  for (const PlannedTensor &tensor : plan.tensors) {
    if (tensor.role != MXS_ROLE_FLAT) continue;
    const size_t group = 2 * static_cast<size_t>(tensor.unit) + tensor.frozen(), width = dtype_bytes(tensor.dtype);
    ++tensors[group];
    pieces[group] += tensor.placement_count;
    bytes[group] += tensor.element_count * width;
    for (uint64_t number = 0; number < tensor.placement_count; ++number) {
      const uint64_t piece = plan.placements[tensor.placement_index + number].element_count * width;
      if (piece < flat_bytes && tensor.placement_count > 1) {
        print_error("%s has a share of %lu bytes\n", tensor.name.c_str(), static_cast<unsigned long>(piece));
        return false;
      }
    }
  }
  for (size_t group = 0; group < pieces.size(); ++group) {
    const uint64_t shares = std::min<uint64_t>(static_cast<uint64_t>(topology.rank_count()), bytes[group] / flat_bytes);
    if (pieces[group] > tensors[group] + shares) return false;
  }
  return complaint.empty();
}

bool random_flat_models_have_few_shares() {
  std::mt19937 random(7);
  for (const int rank_count : {1, 2, 3, 7, 8, 64, 1000})
    for (const uint64_t flat_bytes : {uint64_t{1} << 14, uint64_t{65536}, uint64_t{100'000}})
      for (int turn = 0; turn < test::few(12); ++turn) {
        Model model;
        model.options.flat_bytes = flat_bytes;
        for (int index = 0; index < 60; ++index) {
          const int64_t elements = random() % (int64_t{1} << (random() % 22));
          const mxs_rule rule = random() % 2 ? MXS_RULE_FROZEN : MXS_RULE_ADAMW;
          model.add(numbered("t", index), {elements}, static_cast<int>(random() % 3), rule).dtype =
              random() % 2 ? MXS_BF16 : MXS_F32;
        }
        if (!shares_are_few_and_large(model, world(rank_count), flat_bytes)) return false;
      }
  return true;
}

uint64_t most_over_mean_per_mille(const std::vector<uint64_t> &loads) {
  uint64_t most = 0, sum = 0;
  for (const uint64_t load : loads) most = std::max(most, load), sum += load;
  return most * 1000 * loads.size() / sum;
}

// 57 blocks of seven frozen matrices and a norm, as odd as they come, with pairs of rank 8: 400 frozen matrices among
// what is stepped. The worst rank's bytes are within 1.5% of the mean:
// the tails of a unit are one item.
bool frozen_tensors_are_stored_evenly(mxs_rule rule) {
  const std::vector<int64_t> sides[] = {{1000, 1000}, {256, 1000}, {256, 1000}, {1000, 1000},
                                        {2801, 1000}, {2801, 1000}, {1000, 2801}};
  for (const int rank_count : {1, 2, 3, 4, 7, 8, 64}) {
    Model model;
    for (int block = 0; block < 57; ++block) {
      for (int index = 0; index < 7; ++index) {
        const std::string name = numbered("m", 7 * block + index);
        model.add(name, sides[index], block, MXS_RULE_FROZEN).dtype = MXS_BF16;
        model.add(name + ".a", {8, sides[index][1]}, block, rule).dtype = MXS_BF16;
        model.add(name + ".b", {sides[index][0], 8}, block, rule).dtype = MXS_BF16;
      }
      model.add(numbered("norm", block), {1000}, block, MXS_RULE_FROZEN);
    }
    Plan plan;
    if (make(model, rank_count, &plan) != MXS_OK || !check_plan(plan).empty()) return false;
    if (plan.placements.size() > model.tensors.size() + static_cast<size_t>(57 * rank_count)) return false;
    const uint64_t excess = most_over_mean_per_mille(plan.rank_owned_bytes);
    if (excess > 1015) {
      print_error("rule %d, %d ranks: %lu per mille of the mean\n", rule, rank_count,
                  static_cast<unsigned long>(excess));
      return false;
    }
  }
  return true;
}

// 16 units of one tensor of four shares, on 8 nodes of 8 ranks: each rank gets one share, and a unit has four nodes.
bool the_ranks_that_begin_move_on() {
  Model model;
  for (int unit = 0; unit < 16; ++unit) model.add(numbered("t", unit), {65536}, unit, MXS_RULE_FROZEN);
  std::vector<uint64_t> nodes;
  for (uint64_t rank = 0; rank < 64; ++rank) nodes.push_back(rank / 8);
  Plan plan;
  if (make_plan(model.tensors.data(), 16, topology_from_nodes(nodes), &model.options, &plan) != MXS_OK) return false;
  for (const PlannedTensor &tensor : plan.tensors) {
    std::vector<int> seen;
    for (uint64_t number = 0; number < tensor.placement_count; ++number)
      seen.push_back(plan.topology.node_of(plan.placements[tensor.placement_index + number].owner));
    std::sort(seen.begin(), seen.end());
    if (seen.size() != 4 || std::unique(seen.begin(), seen.end()) != seen.end()) return false;
  }
  return most_over_mean_per_mille(plan.rank_owned_bytes) == 1000;
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
void flat_tensors_of_a_unit_are_cut_evenly_together(void **) { assert_true(a_flat_tensor_is_cut_evenly()); }
void flat_shares_are_few_and_no_smaller_than_flat_bytes(void **) { assert_true(random_flat_models_have_few_shares()); }
void frozen_tensors_are_stored_evenly_among_few_matrices(void **) {
  assert_true(frozen_tensors_are_stored_evenly(MXS_RULE_MUON));
}
void frozen_tensors_are_stored_evenly_among_adamw(void **) {
  assert_true(frozen_tensors_are_stored_evenly(MXS_RULE_ADAMW));
}
void shares_move_on_from_unit_to_unit_and_over_nodes(void **) { assert_true(the_ranks_that_begin_move_on()); }
void empty_units_and_models_are_ordinary(void **) { assert_true(empty_units_and_empty_models_are_plans()); }
void empty_tensors_are_ordinary(void **) { assert_true(tensors_without_elements_have_a_placement()); }
void borders_keep_an_alignment_of_2_mib(void **) { assert_true(large_alignment_is_kept()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_byte_of_random_models_is_covered_once_in_every_world),
      cmocka_unit_test(every_byte_of_a_gpt_is_covered_once_in_every_world),
      cmocka_unit_test(a_rank_has_one_segment_of_single_owner_tensors),
      cmocka_unit_test(flat_tensors_of_a_unit_are_cut_evenly_together),
      cmocka_unit_test(flat_shares_are_few_and_no_smaller_than_flat_bytes),
      cmocka_unit_test(frozen_tensors_are_stored_evenly_among_few_matrices),
      cmocka_unit_test(frozen_tensors_are_stored_evenly_among_adamw),
      cmocka_unit_test(shares_move_on_from_unit_to_unit_and_over_nodes),
      cmocka_unit_test(empty_units_and_models_are_ordinary),
      cmocka_unit_test(empty_tensors_are_ordinary),
      cmocka_unit_test(borders_keep_an_alignment_of_2_mib),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
