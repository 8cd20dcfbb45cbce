// SPDX-License-Identifier: Apache-2.0
// Tensors that the caller describes: what is chosen for them is what a file of them would have got, what they say
// themselves stands, and what no plan would take is refused here already.
#include <algorithm>
#include <cinttypes>
#include <cstddef>
#include <functional>
#include <memory>

#include "models.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

std::string folder;  // of the configurations

mxs_tensor tensor_of(const char *name, const std::vector<int64_t> &shape, int32_t unit = -1) {
  mxs_tensor tensor = MXS_TENSOR_INIT;
  tensor.name = name;
  tensor.dimension_count = static_cast<int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.shape);
  tensor.unit = unit;
  return tensor;
}

// A word for the first field that differs, else "".
std::string difference(const mxs_tensor &one, const mxs_tensor &other) {
  const auto text = [](const char *given) { return std::string(given ? given : "(none)"); };
  const auto numbers = [](const int64_t *given, int32_t count) {
    return given ? std::vector<int64_t>(given, given + count) : std::vector<int64_t>();
  };
  if (text(one.name) != text(other.name)) return "name";
  if (text(one.tied_to) != text(other.tied_to)) return "tied_to";
  if (numbers(one.shape, one.dimension_count) != numbers(other.shape, other.dimension_count)) return "shape";
  if (numbers(one.block_rows, one.block_count) != numbers(other.block_rows, other.block_count)) return "block_rows";
  if (numbers(one.block_columns, one.block_column_count) != numbers(other.block_columns, other.block_column_count))
    return "block_columns";
  const struct {
    const char *field;
    int64_t one, other;
  } fields[] = {{"dtype", one.dtype, other.dtype}, {"master_dtype", one.master_dtype, other.master_dtype},
                {"gradient_dtype", one.gradient_dtype, other.gradient_dtype}, {"unit", one.unit, other.unit},
                {"rule", one.rule, other.rule}, {"group", one.group, other.group}, {"role", one.role, other.role},
                {"fixed_owner", one.fixed_owner, other.fixed_owner}, {"co_owners", one.co_owners, other.co_owners},
                {"transposed", one.transposed, other.transposed}, {"whole_rows", one.whole_rows, other.whole_rows},
                {"whole_columns", one.whole_columns, other.whole_columns}};
  for (const auto &each : fields)
    if (each.one != each.other) return each.field;
  return "";
}

std::string difference(const Loaded &one, const Loaded &other) {
  if (one.count != other.count) return words("%" PRIu64 " tensors, not %" PRIu64, other.count, one.count);
  for (uint64_t index = 0; index < one.count; ++index) {
    const std::string field = difference(one.tensors[index], other.tensors[index]);
    if (!field.empty()) return std::string(one.tensors[index].name) + ": " + field;
    if (one.unit_name(one.tensors[index].name) != other.unit_name(one.tensors[index].name)) return "a unit's name";
  }
  return mxs_model_unit_count(one.model) == mxs_model_unit_count(other.model) ? "" : "unit_count";
}

// The file's tensors without what was chosen for them.
std::string is_chosen_again(const char *name) {
  mxs_model_options options = MXS_MODEL_OPTIONS_INIT;
  options.gradient_dtype = MXS_F32;
  options.matrix_rule = MXS_RULE_SOAP;
  const Loaded file(folder + "/" + name + ".json", &options);
  if (file.status != MXS_OK) return error_of("load");
  std::vector<mxs_tensor> plain(file.tensors, file.tensors + file.count);
  for (mxs_tensor &tensor : plain) {
    tensor.unit = -1;
    tensor.rule = MXS_RULE_AUTO;
    tensor.gradient_dtype = 0;
  }
  const Loaded given(plain, &options);
  if (given.status != MXS_OK) return error_of("create");
  const std::string title = mxs_model_title(file.model);
  if (mxs_model_title(given.model) != "model" + title.substr(title.find(','))) return mxs_model_title(given.model);
  if (given.notes().find("embeddings and heads") == std::string::npos) return "no notes";
  return difference(file, given);
}

std::string choices_are_those_of_files() {
  for (const char *name : {"llama-3-8b", "gpt2-xl", "qwen2-7b"})
    if (const std::string wrong = is_chosen_again(name); !wrong.empty()) return std::string(name) + ": " + wrong;
  return "";
}

