// SPDX-License-Identifier: Apache-2.0
// What becomes of a tensor, why, and what is refused with which sentence.
#include <functional>

#include "models.hpp"
#include "support/cmocka_all.h"

using namespace mxs;

namespace {

// The one tensor's rule, role, count of placements, and a word of its reason.
bool becomes(const Model &model, mxs_rule rule, mxs_role role, uint64_t placement_count, const char *word,
             int rank_count = 4) {
  Plan plan;
  const mxs_status status = make(model, rank_count, &plan);
  const std::string complaint = status == MXS_OK ? check_plan(plan) : last_error_text();
  if (!complaint.empty()) {
    print_error("%s\n", complaint.c_str());
    return false;
  }
  const PlannedTensor &tensor = plan.tensors.back();
  if (tensor.rule == rule && tensor.role == role && tensor.placement_count == placement_count &&
      tensor.reason.find(word) != std::string::npos)
    return true;
  print_error("rule %d, role %d, %d placements, \"%s\" without \"%s\"\n", tensor.rule, tensor.role,
              static_cast<int>(tensor.placement_count), tensor.reason.c_str(), word);
  return false;
}

bool one(std::vector<int64_t> shape, mxs_rule given, mxs_rule rule, mxs_role role, uint64_t placement_count,
         const char *word) {
  Model model;
  model.add("t", std::move(shape), 0, given);
  return becomes(model, rule, role, placement_count, word);
}

// The model is refused, the sentence has all words, and the plan is left alone.
bool is_refused(const Model &model, std::initializer_list<const char *> words) {
  Plan plan;
  plan.fingerprint = 77;
  const mxs_status status = make(model, 4, &plan);
  bool good = status == MXS_INVALID_ARGUMENT && plan.fingerprint == 77;
  for (const char *word : words) good = good && std::strstr(last_error_text(), word);
  if (!good) print_error("status %d, \"%s\", wanted \"%s\"\n", status, last_error_text(), *words.begin());
  return good;
}

// A good tensor, spoilt.
bool spoilt_is_refused(const std::function<void(mxs_tensor &)> &spoil, const char *word) {
  Model model;
  model.add("first", {4, 4});
  spoil(model.add("spoilt", {8, 8}));
  return is_refused(model, {"spoilt", word});
}

bool auto_is_muon_for_matrices() {
  return one({8, 4}, MXS_RULE_AUTO, MXS_RULE_MUON, MXS_ROLE_MATRIX, 1, "2 dimensions") &&
         one({6, 8, 4}, MXS_RULE_AUTO, MXS_RULE_MUON, MXS_ROLE_BLOCKS, 6, "6 blocks") &&
         one({8}, MXS_RULE_AUTO, MXS_RULE_ADAMW, MXS_ROLE_TAIL, 1, "1 dimension makes no matrix") &&
         one({}, MXS_RULE_AUTO, MXS_RULE_ADAMW, MXS_ROLE_TAIL, 1, "0 dimensions make no matrix") &&
         one({8, 4, 3, 3}, MXS_RULE_AUTO, MXS_RULE_ADAMW, MXS_ROLE_TAIL, 1, "view it as 2 or 3");
}

bool other_rules_keep_their_roles() {
  return one({8, 4}, MXS_RULE_ADAMW, MXS_RULE_ADAMW, MXS_ROLE_TAIL, 1, "below 65536") &&
         one({256, 64}, MXS_RULE_ADAMW, MXS_RULE_ADAMW, MXS_ROLE_FLAT, 4, "from 65536") &&
         one({128, 127}, MXS_RULE_ADAMW, MXS_RULE_ADAMW, MXS_ROLE_TAIL, 1, "below 65536") &&
         one({256, 64}, MXS_RULE_EXTERNAL, MXS_RULE_EXTERNAL, MXS_ROLE_MATRIX, 1, "whole") &&
         one({5, 32, 32}, MXS_RULE_EXTERNAL, MXS_RULE_EXTERNAL, MXS_ROLE_BLOCKS, 5, "5 blocks") &&
         one({100000}, MXS_RULE_EXTERNAL, MXS_RULE_EXTERNAL, MXS_ROLE_FLAT, 4, "flat") &&
         one({256, 256}, MXS_RULE_FROZEN, MXS_RULE_FROZEN, MXS_ROLE_FLAT, 4, "evenly") &&
         one({5}, MXS_RULE_FROZEN, MXS_RULE_FROZEN, MXS_ROLE_FLAT, 1, "evenly") &&
         one({8, 4}, MXS_RULE_SHAMPOO, MXS_RULE_SHAMPOO, MXS_ROLE_MATRIX, 1, "shampoo") &&
         one({2, 8, 4}, MXS_RULE_SOAP, MXS_RULE_SOAP, MXS_ROLE_BLOCKS, 2, "soap");
}

bool roles_asked_for_are_obeyed() {
  const auto with = [](mxs_rule given, mxs_role role) {
    Model model;
    model.add("t", {256, 256}, 0, given).role = role;
    return model;
  };
  const auto fixed = [](mxs_rule given) {
    Model model;
    model.add("t", {256, 256}, 0, given).fixed_owner = MXS_FIXED_OWNER(3);
    return model;
  };
  return becomes(with(MXS_RULE_ADAMW, MXS_ROLE_TAIL), MXS_RULE_ADAMW, MXS_ROLE_TAIL, 1, "role tail") &&
         becomes(with(MXS_RULE_FROZEN, MXS_ROLE_TAIL), MXS_RULE_FROZEN, MXS_ROLE_TAIL, 1, "role tail") &&
         becomes(with(MXS_RULE_EXTERNAL, MXS_ROLE_FLAT), MXS_RULE_EXTERNAL, MXS_ROLE_FLAT, 4, "role flat") &&
         becomes(with(MXS_RULE_AUTO, MXS_ROLE_FLAT), MXS_RULE_ADAMW, MXS_ROLE_FLAT, 4, "role flat was asked for") &&
         becomes(with(MXS_RULE_MUON, MXS_ROLE_BLOCKS), MXS_RULE_MUON, MXS_ROLE_MATRIX, 1, "muon was asked for") &&
         becomes(fixed(MXS_RULE_ADAMW), MXS_RULE_ADAMW, MXS_ROLE_TAIL, 1, "owner that was asked for") &&
         becomes(fixed(MXS_RULE_FROZEN), MXS_RULE_FROZEN, MXS_ROLE_TAIL, 1, "owner that was asked for") &&
         is_refused(with(MXS_RULE_MUON, MXS_ROLE_FLAT), {"\"t\"", "role flat", "muon"}) &&
         is_refused(with(MXS_RULE_SOAP, MXS_ROLE_TAIL), {"\"t\"", "role tail", "soap"});
}

bool a_fused_qkv_has_blocks_of_its_own() {
  Model model;
  model.add_blocks("qkv", {1024, 256, 256, 7 * 64}, 64);
  Plan plan;
  if (make(model, 3, &plan) != MXS_OK || !check_plan(plan).empty() || plan.placements.size() != 4) return false;
  const int64_t rows[] = {1024, 256, 256, 448};
  for (size_t block = 0; block < 4; ++block)
    if (plan.placements[block].shape != std::vector<int64_t>{rows[block], 64}) return false;
  // The large one is alone: 64 x 1024 costs as much as the other three.
  return plan.placements[1].owner != plan.placements[0].owner && plan.placements[2].owner != plan.placements[0].owner &&
         plan.tensors[0].role == MXS_ROLE_BLOCKS;
}

bool blocks_off_the_alignment_have_one_owner() {
  Model model;
  model.add_blocks("qkv", {1024, 255, 256}, 64).dtype = MXS_BF16;
  Plan plan;
  if (!becomes(model, MXS_RULE_MUON, MXS_ROLE_BLOCKS, 3, "one owner, since not every block") ||
      make(model, 4, &plan) != MXS_OK)
    return false;
  for (const Placement &piece : plan.placements)
    if (piece.owner != plan.placements[0].owner) return false;
  Model gradients;
  gradients.options.alignment = 64;
  mxs_tensor &tensor = gradients.add("t", {4, 4, 4}, 0, MXS_RULE_EXTERNAL);
  tensor.dtype = MXS_F32;
  tensor.gradient_dtype = MXS_BF16;  // a block has 64 bytes, but 32 bytes of gradient
  return becomes(gradients, MXS_RULE_EXTERNAL, MXS_ROLE_BLOCKS, 4, "one owner");
}

bool tied_tensors_share() {
  Model model;
  model.add("head", {256, 256}, 2).tied_to = "embedding";
  mxs_tensor &embedding = model.add("embedding", {256, 256}, 2, MXS_RULE_ADAMW);
  embedding.group = 5;
  Plan plan;
  if (make(model, 4, &plan) != MXS_OK || !check_plan(plan).empty()) return false;
  const PlannedTensor &head = plan.tensors[0];
  return head.role == MXS_ROLE_TIED && head.tied_to == 1 && head.rule == MXS_RULE_ADAMW && head.group == 5 &&
         head.placement_count == 0 && plan.units[2].weights.bytes == 256 * 256 * 4 &&
         plan.units[2].tensors == std::vector<int>{1};
}

bool bad_ties_are_refused() {
  const auto tied = [](const std::function<void(mxs_tensor &)> &spoil, const char *to, const char *word) {
    Model model;
    model.add("base", {8, 8}).gradient_dtype = MXS_BF16;
    model.add("second", {8, 8}).tied_to = "base";
    mxs_tensor &tensor = model.add("spoilt", {8, 8});
    tensor.tied_to = to;
    spoil(tensor);
    return is_refused(model, {"spoilt", word});
  };
  const auto nothing = [](mxs_tensor &) {};
  return tied(nothing, "nobody", "no tensor has that name") && tied(nothing, "spoilt", "itself") &&
         tied(nothing, "second", "tied too") && tied([](mxs_tensor &t) { t.unit = 1; }, "base", "unit 1") &&
         tied([](mxs_tensor &t) { t.shape[0] = 4; }, "base", "(4, 8)") &&
         tied([](mxs_tensor &t) { t.dtype = MXS_BF16; }, "base", "dtype is bf16") &&
         tied([](mxs_tensor &t) { t.gradient_dtype = MXS_F16; }, "base", "gradient_dtype is f16") &&
         tied([](mxs_tensor &t) { t.master_dtype = MXS_BF16; }, "base", "master_dtype is bf16") &&
         tied([](mxs_tensor &t) { t.fixed_owner = 1; }, "base", "fixed_owner") &&
         tied([](mxs_tensor &t) { t.role = MXS_ROLE_FLAT; }, "base", "role");
}

bool bad_fields_are_refused() {
  static const int64_t rows_short[] = {3, 4}, rows_zero[] = {8, 0}, rows_negative[] = {9, -1};
  const auto blocks = [](const int64_t *rows, int count) {
    return [=](mxs_tensor &t) {
      t.block_rows = rows;
      t.block_count = count;
    };
  };
  return spoilt_is_refused([](mxs_tensor &t) { t.dtype = 9; }, "dtype is 9") &&
         spoilt_is_refused([](mxs_tensor &t) { t.master_dtype = -1; }, "master_dtype is -1") &&
         spoilt_is_refused([](mxs_tensor &t) { t.gradient_dtype = 6; }, "gradient_dtype is 6") &&
         spoilt_is_refused([](mxs_tensor &t) { t.gradient_dtype = MXS_U8; }, "gradient_dtype is u8") &&
         spoilt_is_refused([](mxs_tensor &t) { t.dtype = MXS_F64; }, "f64") &&
         spoilt_is_refused([](mxs_tensor &t) { t.master_dtype = MXS_F16; }, "master_dtype is f16") &&
         spoilt_is_refused([](mxs_tensor &t) { t.dimension_count = 9; }, "dimension_count is 9") &&
         spoilt_is_refused([](mxs_tensor &t) { t.dimension_count = -1; }, "dimension_count is -1") &&
         spoilt_is_refused([](mxs_tensor &t) { t.shape[1] = -8; }, "shape[1] is -8") &&
         spoilt_is_refused([](mxs_tensor &t) { t.group = -1; }, "group is -1") &&
         spoilt_is_refused([](mxs_tensor &t) { t.rule = 7; }, "rule is 7") &&
         spoilt_is_refused([](mxs_tensor &t) { t.rule = -1; }, "rule is -1") &&
         spoilt_is_refused([](mxs_tensor &t) { t.role = 6; }, "role is 6") &&
         spoilt_is_refused([](mxs_tensor &t) { t.role = MXS_ROLE_TIED; }, "tied_to is NULL") &&
         spoilt_is_refused([](mxs_tensor &t) { t.fixed_owner = MXS_FIXED_OWNER(4); }, "fixed_owner is rank 4") &&
         spoilt_is_refused([](mxs_tensor &t) { t.fixed_owner = INT32_MIN; }, "fixed_owner") &&
         spoilt_is_refused([](mxs_tensor &t) { t.co_owners = -1; }, "co_owners is -1") &&
         spoilt_is_refused(blocks(rows_short, 2), "add up to 7") && spoilt_is_refused(blocks(rows_zero, 2), "is 0") &&
         spoilt_is_refused(blocks(rows_negative, 2), "is -1") &&
         spoilt_is_refused(blocks(rows_short, 0), "block_count") &&
         spoilt_is_refused(blocks(nullptr, 2), "block_rows is NULL") &&
         spoilt_is_refused(
             [&](mxs_tensor &t) {
               blocks(rows_short, 2)(t);
               t.dimension_count = 3;
             },
             "by its leading index") &&
         spoilt_is_refused([](mxs_tensor &t) { t.rule = MXS_RULE_MUON, t.dimension_count = 1; }, "use rule adamw") &&
         spoilt_is_refused([](mxs_tensor &t) { t.rule = MXS_RULE_MUON, t.dimension_count = 4; }, "2-D or 3-D view") &&
         spoilt_is_refused(
             [](mxs_tensor &t) { t.rule = MXS_RULE_ADAMW, t.role = MXS_ROLE_FLAT, t.fixed_owner = 1; },
             "no single owner");
}

bool names_and_units_are_checked() {
  Model twice, unnamed, nameless, negative, outside, monstrous;
  twice.add("same", {4});
  twice.add("other", {4});
  twice.add("same", {4});
  unnamed.add("", {4});
  nameless.add("x", {4}).name = nullptr;
  negative.add("x", {4}, -1);
  outside.add("x", {4}, 3);
  outside.options.unit_count = 3;
  monstrous.add("x", {4}, INT32_MAX);
  return is_refused(twice, {"tensors[2].name", "\"same\"", "tensors[0]"}) && is_refused(unnamed, {"tensors[0].name"}) &&
         is_refused(nameless, {"tensors[0].name is NULL"}) && is_refused(negative, {"unit is -1"}) &&
         is_refused(outside, {"\"x\"", "unit is 3"}) && is_refused(monstrous, {"unit is 2147483647"});
}

bool sizes_beyond_2_to_the_62_are_refused() {
  Model elements, bytes, sum, stack, squares;
  elements.add("huge", {int64_t{1} << 40, int64_t{1} << 40});
  bytes.add("huge", {int64_t{1} << 61, 1}, 0, MXS_RULE_FROZEN);
  for (int index = 0; index < 20; ++index) sum.add(numbered("part", index), {int64_t{1} << 56});
  stack.add("huge", {int64_t{1} << 30, 1, 1});
  squares.add("huge", {int64_t{1} << 40, 1}, 0, MXS_RULE_SHAMPOO);
  return is_refused(elements, {"\"huge\"", "2^62"}) && is_refused(bytes, {"\"huge\"", "2^62"}) &&
         is_refused(sum, {"\"part2\"", "2^62"}) && is_refused(stack, {"\"huge\"", "stack"}) &&
         is_refused(squares, {"\"huge\"", "2^62"});
}

bool bad_options_are_refused() {
  const auto with = [](uint64_t alignment, int unit_count) {
    Model model;
    model.add("t", {4});
    model.options.alignment = alignment;
    model.options.unit_count = unit_count;
    return model;
  };
  return is_refused(with(3, 0), {"alignment is 3"}) && is_refused(with(32, 0), {"alignment is 32"}) &&
         is_refused(with(uint64_t{1} << 62, 0), {"alignment"}) && is_refused(with(0, -2), {"unit_count is -2"}) &&
         is_refused(with(0, INT32_MAX), {"unit_count is 2147483647"});
}

bool frozen_bytes_have_no_master_and_no_gradient() {
  Model model;
  model.add("quantised", {4096, 4}, 0, MXS_RULE_FROZEN).dtype = MXS_U8;
  Plan plan;
  return make(model, 2, &plan) == MXS_OK && plan.tensors[0].master_dtype == MXS_U8 &&
         plan.rank_owned_bytes[0] + plan.rank_owned_bytes[1] == 4096 * 4 && plan.units[0].gradients.bytes == 0;
}

void rule_auto_is_muon_for_matrices_and_adamw_for_the_rest(void **) { assert_true(auto_is_muon_for_matrices()); }
void each_rule_has_its_roles(void **) { assert_true(other_rules_keep_their_roles()); }
void flat_tail_and_fixed_owners_are_obeyed_but_never_tear_a_matrix(void **) {
  assert_true(roles_asked_for_are_obeyed());
}
void a_fused_qkv_of_unequal_rows_is_three_matrices_or_more(void **) {
  assert_true(a_fused_qkv_has_blocks_of_its_own());
}
void blocks_off_the_alignment_go_to_one_owner_and_the_reason_says_so(void **) {
  assert_true(blocks_off_the_alignment_have_one_owner());
}
void a_tied_tensor_has_no_bytes_and_takes_all_from_the_other(void **) { assert_true(tied_tensors_share()); }
void bad_ties_are_named(void **) { assert_true(bad_ties_are_refused()); }
void bad_fields_are_named(void **) { assert_true(bad_fields_are_refused()); }
void bad_names_and_units_are_named(void **) { assert_true(names_and_units_are_checked()); }
void more_than_2_to_the_62_bytes_are_refused(void **) { assert_true(sizes_beyond_2_to_the_62_are_refused()); }
void bad_options_are_named(void **) { assert_true(bad_options_are_refused()); }
void a_frozen_tensor_is_stored_only(void **) { assert_true(frozen_bytes_have_no_master_and_no_gradient()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(rule_auto_is_muon_for_matrices_and_adamw_for_the_rest),
      cmocka_unit_test(each_rule_has_its_roles),
      cmocka_unit_test(flat_tail_and_fixed_owners_are_obeyed_but_never_tear_a_matrix),
      cmocka_unit_test(a_fused_qkv_of_unequal_rows_is_three_matrices_or_more),
      cmocka_unit_test(blocks_off_the_alignment_go_to_one_owner_and_the_reason_says_so),
      cmocka_unit_test(a_tied_tensor_has_no_bytes_and_takes_all_from_the_other),
      cmocka_unit_test(bad_ties_are_named),
      cmocka_unit_test(bad_fields_are_named),
      cmocka_unit_test(bad_names_and_units_are_named),
      cmocka_unit_test(more_than_2_to_the_62_bytes_are_refused),
      cmocka_unit_test(bad_options_are_named),
      cmocka_unit_test(a_frozen_tensor_is_stored_only),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
