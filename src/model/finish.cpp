// SPDX-License-Identifier: Apache-2.0
// What all readers leave to do: names that are unique, shapes that can be counted, dtypes, units, rules, the title.
#include <cinttypes>
#include <cstdio>
#include <string_view>
#include <unordered_set>

#include "base/arithmetic.hpp"
#include "base/status.hpp"
#include "model/model.hpp"

namespace mxs {
namespace {

mxs_status count_elements(const LoadedTensor &tensor, uint64_t *total) {
  uint64_t elements = 1;
  bool fits = tensor.shape.size() <= MXS_DIMENSIONS_MAX;
  if (!fits)
    return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": it has %zu dimensions, more than %d",
                     tensor.name.c_str(), tensor.shape.size(), MXS_DIMENSIONS_MAX);
  for (const int64_t side : tensor.shape) {
    if (side < 0)
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": a side of its shape is %" PRId64,
                       tensor.name.c_str(), side);
    fits = fits && checked_multiply(elements, static_cast<uint64_t>(side), &elements);
  }
  if (fits && (!tensor.tied_to.empty() || checked_add(*total, elements, total))) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": with it the model has more than 2^62 elements",
                   tensor.name.c_str());
}

mxs_status check_names(const LoadedModel &model) {
  if (model.tensors.empty()) return set_error(MXS_INVALID_ARGUMENT, "it names no tensor");
  if (model.tensors.size() > tensor_count_max)
    return set_error(MXS_INVALID_ARGUMENT, "it names %zu tensors, more than %zu", model.tensors.size(),
                     tensor_count_max);
  std::unordered_set<std::string_view> names;
  for (size_t index = 0; index < model.tensors.size(); ++index) {
    const std::string &name = model.tensors[index].name;
    if (name.empty()) return set_error(MXS_INVALID_ARGUMENT, "tensors[%zu]: its name is empty", index);
    if (name.find('\0') != std::string::npos)
      return set_error(MXS_INVALID_ARGUMENT, "tensors[%zu]: its name has a zero byte after \"%.200s\"", index,
                       name.c_str());
    if (!names.insert(name).second)
      return set_error(MXS_INVALID_ARGUMENT, "tensor \"%.200s\": two tensors have this name", name.c_str());
  }
  return MXS_OK;
}

void choose_dtypes(const ModelSettings &settings, LoadedModel *model) {
  for (LoadedTensor &tensor : model->tensors) {
    if (settings.dtype) tensor.dtype = settings.dtype;
    if (tensor.rule == MXS_RULE_FROZEN) continue;  // has neither masters nor gradients
    if (settings.master_dtype) tensor.master_dtype = settings.master_dtype;
    if (settings.gradient_dtype) tensor.gradient_dtype = settings.gradient_dtype;
  }
}

std::string count_words(uint64_t count) {
  const struct {
    uint64_t unit;
    const char *word;
  } scales[] = {{1'000'000'000'000, "trillion"}, {1'000'000'000, "billion"}, {1'000'000, "million"},
                {1'000, "thousand"}};
  char text[64];
  for (const auto &scale : scales)
    if (count >= scale.unit) {
      // Tenths in integers, so that every build rounds alike.
      const uint64_t tenths = (count / (scale.unit / 20) + 1) / 2;
      std::snprintf(text, sizeof text, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, scale.word);
      return text;
    }
  return std::to_string(count);
}

std::string title_of(const LoadedModel &model, uint64_t elements) {
  size_t layers = 0;
  for (const std::string &unit : model.unit_names)
    layers += layer_prefix_bytes(unit + ".") == unit.size();
  std::string title = model.kind;
  title.append(", ").append(layers > 0 ? counted(layers, "layer") : counted(model.tensors.size(), "tensor"));
  return title.append(", ").append(count_words(elements)).append(elements == 1 ? " parameter" : " parameters");
}

}  // namespace

mxs_status finish_model(const ModelSettings &settings, LoadedModel *model) {
  mxs_status status = check_names(*model);
  uint64_t elements = 0;
  for (size_t index = 0; status == MXS_OK && index < model->tensors.size(); ++index)
    status = count_elements(model->tensors[index], &elements);
  if (status != MXS_OK) return status;
  if (model->unit_names.empty()) assign_units(model);
  status = assign_rules(settings, model);
  if (status != MXS_OK) return status;
  choose_dtypes(settings, model);
  model->title = title_of(*model, elements);
  return MXS_OK;
}

}  // namespace mxs