std::string what_tensors_say_stands() {
  auto name = std::make_unique<std::string>("a.0.fused.weight");
  auto rows = std::make_unique<std::vector<int64_t>>(std::vector<int64_t>{16, 8, 8});
  auto columns = std::make_unique<std::vector<int64_t>>(std::vector<int64_t>{8, 24});
  std::vector<mxs_tensor> given = {tensor_of(name->c_str(), {32, 16}, 7), tensor_of("cut", {4, 8, 32}, 0),
                                   tensor_of("sliced", {32, 16}, 2), tensor_of("shared", {32, 16}, 3),
                                   tensor_of("head", {32, 16}, 2), tensor_of("vector", {9}, 2)};
  given[0].block_rows = rows->data();
  given[0].block_count = 3;
  given[0].rule = MXS_RULE_EXTERNAL;
  given[0].fixed_owner = MXS_FIXED_OWNER(5);
  given[1].block_columns = columns->data();
  given[1].block_column_count = 2;
  given[1].transposed = 1;
  given[1].rule = MXS_RULE_SHAMPOO;
  given[1].group = 3;
  given[2].whole_rows = 64;
  given[2].whole_columns = 48;
  given[2].rule = MXS_RULE_MUON;
  given[2].dtype = MXS_BF16;
  given[2].master_dtype = MXS_BF16;
  given[2].gradient_dtype = MXS_F16;
  given[3].co_owners = 4;
  given[3].rule = MXS_RULE_MUON;
  given[3].role = MXS_ROLE_MATRIX;
  given[4].tied_to = "sliced";
  given[5].rule = MXS_RULE_FROZEN;
  given[5].role = MXS_ROLE_FLAT;
  const Loaded model(given);
  if (model.status != MXS_OK) return error_of("create");
  for (size_t index = 0; index < given.size(); ++index)
    if (const std::string field = difference(given[index], model.tensors[index]); !field.empty())
      return std::string(given[index].name) + ": " + field;
  if (mxs_model_unit_count(model.model) != 8 || model.unit_name("head") != "unit 2") return "units by number";
  // All of it is the model's own: what the caller had may go.
  name.reset();
  rows.reset();
  columns.reset();
  given.clear();
  if (!model.find("a.0.fused.weight") || model.tensors[0].block_rows[0] != 16) return "the caller's memory is used";
  return model.tensors[1].block_columns[1] == 24 ? "" : "the caller's columns are used";
}

std::string patterns_go_before_rules_of_tensors() {
  std::vector<mxs_tensor> given = {tensor_of("h.0.a.weight", {8, 8}), tensor_of("h.0.b.weight", {8, 8}),
                                   tensor_of("h.1.a.weight", {8, 8}), tensor_of("h.1.norm.weight", {8}),
                                   tensor_of("lm_head.weight", {8, 8}), tensor_of("wte.weight", {8, 8})};
  given[0].rule = given[1].rule = MXS_RULE_EXTERNAL;
  given[0].dtype = MXS_F16;
  given[4].tied_to = "wte.weight";
  mxs_model_rule rule = MXS_MODEL_RULE_INIT;
  rule.pattern = "*.a.weight";
  rule.rule = MXS_RULE_SHAMPOO;
  rule.group = 2;
  mxs_model_options options = MXS_MODEL_OPTIONS_INIT;
  options.rules = &rule;
  options.rule_count = 1;
  options.dtype = MXS_BF16;
  options.matrix_rule = MXS_RULE_SOAP;
  const Loaded model(given, &options);
  if (model.status != MXS_OK) return error_of("create");
  const mxs_rule rules[] = {MXS_RULE_SHAMPOO, MXS_RULE_EXTERNAL, MXS_RULE_SHAMPOO, MXS_RULE_ADAMW, MXS_RULE_AUTO,
                            MXS_RULE_ADAMW};
  const int32_t units[] = {1, 1, 2, 2, 0, 0};  // the head lies where the embedding's bytes are
  for (size_t index = 0; index < given.size(); ++index) {
    const mxs_tensor &tensor = model.tensors[index];
    if (tensor.rule != rules[index] || tensor.unit != units[index] || tensor.dtype != MXS_BF16 ||
        tensor.group != (rules[index] == MXS_RULE_SHAMPOO ? 2 : 0))
      return tensor.name;
  }
  if (model.unit_name("h.1.norm.weight") != "h.1") return "names of units";
  // A program that knows no block_columns yet: its structs are shorter, and so are the steps between them.
  constexpr size_t old_bytes = offsetof(mxs_tensor, block_columns);
  std::vector<uint64_t> old(given.size() * old_bytes / 8);
  for (size_t index = 0; index < given.size(); ++index) {
    given[index].size = old_bytes;
    std::memcpy(old.data() + index * old_bytes / 8, &given[index], old_bytes);
  }
  mxs_model *same = nullptr;
  if (mxs_model_create(&same, reinterpret_cast<const mxs_tensor *>(old.data()), given.size(), nullptr) != MXS_OK)
    return error_of("old structs");
  mxs_model_destroy(&same);
  return "";
}

