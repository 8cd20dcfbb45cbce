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
         one({256, 64}, MXS_RULE_ADAMW, MXS_RULE_ADAMW, MXS_ROLE_FLAT, 1, "from 65536") &&
         one({256, 256}, MXS_RULE_ADAMW, MXS_RULE_ADAMW, MXS_ROLE_FLAT, 4, "from 65536") &&
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
         becomes(with(MXS_RULE_MUON, MXS_ROLE_BLOCKS), MXS_RULE_MUON, MXS_ROLE_MATRIX, 1, "muon as described") &&
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
  model.add_blocks("qkv", {1023, 256, 256}, 64).dtype = MXS_BF16;
  Plan plan;
  if (!becomes(model, MXS_RULE_MUON, MXS_ROLE_BLOCKS, 3, "one owner, since no border") ||
      make(model, 4, &plan) != MXS_OK)
    return false;
  for (const Placement &piece : plan.placements)
    if (piece.owner != plan.placements[0].owner) return false;
  return true;
}

// Pieces of one run have one owner, and in a world of so many ranks each run has another.
bool has_runs(const Model &model, const std::vector<int> &runs, int rank_count, const char *word) {
  Plan plan;
  if (make(model, rank_count, &plan) != MXS_OK || !check_plan(plan).empty() || plan.placements.size() != runs.size() ||
      plan.tensors[0].reason.find(word) == std::string::npos) {
    print_error("%s %s\n", last_error_text(), plan.tensors.empty() ? "" : plan.tensors[0].reason.c_str());
    return false;
  }
  for (size_t a = 0; a < runs.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      if ((plan.placements[a].owner == plan.placements[b].owner) != (runs[a] == runs[b])) return false;
  return true;
}

bool borders_that_fall_right_part_owners() {
  // Rows of 128 bytes: 32 of them are a page, so that the borders at rows 64 and 128 part owners, but not that at 100.
  Model model, fixed, gradients;
  model.add_blocks("qkv", {64, 36, 28, 33}, 64).dtype = MXS_BF16;
  fixed.add_blocks("qkv", {64, 36, 28, 33}, 64).fixed_owner = MXS_FIXED_OWNER(1);
  // Borders of weights at 64, 128 and 192 bytes; those of gradients at 32, 64 and 96.
  gradients.options.alignment = 64;
  mxs_tensor &tensor = gradients.add("t", {4, 4, 4});
  tensor.dtype = MXS_F32;
  tensor.gradient_dtype = MXS_BF16;
  return has_runs(model, {0, 1, 1, 2}, 3, "4 blocks in 3 runs, each of one owner, since not every border") &&
         has_runs(fixed, {0, 0, 0, 0}, 3, "4 blocks") && has_runs(gradients, {0, 0, 1, 1}, 2, "64 bytes of gradients");
}

bool stacks_are_cut_by_rows_too() {
  // Gate and up of 3 experts, 5 and 3 rows of 4,096 bytes: all borders are good.
  Model model;
  model.cut_rows(&model.add("gate_up", {3, 8, 1024}), {5, 3});
  Plan plan;
  if (!has_runs(model, {0, 1, 2, 3, 4, 5}, 6, "6 blocks") || make(model, 6, &plan) != MXS_OK) return false;
  uint64_t offset = 0;
  for (size_t index = 0; index < 6; ++index) {
    const Placement &piece = plan.placements[index];
    const int64_t rows = index % 2 ? 3 : 5;
    const Matrix &matrix = plan.matrices[index];
    if (piece.shape != std::vector<int64_t>{rows, 1024} || piece.element_offset != offset ||
        piece.block != static_cast<int>(index) || matrix.rows != rows || matrix.scale_rows != rows)
      return false;
    offset += static_cast<uint64_t>(rows) * 1024;
  }
  Model odd, none;
  odd.cut_rows(&odd.add("gate_up", {3, 8, 1023}), {5, 3});
  none.cut_rows(&none.add("gate_up", {0, 8, 1024}), {5, 3});
  return becomes(odd, MXS_RULE_MUON, MXS_ROLE_BLOCKS, 6, "6 blocks of one owner") &&
         becomes(none, MXS_RULE_MUON, MXS_ROLE_BLOCKS, 1, "1 block");
}

// Of the last tensor: rows, columns, scale_rows, scale_columns of each matrix.
using Shapes = std::vector<std::vector<int64_t>>;
bool has_matrices(const Model &model, const Shapes &wanted, const char *word, int rank_count = 3) {
  Plan plan;
  if (make(model, rank_count, &plan) != MXS_OK || !check_plan(plan).empty()) {
    print_error("%s\n", last_error_text());
    return false;
  }
  Shapes shapes;
  for (const Matrix &matrix : plan.matrices)
    shapes.push_back({matrix.rows, matrix.columns, matrix.scale_rows, matrix.scale_columns});
  if (shapes == wanted && plan.tensors[0].reason.find(word) != std::string::npos) return true;
  print_error("other matrices, or \"%s\" without \"%s\"\n", plan.tensors[0].reason.c_str(), word);
  return false;
}

Model with_columns(std::vector<int64_t> shape, std::vector<int64_t> columns,
                   const std::function<void(mxs_tensor &)> &change = [](mxs_tensor &) {}) {
  Model model;
  mxs_tensor &tensor = model.add("t", std::move(shape));
  model.cut_columns(&tensor, std::move(columns));
  change(tensor);
  return model;
}

bool columns_are_matrices_of_one_owner() {
  const Model gpt2 = with_columns({768, 2304}, {768, 768, 768}, [](mxs_tensor &t) { t.transposed = 1; });
  const Shapes square = {{768, 768, 768, 768}, {768, 768, 768, 768}, {768, 768, 768, 768}};
  Plan plan;
  if (make(gpt2, 3, &plan) != MXS_OK || plan.placements.size() != 1 || plan.tensors[0].role != MXS_ROLE_MATRIX)
    return false;
  const Placement &piece = plan.placements[0];
  // Cost and flops are those of three squares, not of 768 x 2,304.
  const double flops = 3 * step_flops(MXS_RULE_MUON, {768, 768});
  return piece.matrix_count == 3 && plan.matrices[1].element_offset == 768 && plan.matrices[1].row_stride == 2304 &&
         rank_load(plan, piece.owner).step_flops == flops && rank_load(plan, piece.owner).matrix_count == 3 &&
         has_matrices(gpt2, square, "its columns are 3 matrices; stored transposed") &&
         has_matrices(with_columns({10, 7}, {4, 1, 2}), {{10, 4, 10, 4}, {10, 1, 10, 1}, {10, 2, 10, 2}},
                      "3 matrices") &&
         has_matrices(with_columns({10, 7}, {7}), {{10, 7, 10, 7}}, "1 matrix") &&
         has_matrices(with_columns({2, 5, 6}, {2, 4}, [](mxs_tensor &t) { t.transposed = 1; }),
                      {{5, 2, 2, 5}, {5, 4, 4, 5}, {5, 2, 2, 5}, {5, 4, 4, 5}}, "the columns of each are 2 matrices") &&
         has_matrices(with_columns({3, 4}, {4}, [](mxs_tensor &t) { t.rule = MXS_RULE_ADAMW; }), {},
                      "block_columns have no meaning");
}

bool scaling_sees_the_whole_matrix() {
  const auto whole = [](int64_t rows, int64_t columns, int transposed = 0) {
    return [=](mxs_tensor &t) {
      t.whole_rows = rows;
      t.whole_columns = columns;
      t.transposed = transposed;
    };
  };
  const auto matrix = [](std::vector<int64_t> shape, const std::function<void(mxs_tensor &)> &change) {
    Model model;
    change(model.add("t", std::move(shape)));
    return model;
  };
  Model rows, stack, adamw;
  whole(96, 0)(rows.add_blocks("qkv", {16, 4, 4}, 32));
  mxs_tensor &experts = stack.add("gate_up", {2, 12, 8});
  stack.cut_rows(&experts, {4, 8});
  whole(24, 40, 1)(experts);
  mxs_tensor &tail = adamw.add("t", {4, 4}, 0, MXS_RULE_ADAMW);
  whole(8, 0)(tail);
  return has_matrices(matrix({6, 4}, whole(0, 0, 1)), {{6, 4, 4, 6}}, "stored transposed") &&
         has_matrices(matrix({6, 4}, whole(48, 0)), {{6, 4, 48, 4}}, "scaled as a piece of (48, 4)") &&
         has_matrices(matrix({6, 4}, whole(0, 9)), {{6, 4, 6, 9}}, "scaled as a piece of (6, 9)") &&
         has_matrices(matrix({0, 4}, whole(7, 4)), {{0, 4, 7, 4}}, "(7, 4)") &&
         has_matrices(matrix({6, 4}, whole(48, 8, 1)), {{6, 4, 8, 48}}, "(48, 8)") &&
         has_matrices(rows, {{16, 32, 64, 32}, {4, 32, 16, 32}, {4, 32, 16, 32}}, "(96, 32)") &&
         has_matrices(stack, {{4, 8, 40, 8}, {8, 8, 40, 16}, {4, 8, 40, 8}, {8, 8, 40, 16}}, "(24, 40)") &&
         has_matrices(with_columns({5, 6}, {2, 4}, whole(0, 9)), {{5, 2, 5, 3}, {5, 4, 5, 6}}, "(5, 9)") &&
         has_matrices(adamw, {}, "whole sizes have no meaning");
}

bool bad_columns_and_scales_are_refused() {
  static const int64_t short_of[] = {3, 4}, with_zero[] = {8, 0}, negative[] = {9, -1}, good[] = {2, 6}, one[] = {8};
  static const int64_t huge[] = {INT64_MAX, INT64_MAX, 8};
  const auto columns = [](const int64_t *lengths, int count) {
    return [=](mxs_tensor &t) {
      t.block_columns = lengths;
      t.block_column_count = count;
    };
  };
  const auto also = [](const std::function<void(mxs_tensor &)> &first, const std::function<void(mxs_tensor &)> &then) {
    return [=](mxs_tensor &t) {
      first(t);
      then(t);
    };
  };
  const auto dimensions = [](int count) { return [=](mxs_tensor &t) { t.dimension_count = count, t.shape[2] = 8; }; };
  const auto rows = [](const int64_t *lengths) {
    return [=](mxs_tensor &t) { t.block_rows = lengths, t.block_count = 2; };
  };
  return spoilt_is_refused(columns(short_of, 2), "block_columns add up to 7, but shape[1] is 8") &&
         spoilt_is_refused(columns(huge, 3), "block_columns add up to") &&
         spoilt_is_refused(columns(with_zero, 2), "block_columns[1] is 0") &&
         spoilt_is_refused(columns(negative, 2), "block_columns[1] is -1") &&
         spoilt_is_refused(columns(good, 0), "block_column_count is 0") &&
         spoilt_is_refused(columns(good, -3), "block_column_count is -3") &&
         spoilt_is_refused(columns(nullptr, 2), "block_column_count is 2, but block_columns is NULL") &&
         spoilt_is_refused(also(columns(good, 2), rows(good)), "both set") &&
         spoilt_is_refused(also(columns(one, 1), dimensions(1)), "block_columns cut a matrix (2 dimensions)") &&
         spoilt_is_refused(also(columns(one, 1), dimensions(4)), "but it has 4") &&
         spoilt_is_refused(also(rows(good), dimensions(1)), "block_rows cut a matrix (2 dimensions)") &&
         spoilt_is_refused(also(rows(good), dimensions(4)), "but it has 4") &&
         spoilt_is_refused(also(columns(good, 2), also(dimensions(3), [](mxs_tensor &t) { t.shape[0] = 1 << 20; })),
                           "a stack of 1048576 matrices cut into 2") &&
         spoilt_is_refused([](mxs_tensor &t) { t.transposed = 7; }, "transposed is 7") &&
         spoilt_is_refused([](mxs_tensor &t) { t.transposed = -1; }, "transposed is -1") &&
         spoilt_is_refused([](mxs_tensor &t) { t.transposed = 1, t.dimension_count = 1; }, "transposed concerns") &&
         spoilt_is_refused([](mxs_tensor &t) { t.whole_rows = -8; }, "whole_rows is -8") &&
         spoilt_is_refused([](mxs_tensor &t) { t.whole_columns = INT64_MIN; }, "whole_columns is -922337") &&
         spoilt_is_refused([](mxs_tensor &t) { t.whole_rows = 7; }, "whole_rows is 7, less than the local shape[0]") &&
         spoilt_is_refused([](mxs_tensor &t) { t.whole_columns = 1; }, "whole_columns is 1, less than") &&
         spoilt_is_refused([](mxs_tensor &t) { t.whole_rows = 8, t.dimension_count = 0; }, "whole_rows concerns") &&
         spoilt_is_refused(also(columns(good, 2), [](mxs_tensor &t) { t.whole_columns = 10; }),
                           "whole_columns is 10, by which block_columns[0], 2 of 8, does not grow to a whole number") &&
         spoilt_is_refused(also(rows(good), [](mxs_tensor &t) { t.whole_rows = INT64_MAX; }), "block_rows[0], 2 of 8");
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
  static const int64_t eight[] = {8};
  const auto nothing = [](mxs_tensor &) {};
  return tied(nothing, "nobody", "no tensor has that name") && tied(nothing, "spoilt", "itself") &&
         tied(nothing, "second", "tied too") && tied([](mxs_tensor &t) { t.unit = 1; }, "base", "unit 1") &&
         tied([](mxs_tensor &t) { t.shape[0] = 4; }, "base", "(4, 8)") &&
         tied([](mxs_tensor &t) { t.dtype = MXS_BF16; }, "base", "dtype is bf16") &&
         tied([](mxs_tensor &t) { t.gradient_dtype = MXS_F16; }, "base", "gradient_dtype is f16") &&
         tied([](mxs_tensor &t) { t.master_dtype = MXS_BF16; }, "base", "master_dtype is bf16") &&
         tied([](mxs_tensor &t) { t.fixed_owner = 1; }, "base", "fixed_owner") &&
         tied([](mxs_tensor &t) { t.role = MXS_ROLE_FLAT; }, "base", "role") &&
         tied([](mxs_tensor &t) { t.block_columns = eight, t.block_column_count = 1; }, "base", "block_columns") &&
         tied([](mxs_tensor &t) { t.block_rows = eight, t.block_count = 1; }, "base", "block_rows") &&
         tied([](mxs_tensor &t) { t.transposed = 1; }, "base", "transposed") &&
         tied([](mxs_tensor &t) { t.whole_rows = 16; }, "base", "whole_rows") &&
         tied([](mxs_tensor &t) { t.whole_columns = 16; }, "base", "whole_columns");
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
               t.shape[2] = 8;
             },
             "but shape[1] is 8") &&
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
void a_run_of_blocks_between_good_borders_has_an_owner_of_its_own(void **) {
  assert_true(borders_that_fall_right_part_owners());
}
void each_matrix_of_a_stack_is_cut_by_rows(void **) { assert_true(stacks_are_cut_by_rows_too()); }
void columns_are_strided_matrices_of_the_tensors_owner(void **) { assert_true(columns_are_matrices_of_one_owner()); }
void scaling_sees_out_and_in_of_the_whole_matrix(void **) { assert_true(scaling_sees_the_whole_matrix()); }
void bad_columns_and_scales_are_named(void **) { assert_true(bad_columns_and_scales_are_refused()); }
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
      cmocka_unit_test(a_run_of_blocks_between_good_borders_has_an_owner_of_its_own),
      cmocka_unit_test(each_matrix_of_a_stack_is_cut_by_rows),
      cmocka_unit_test(columns_are_strided_matrices_of_the_tensors_owner),
      cmocka_unit_test(scaling_sees_out_and_in_of_the_whole_matrix),
      cmocka_unit_test(bad_columns_and_scales_are_named),
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
