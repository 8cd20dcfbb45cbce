// SPDX-License-Identifier: Apache-2.0
// Plans as JSON.
//
//   {"matrixshard_plan": 1, "fingerprint": "0123456789abcdef",
//    "options": {"unit_count": 2, "alignment": 4096, ...},
//    "topology": {"matrixshard_topology": 1, ...},
//    "tensors": [
//     {"name": "w", "shape": [4096, 1024], "unit": 0, "dtype": "bf16", "owners": [3]},
//     {"name": "e", "shape": [257, 1024], "unit": 1, "rule": "adamw", "owners": [0, 1], "elements": [135168, 128000]},
//     {"name": "h", "shape": [257, 1024], "unit": 1, "tied_to": "e"}]}
//
// A tensor has what its caller said and who owns its pieces, in their order. Where pieces can't be told from that (the
// shares of flat tensors) it has their elements, too. All else follows, and the fingerprint shows that it does.
#include <iterator>

#include "base/arithmetic.hpp"
#include "base/json.hpp"
#include "base/json_field.hpp"
#include "base/status.hpp"
#include "plan/saved.hpp"
#include "plan/stages.hpp"
#include "topology/json.hpp"

namespace mxs {
namespace {

constexpr int64_t version = 1;
constexpr int64_t number_max = INT64_MAX;

// What a caller may leave at 0, which the file then leaves out.
struct NumberField {
  const char *name;
  int GivenTensor::*member;
  const char *const *words;  // nullptr: it is a number
  int most;
  int zero;  // added to what the file has: a fixed owner of rank 0 is 1
};
constexpr NumberField number_fields[] = {
    {"dtype", &GivenTensor::dtype, dtype_words, MXS_U8, 0},
    {"master_dtype", &GivenTensor::master_dtype, dtype_words, MXS_U8, 0},
    {"gradient_dtype", &GivenTensor::gradient_dtype, dtype_words, MXS_U8, 0},
    {"rule", &GivenTensor::rule, rule_words, MXS_RULE_SOAP, 0},
    {"role", &GivenTensor::role, role_words, MXS_ROLE_TIED, 0},
    {"group", &GivenTensor::group, nullptr, INT32_MAX, 0},
    {"fixed_owner", &GivenTensor::fixed_owner, nullptr, INT32_MAX - 1, 1},
    {"co_owners", &GivenTensor::co_owners, nullptr, INT32_MAX, 0},
    {"transposed", &GivenTensor::transposed, nullptr, 1, 0},
};
struct OptionField {
  const char *name;
  uint64_t mxs_plan_options::*member;
};
constexpr OptionField wide_options[] = {
    {"alignment", &mxs_plan_options::alignment},
    {"flat_bytes", &mxs_plan_options::flat_bytes},
    {"rank_bytes_max", &mxs_plan_options::rank_bytes_max},
    {"matrix_flops_per_second", &mxs_plan_options::matrix_flops_per_second},
    {"memory_bytes_per_second", &mxs_plan_options::memory_bytes_per_second},
    {"search_moves_max", &mxs_plan_options::search_moves_max},
};
struct WeightField {
  const char *name;
  uint32_t mxs_plan_options::*member;
};
constexpr WeightField weight_options[] = {
    {"step_weight", &mxs_plan_options::step_weight},
    {"bytes_weight", &mxs_plan_options::bytes_weight},
    {"egress_weight", &mxs_plan_options::egress_weight},
};

// ---- writing ----

// "name": where an object continues.
std::string &begin_field(std::string *text, const char *name) {
  return text->append(", \"").append(name).append("\": ");
}

template <class Number>
void write_numbers(std::string *text, const char *name, const std::vector<Number> &numbers) {
  begin_field(text, name).push_back('[');
  for (size_t index = 0; index < numbers.size(); ++index)
    text->append(index ? ", " : "").append(std::to_string(numbers[index]));
  text->push_back(']');
}

void write_given(const GivenTensor &given, std::string *text) {
  for (const NumberField &field : number_fields) {
    const int value = given.*field.member;
    if (value == 0) continue;
    begin_field(text, field.name);
    if (field.words)
      text->append(1, '"').append(field.words[value]).append(1, '"');
    else
      text->append(std::to_string(value - field.zero));
  }
  if (given.whole_rows) begin_field(text, "whole_rows").append(std::to_string(given.whole_rows));
  if (given.whole_columns) begin_field(text, "whole_columns").append(std::to_string(given.whole_columns));
  if (!given.block_rows.empty()) write_numbers(text, "block_rows", given.block_rows);
  if (!given.block_columns.empty()) write_numbers(text, "block_columns", given.block_columns);
}

void write_owners(const Plan &plan, const PlannedTensor &tensor, std::string *text) {
  std::vector<int> owners;
  std::vector<uint64_t> elements;
  for (uint64_t number = 0; number < tensor.placement_count; ++number) {
    const Placement &piece = plan.placements[tensor.placement_index + number];
    owners.push_back(piece.owner);
    elements.push_back(piece.element_count);
  }
  write_numbers(text, "owners", owners);
  if (tensor.role == MXS_ROLE_FLAT && elements.size() > 1) write_numbers(text, "elements", elements);
}

mxs_status write_tensor(const Plan &plan, size_t index, std::string *text) {
  const PlannedTensor &tensor = plan.tensors[index];
  try {
    text->append("  {\"name\": ").append(Json(tensor.name).dump());
  } catch (const Json::exception &) {
    return set_error(MXS_INVALID_ARGUMENT, "tensors[%zu]: the name \"%.200s\" is not UTF-8, which JSON can't hold",
                     index, tensor.name.c_str());
  }
  write_numbers(text, "shape", tensor.shape);
  begin_field(text, "unit").append(std::to_string(tensor.unit));
  write_given(plan.given[index], text);
  if (tensor.tied_to >= 0)
    begin_field(text, "tied_to").append(Json(plan.tensors[static_cast<size_t>(tensor.tied_to)].name).dump());
  else
    write_owners(plan, tensor, text);
  text->push_back('}');
  return MXS_OK;
}

void write_options(const Plan &plan, std::string *text) {
  const mxs_plan_options &options = plan.options;
  text->append("{\"unit_count\": ").append(std::to_string(options.unit_count));
  for (const OptionField &field : wide_options)
    begin_field(text, field.name).append(std::to_string(options.*field.member));
  for (const WeightField &field : weight_options)
    begin_field(text, field.name).append(std::to_string(options.*field.member));
  begin_field(text, "co_owners_max").append(std::to_string(options.co_owners_max));
  if (plan.previous_fingerprint)
    begin_field(text, "previous").append(1, '"').append(hexadecimal_text(plan.previous_fingerprint)).append(1, '"');
  text->push_back('}');
}

// ---- reading ----

void read_given(const JsonField &entry, GivenTensor *given) {
  for (const NumberField &field : number_fields) {
    if (!entry.has(field.name)) continue;
    int value = 0;
    if (field.words)
      entry[field.name].read_word(&value, field.words, static_cast<size_t>(field.most) + 1);
    else
      entry[field.name].read(&value, 0, field.most);
    given->*field.member = value + field.zero;
  }
  if (entry.has("whole_rows")) entry["whole_rows"].read(&given->whole_rows, 0, number_max);
  if (entry.has("whole_columns")) entry["whole_columns"].read(&given->whole_columns, 0, number_max);
  if (entry.has("block_rows")) entry["block_rows"].read_numbers(&given->block_rows, 1, number_max);
  if (entry.has("block_columns")) entry["block_columns"].read_numbers(&given->block_columns, 1, number_max);
}

void read_tensor(const JsonField &entry, int rank_count, SavedTensor *tensor) {
  if (!entry.is_object({"name", "shape", "unit", "dtype", "master_dtype", "gradient_dtype", "rule", "role", "group",
                        "fixed_owner", "co_owners", "transposed", "whole_rows", "whole_columns", "block_rows",
                        "block_columns", "tied_to", "owners", "elements"}))
    return;
  entry["name"].read_name(&tensor->name);
  entry["shape"].read_numbers(&tensor->shape, 0, number_max);
  if (entry.good() && tensor->shape.size() > MXS_DIMENSIONS_MAX) entry["shape"].wrong("is longer than 8");
  entry["unit"].read(&tensor->unit, 0, unit_count_max - 1);
  read_given(entry, &tensor->given);
  if (entry.has("tied_to")) {
    entry["tied_to"].read_name(&tensor->tied_to);
    if (entry.has("owners")) entry["owners"].wrong("stands beside tied_to; a tied tensor has none of its own");
  } else {
    entry["owners"].read_numbers(&tensor->owners.ranks, 0, rank_count - 1);
  }
  if (!entry.has("elements")) return;
  entry["elements"].read_numbers(&tensor->owners.elements, 1, number_max);
  if (entry.good() && tensor->owners.elements.size() != tensor->owners.ranks.size())
    entry["elements"].wrong("is not as long as owners");
}

void read_options(const JsonField &entry, SavedPlan *saved) {
  if (!entry.is_object({"unit_count", "alignment", "flat_bytes", "rank_bytes_max", "matrix_flops_per_second",
                        "memory_bytes_per_second", "search_moves_max", "step_weight", "bytes_weight", "egress_weight",
                        "co_owners_max", "previous"}))
    return;
  mxs_plan_options &options = saved->options;
  entry["unit_count"].read(&options.unit_count, 0, unit_count_max);
  for (const OptionField &field : wide_options) entry[field.name].read_unsigned(&(options.*field.member));
  for (const WeightField &field : weight_options) entry[field.name].read(&(options.*field.member), 1, UINT32_MAX);
  entry["co_owners_max"].read(&options.co_owners_max, 0, INT32_MAX);
  if (entry.has("previous")) entry["previous"].read_hexadecimal(&saved->previous_fingerprint);
}

void read_plan(const JsonField &root, SavedPlan *saved) {
  int known = 0;
  root.is_object({"matrixshard_plan", "fingerprint", "options", "topology", "tensors"});
  root["matrixshard_plan"].read(&known, version, version);
  root["fingerprint"].read_hexadecimal(&saved->fingerprint);
  read_topology_field(root["topology"], &saved->topology);
  read_options(root["options"], saved);
  const JsonField tensors = root["tensors"];
  if (!tensors.is_list(0, INT32_MAX)) return;
  // One after the other, so that a list of something else takes no room.
  for (size_t index = 0; tensors.good() && index < tensors.size(); ++index)
    read_tensor(tensors[index], saved->topology.rank_count(), &saved->tensors.emplace_back());
}

}  // namespace

mxs_status plan_to_json(const Plan &plan, std::string *text) {
  std::string written = "{\"matrixshard_plan\": " + std::to_string(version);
  begin_field(&written, "fingerprint").append(1, '"').append(hexadecimal_text(plan.fingerprint)).append(1, '"');
  written.append(",\n \"options\": ");
  write_options(plan, &written);
  written.append(",\n \"topology\": ").append(topology_to_json(plan.topology));
  written.pop_back();  // the line's end
  written.append(",\n \"tensors\": [\n");
  for (size_t index = 0; index < plan.tensors.size(); ++index) {
    const mxs_status status = write_tensor(plan, index, &written);
    if (status != MXS_OK) return status;
    written.append(index + 1 < plan.tensors.size() ? ",\n" : "\n");
  }
  *text = std::move(written.append(" ]}\n"));
  return MXS_OK;
}

mxs_status saved_plan_from_json(std::string_view text, SavedPlan *saved) {
  Json json;
  mxs_status status = parse_json(text, &json);
  SavedPlan read;
  if (status == MXS_OK) read_plan(JsonField(&json, "", &status), &read);
  if (status == MXS_OK) *saved = std::move(read);
  return status;
}

}  // namespace mxs