std::string units_are_of_all_or_of_none() {
  std::vector<mxs_tensor> given = {tensor_of("a", {8, 8}, 1), tensor_of("b", {8, 8}, -1)};
  const std::string wrong = expect(Loaded(given).status, MXS_INVALID_ARGUMENT, {"\"b\"", "no unit, but others have"});
  if (!wrong.empty()) return wrong;
  given[1].tied_to = "a";
  const Loaded tied(given);
  if (tied.status != MXS_OK) return error_of("tied");
  return tied.tensors[1].unit == 1 ? "" : "a tied tensor isn't where its bytes are";
}

// `change` spoils the second of two good tensors, or the options.
std::string refuses(const std::function<void(mxs_tensor &, mxs_model_options &)> &change,
                    const std::vector<std::string> &said, mxs_status wanted = MXS_INVALID_ARGUMENT) {
  std::vector<mxs_tensor> given = {tensor_of("a", {8, 8}, 0), tensor_of("b", {8, 8}, 0)};
  mxs_model_options options = MXS_MODEL_OPTIONS_INIT;
  change(given[1], options);
  const Loaded model(given, &options);
  if (model.model) return "the output was touched";
  return expect(model.status, wanted, said);
}

std::string what_no_plan_would_take_is_refused() {
  using Tensor = mxs_tensor &;
  using Options = mxs_model_options &;
  const int64_t sides[] = {4, 5};
  const mxs_model_rule rule = {sizeof(mxs_model_rule), MXS_RULE_MUON, "c*", 0, 0};
  const struct {
    std::function<void(mxs_tensor &, mxs_model_options &)> change;
    std::vector<std::string> said;
    mxs_status status = MXS_INVALID_ARGUMENT;
  } cases[] = {
      {[](Tensor t, Options) { t.name = nullptr; }, {"tensors[1].name is NULL"}},
      {[](Tensor t, Options) { t.name = ""; }, {"tensors[1].name is empty"}},
      {[](Tensor t, Options) { t.name = "a"; }, {"tensors[1].name", "\"a\"", "tensors[0]"}},
      {[](Tensor t, Options) { t.name = "b\xff"; }, {"tensors[1].name is not UTF-8"}},
      {[](Tensor t, Options) { t.name = "b\xc3"; }, {"tensors[1].name is not UTF-8"}},
      {[](Tensor t, Options) { t.size = 8; }, {"tensors[1].size"}},
      {[](Tensor t, Options) { t.dtype = 77; }, {"\"b\"", "dtype is 77"}},
      {[](Tensor t, Options) { t.rule = 77; }, {"\"b\"", "rule is 77"}},
      {[](Tensor t, Options) { t.role = -1; }, {"\"b\"", "role is -1"}},
      {[](Tensor t, Options) { t.role = MXS_ROLE_TIED; }, {"\"b\"", "tied_to is NULL"}},
      {[](Tensor t, Options) { t.unit = -2; }, {"\"b\"", "unit is -2"}},
      {[](Tensor t, Options) { t.unit = INT32_MAX; }, {"\"b\"", "unit is 2147483647"}},
      {[](Tensor t, Options) { t.group = -1; }, {"\"b\"", "group"}},
      {[](Tensor t, Options) { t.fixed_owner = -1; }, {"\"b\"", "fixed_owner"}},
      {[](Tensor t, Options) { t.co_owners = -1; }, {"\"b\"", "co_owners"}},
      {[](Tensor t, Options) { t.transposed = 2; }, {"\"b\"", "transposed is 2"}},
      {[](Tensor t, Options) { t.whole_rows = 7; }, {"\"b\"", "whole_rows"}},
      {[](Tensor t, Options) { t.dimension_count = 9; }, {"\"b\"", "dimension_count is 9"}},
      {[](Tensor t, Options) { t.dimension_count = -1; }, {"\"b\"", "dimension_count is -1"}},
      {[](Tensor t, Options) { t.shape[0] = -1; }, {"\"b\"", "shape[0] is -1"}},
      {[](Tensor t, Options) { t.shape[0] = INT64_MAX; }, {"\"b\"", "2^62"}},
      {[](Tensor t, Options) { t.shape[0] = int64_t{1} << 59; }, {"\"b\"", "2^62"}},  // with the 64 of a
      {[](Tensor t, Options) { t.block_count = 2; }, {"\"b\"", "block_rows is NULL"}},
      {[&](Tensor t, Options) { t.block_rows = sides, t.block_count = 2; }, {"\"b\"", "add up to 9"}},
      {[&](Tensor t, Options) { t.block_rows = t.block_columns = sides; }, {"\"b\"", "both"}},
      {[](Tensor t, Options) { t.tied_to = ""; }, {"\"b\"", "no tensor has that name"}},
      {[](Tensor t, Options) { t.tied_to = "c"; }, {"\"b\"", "\"c\"", "no tensor has that name"}},
      {[](Tensor t, Options) { t.tied_to = "b"; }, {"\"b\"", "itself"}},
      {[](Tensor t, Options) { t.tied_to = "a", t.unit = 3; }, {"\"b\" of unit 3", "\"a\" of unit 0", "one unit"}},
      {[](Tensor t, Options) { t.tied_to = "a", t.shape[0] = 9; }, {"(9, 8)", "(8, 8)"}},
      {[](Tensor t, Options) { t.tied_to = "a", t.fixed_owner = 1; }, {"\"b\"", "fixed_owner is set", "\"a\""}},
      {[](Tensor, Options o) { o.dtype = 77; }, {"options.dtype is 77"}},
      {[](Tensor, Options o) { o.size = 4; }, {"options.size"}},
      {[&](Tensor, Options o) { o.rules = &rule, o.rule_count = 1; }, {"\"c*\"", "matches none of 2"}, MXS_NOT_FOUND},
  };
  for (const auto &each : cases)
    if (const std::string wrong = refuses(each.change, each.said, each.status); !wrong.empty())
      return each.said[0] + ": " + wrong;
  return "";
}

