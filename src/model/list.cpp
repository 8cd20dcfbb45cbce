// SPDX-License-Identifier: Apache-2.0
// A list's fields. Strict: people write these by hand, and a mistyped word must not be a silent default.
#include "model/list.hpp"

#include <algorithm>
#include <cinttypes>

#include "base/arithmetic.hpp"
#include "base/json_field.hpp"
#include "base/status.hpp"
#include "base/words.hpp"

namespace mxs {
namespace {

// As the planner's: here the sentence can name the line.
constexpr int unit_count_max = 1 << 20;
constexpr size_t block_count_max = size_t{1} << 20;
constexpr int64_t side_max = static_cast<int64_t>(bytes_max);

struct Field {
  std::string_view name;
  FieldKind kind;
  void (*set)(const JsonField &value, LoadedTensor *tensor);  // nullptr: units, which need more
};

void read_numbers(const JsonField &value, int64_t least, size_t count_max, std::vector<int64_t> *numbers) {
  if (!value.is_list(0, SIZE_MAX)) return;
  if (value.size() > count_max)
    value.wrong(std::string("has more than ").append(std::to_string(count_max)).append(" numbers").c_str());
  for (size_t index = 0; value.good() && index < value.size(); ++index) {
    const Json &each = value.value()[index];
    if (JsonField::is_whole(each, least, side_max))
      numbers->push_back(each.get<int64_t>());
    else  // the number itself: a line of CSV shows no index
      value.wrong(std::string("has ").append(printed_json(each), 0, 40).append(", not a whole number from ")
                      .append(std::to_string(least)).append(" on").c_str());
  }
}

void read_dtype(const JsonField &value, mxs_dtype *dtype) {
  std::string word;
  value.read_name(&word);
  if (!value.good()) return;
  *dtype = dtype_of_word(word);
  if (*dtype == 0) value.wrong(("is \"" + word.substr(0, 60) + "\", not f32, bf16, f16, f64 or u8").c_str());
}

// One of some words.
template <size_t count>
void read_word(const JsonField &value, const char *const (&words)[count], int32_t *number) {
  std::string word;
  value.read_name(&word);
  if (value.good() && !number_of_word(words, word, number))
    value.wrong(("is \"" + word.substr(0, 60) + "\", not " + all_words(words)).c_str());
}

const Field fields[] = {
    {"name", FieldKind::text, [](const JsonField &value, LoadedTensor *tensor) { value.read_name(&tensor->name); }},
    {"shape", FieldKind::numbers,
     [](const JsonField &value, LoadedTensor *tensor) { read_numbers(value, 0, MXS_DIMENSIONS_MAX, &tensor->shape); }},
    {"dtype", FieldKind::text,
     [](const JsonField &value, LoadedTensor *tensor) { read_dtype(value, &tensor->dtype); }},
    {"master_dtype", FieldKind::text,
     [](const JsonField &value, LoadedTensor *tensor) { read_dtype(value, &tensor->master_dtype); }},
    {"gradient_dtype", FieldKind::text,
     [](const JsonField &value, LoadedTensor *tensor) { read_dtype(value, &tensor->gradient_dtype); }},
    {"rule", FieldKind::text,
     [](const JsonField &value, LoadedTensor *tensor) { read_word(value, rule_words, &tensor->rule); }},
    {"role", FieldKind::text,
     [](const JsonField &value, LoadedTensor *tensor) { read_word(value, role_words, &tensor->role); }},
    {"unit", FieldKind::number_or_text, nullptr},
    {"group", FieldKind::number,
     [](const JsonField &value, LoadedTensor *tensor) { value.read(&tensor->group, 0, INT32_MAX); }},
    {"fixed_owner", FieldKind::number,
     [](const JsonField &value, LoadedTensor *tensor) {
       int32_t rank = 0;
       value.read(&rank, 0, rank_count_max - 1);
       if (value.good()) tensor->fixed_owner = MXS_FIXED_OWNER(rank);
     }},
    {"co_owners", FieldKind::number,
     [](const JsonField &value, LoadedTensor *tensor) { value.read(&tensor->co_owners, 0, rank_count_max); }},
    {"tied_to", FieldKind::text,
     [](const JsonField &value, LoadedTensor *tensor) { value.read_name(&tensor->tied_to); }},
    {"block_rows", FieldKind::numbers,
     [](const JsonField &value, LoadedTensor *tensor) {
       read_numbers(value, 1, block_count_max, &tensor->block_rows);
     }},
    {"block_columns", FieldKind::numbers,
     [](const JsonField &value, LoadedTensor *tensor) {
       read_numbers(value, 1, block_count_max, &tensor->block_columns);
     }},
    {"transposed", FieldKind::flag,
     [](const JsonField &value, LoadedTensor *tensor) { value.read_flag(&tensor->transposed); }},
    {"whole_rows", FieldKind::number,
     [](const JsonField &value, LoadedTensor *tensor) { value.read(&tensor->whole_rows, 0, side_max); }},
    {"whole_columns", FieldKind::number,
     [](const JsonField &value, LoadedTensor *tensor) { value.read(&tensor->whole_columns, 0, side_max); }},
};

const Field *find_field(std::string_view name) {
  for (const Field &field : fields)
    if (field.name == name) return &field;
  return nullptr;
}

mxs_status read_entry(const Json &entry, size_t index, LoadedTensor *tensor, UnitNames *units) {
  std::string where = std::string("tensors[").append(std::to_string(index)).append("]");
  if (!entry.is_object()) return set_error(MXS_INVALID_ARGUMENT, "%s is not an object", where.c_str());
  if (const auto name = entry.find("name"); name != entry.end() && name->is_string())
    where.append(" \"").append(name->get<std::string>(), 0, 120).append("\"");
  for (const auto &[field, value] : entry.items())
    if (const mxs_status status = set_field(where, field, value, tensor, units); status != MXS_OK) return status;
  for (const char *needed : {"name", "shape"})
    if (!entry.contains(needed)) return set_error(MXS_INVALID_ARGUMENT, "%s: %s is missing", where.c_str(), needed);
  return MXS_OK;
}

}  // namespace

FieldKind field_kind(std::string_view field) {
  const Field *found = find_field(field);
  return found ? found->kind : FieldKind::unknown;
}

std::string known_fields() {
  std::string text;
  for (const Field &field : fields) text.append(text.empty() ? "" : ", ").append(field.name);
  return text;
}

mxs_status set_field(const std::string &where, const std::string &field, const Json &value, LoadedTensor *tensor,
                     UnitNames *units) {
  const Field *found = find_field(field);
  if (!found)
    return set_error(MXS_INVALID_ARGUMENT, "%.200s: %.60s is not a known field; known are %s", where.c_str(),
                     field.c_str(), known_fields().c_str());
  mxs_status status = MXS_OK;
  const JsonField given(&value, where + ": " + field, &status);
  if (found->set) {
    found->set(given, tensor);
    return status;
  }
  if (value.is_string()) {
    std::string name;
    given.read_name(&name);
    return given.good() ? units->add(where, name, tensor) : status;
  }
  int64_t number = 0;
  given.read(&number, 0, unit_count_max - 1);
  return given.good() ? units->add(where, number, tensor) : status;
}

mxs_status UnitNames::add(const std::string &where, int64_t number, LoadedTensor *tensor) {
  if (!names_.empty())
    return set_error(MXS_INVALID_ARGUMENT, "%.200s: unit is a number, but others have names", where.c_str());
  tensor->unit = static_cast<int>(number);
  number_max_ = std::max(number_max_, tensor->unit);
  return MXS_OK;
}

mxs_status UnitNames::add(const std::string &where, const std::string &name, LoadedTensor *tensor) {
  if (number_max_ >= 0)
    return set_error(MXS_INVALID_ARGUMENT, "%.200s: unit is a name, but others have numbers", where.c_str());
  const auto [place, is_new] = unit_of_name_.emplace(name, static_cast<int>(names_.size()));
  if (is_new) names_.push_back(name);
  tensor->unit = place->second;
  return names_.size() <= unit_count_max
             ? MXS_OK
             : set_error(MXS_INVALID_ARGUMENT, "%.200s: it is the unit after %d others", where.c_str(),
                         unit_count_max);
}

mxs_status UnitNames::finish(LoadedModel *model) const {
  if (names_.empty() && number_max_ < 0) return MXS_OK;
  model->unit_names = names_;
  for (int unit = 0; unit <= number_max_; ++unit)
    model->unit_names.push_back(std::string("unit ").append(std::to_string(unit)));
  std::unordered_map<std::string_view, int> unit_of_tensor;
  for (const LoadedTensor &tensor : model->tensors) unit_of_tensor.emplace(tensor.name, tensor.unit);
  for (LoadedTensor &tensor : model->tensors) {
    if (tensor.unit >= 0) continue;
    const auto found = unit_of_tensor.find(tensor.tied_to);
    if (found != unit_of_tensor.end()) tensor.unit = found->second;
    if (tensor.unit < 0)
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": it has no unit, but others have",
                       tensor.name.c_str());
  }
  return MXS_OK;
}