std::string nulls_and_counts_are_refused() {
  mxs_tensor tensor = tensor_of("a", {8, 8});
  mxs_model *model = nullptr;
  std::string wrong = expect(mxs_model_create(nullptr, &tensor, 1, nullptr), MXS_INVALID_ARGUMENT, {"model is NULL"});
  const auto refuse = [&](const mxs_tensor *tensors, uint64_t count, const char *said) {
    if (wrong.empty()) wrong = expect(mxs_model_create(&model, tensors, count, nullptr), MXS_INVALID_ARGUMENT, {said});
    if (wrong.empty() && model) wrong = "the output was touched";
  };
  refuse(nullptr, 1, "tensors is NULL");
  refuse(&tensor, 0, "tensor_count is 0");
  refuse(&tensor, UINT64_MAX, "more than 1048576");
  return wrong;
}

std::string a_plan_takes_it() {
  const Loaded model({tensor_of("wte.weight", {64, 16}), tensor_of("h.0.w", {16, 16}), tensor_of("h.0.b", {16}),
                      tensor_of("h.1.w", {16, 16}), tensor_of("ln_f.weight", {16})});
  if (model.status != MXS_OK) return error_of("create");
  mxs_topology *topology = nullptr;
  mxs_plan *plan = nullptr;
  mxs_status status = mxs_topology_create(&topology, "ranks:3");
  if (status == MXS_OK) status = mxs_plan_create(&plan, model.tensors, model.count, topology, nullptr);
  const int32_t units = mxs_plan_unit_count(plan);
  const uint64_t matrices = mxs_plan_matrix_count(plan);
  mxs_plan_destroy(&plan);
  mxs_topology_destroy(&topology);
  if (status != MXS_OK) return error_of("plan");
  return units == 4 && matrices == 2 ? "" : words("%d units, %d matrices", units, static_cast<int>(matrices));
}

void chosen(void **) { assert_true(good(choices_are_those_of_files())); }
void stands(void **) { assert_true(good(what_tensors_say_stands())); }
void patterns(void **) { assert_true(good(patterns_go_before_rules_of_tensors())); }
void units(void **) { assert_true(good(units_are_of_all_or_of_none())); }
void refused(void **) { assert_true(good(what_no_plan_would_take_is_refused())); }
void nulls(void **) { assert_true(good(nulls_and_counts_are_refused())); }
void planned(void **) { assert_true(good(a_plan_takes_it())); }

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) return 1;
  folder = argv[1];
  const CMUnitTest tests[] = {
      {"choices_are_those_of_files", chosen, nullptr, nullptr, nullptr},
      {"what_tensors_say_stands", stands, nullptr, nullptr, nullptr},
      {"patterns_go_before_rules_of_tensors", patterns, nullptr, nullptr, nullptr},
      {"units_are_of_all_or_of_none", units, nullptr, nullptr, nullptr},
      {"what_no_plan_would_take_is_refused", refused, nullptr, nullptr, nullptr},
      {"nulls_and_counts_are_refused", nulls, nullptr, nullptr, nullptr},
      {"a_plan_takes_it", planned, nullptr, nullptr, nullptr},
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