mxs_status model_from_list(const Json &root, LoadedModel *model) {
  if (!root.is_object() || !root.contains("tensors") || !root["tensors"].is_array())
    return set_error(MXS_INVALID_ARGUMENT, "it is no list: not {\"tensors\": [...]}");
  if (root.contains("matrixshard_plan"))
    return set_error(MXS_INVALID_ARGUMENT,
                     "it is a plan, as mxs_plan_save writes it, and no model: mxs_plan_load reads it, and mxs plan "
                     "takes it as --previous, beside the model that it was made of");
  for (const auto &[name, value] : root.items())
    if (name != "tensors")
      return set_error(MXS_INVALID_ARGUMENT, "%.60s is not a known field beside tensors", name.c_str());
  const Json &entries = root["tensors"];
  if (entries.size() > tensor_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "tensors has %zu entries, more than %zu", entries.size(), tensor_count_max);
  LoadedModel read;
  read.kind = "list";
  read.tensors.resize(entries.size());
  UnitNames units;
  mxs_status status = MXS_OK;
  for (size_t index = 0; status == MXS_OK && index < entries.size(); ++index)
    status = read_entry(entries[index], index, &read.tensors[index], &units);
  if (status == MXS_OK) status = units.finish(&read);
  if (status == MXS_OK) *model = std::move(read);
  return status;
}

}  // namespace mxs
