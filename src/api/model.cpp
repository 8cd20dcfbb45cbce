// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/model.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "api/door.hpp"
#include "api/tensors.hpp"
#include "api/values.hpp"
#include "base/dtype.hpp"
#include "plan/stages.hpp"

using namespace mxs;

static_assert(sizeof(mxs_model_rule) == 24, "part of the ABI");
static_assert(sizeof(mxs_model_options) == 40, "part of the ABI");

namespace {

constexpr uint64_t rule_count_max = 4096;

mxs_tensor tensor_of(const LoadedTensor &loaded) {
  mxs_tensor tensor = MXS_TENSOR_INIT;
  tensor.dtype = loaded.dtype;
  tensor.master_dtype = loaded.master_dtype;
  tensor.gradient_dtype = loaded.gradient_dtype;
  tensor.name = loaded.name.c_str();
  tensor.dimension_count = static_cast<int32_t>(loaded.shape.size());
  std::copy(loaded.shape.begin(), loaded.shape.end(), tensor.shape);
  tensor.unit = loaded.unit;
  tensor.rule = loaded.rule;
  tensor.group = loaded.group;
  tensor.role = loaded.role;
  tensor.fixed_owner = loaded.fixed_owner;
  tensor.co_owners = loaded.co_owners;
  tensor.tied_to = loaded.tied_to.empty() ? nullptr : loaded.tied_to.c_str();
  tensor.block_rows = loaded.block_rows.empty() ? nullptr : loaded.block_rows.data();
  tensor.block_count = static_cast<int32_t>(loaded.block_rows.size());
  tensor.block_columns = loaded.block_columns.empty() ? nullptr : loaded.block_columns.data();
  tensor.block_column_count = static_cast<int32_t>(loaded.block_columns.size());
  tensor.transposed = loaded.transposed;
  tensor.whole_rows = loaded.whole_rows;
  tensor.whole_columns = loaded.whole_columns;
  return tensor;
}

mxs_status check_rule(const char *field, mxs_rule rule) {
  if (rule >= MXS_RULE_AUTO && rule <= MXS_RULE_SOAP) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "%s is %d, which is no rule", field, rule);
}

mxs_status check_dtype(const char *field, mxs_dtype dtype) {
  if (dtype == 0 || dtype_bytes(dtype) != 0) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "%s is %d, which is no dtype", field, dtype);
}

mxs_status read_rules(const mxs_model_options &options, std::vector<ModelRule> *rules) {
  mxs_status fault = MXS_OK;
  const mxs_status status = read_array(
      options.rules, options.rule_count, rule_count_max, sizeof(mxs_model_rule), "options.rules", MXS_MODEL_RULE_INIT,
      [&](const mxs_model_rule &given) {
        if (fault != MXS_OK) return;
        char field[48];
        std::snprintf(field, sizeof field, "options.rules[%zu].rule", rules->size());
        fault = check_rule(field, given.rule);
        if (fault != MXS_OK) return;
        if (!given.pattern || !*given.pattern || given.group < 0 || given.reserved != 0)
          fault = set_error(MXS_INVALID_ARGUMENT, "options.rules[%zu].%s", rules->size(),
                            !given.pattern      ? "pattern is NULL"
                            : !*given.pattern   ? "pattern is empty"
                            : given.group < 0   ? "group is negative"
                                                : "reserved is not zero");
        else
          rules->push_back({given.pattern, given.rule, given.group});
      });
  return status != MXS_OK ? status : fault;
}

mxs_status read_settings(const mxs_model_options *given, ModelSettings *settings) {
  mxs_model_options options = MXS_MODEL_OPTIONS_INIT;
  mxs_status status = read_struct(given, sizeof(mxs_model_options), "options", &options);
  if (status == MXS_OK) status = check_dtype("options.dtype", options.dtype);
  if (status == MXS_OK) status = check_dtype("options.master_dtype", options.master_dtype);
  if (status == MXS_OK) status = check_dtype("options.gradient_dtype", options.gradient_dtype);
  if (status == MXS_OK) status = check_rule("options.matrix_rule", options.matrix_rule);
  if (status == MXS_OK && options.reserved != 0)
    status = set_error(MXS_INVALID_ARGUMENT, "options.reserved is not zero");
  if (status == MXS_OK) status = read_rules(options, &settings->rules);
  settings->dtype = options.dtype;
  settings->master_dtype = options.master_dtype;
  settings->gradient_dtype = options.gradient_dtype;
  if (options.matrix_rule != MXS_RULE_AUTO) settings->matrix_rule = options.matrix_rule;
  return status;
}

}  // namespace

mxs_model::mxs_model(LoadedModel &&model) : value(std::move(model)) {
  tensors.reserve(value.tensors.size());
  for (const LoadedTensor &loaded : value.tensors) tensors.push_back(tensor_of(loaded));
}

mxs_status mxs_model_load(mxs_model **model, const char *path, const mxs_model_options *options) {
  return fenced([&]() -> mxs_status {
    if (!model) return set_error(MXS_INVALID_ARGUMENT, "model is NULL");
    if (!path) return set_error(MXS_INVALID_ARGUMENT, "path is NULL");
    ModelSettings settings;
    mxs_status status = read_settings(options, &settings);
    if (status != MXS_OK) return status;
    LoadedModel value;
    status = load_model(path, settings, &value);
    if (status != MXS_OK) return status;
    *model = std::make_unique<mxs_model>(std::move(value)).release();
    return MXS_OK;
  });
}

mxs_status mxs_model_create(mxs_model **model, const mxs_tensor *tensors, uint64_t tensor_count,
                            const mxs_model_options *options) {
  return fenced([&]() -> mxs_status {
    if (!model) return set_error(MXS_INVALID_ARGUMENT, "model is NULL");
    if (tensor_count == 0) return set_error(MXS_INVALID_ARGUMENT, "tensor_count is 0: a model has a tensor at least");
    ModelSettings settings;
    mxs_status status = read_settings(options, &settings);
    std::vector<mxs_tensor> read;
    if (status == MXS_OK) status = read_tensors(tensors, tensor_count, tensor_count_max, &read);
    if (status == MXS_OK) status = check_tensors(read.data(), read.size());
    LoadedModel value;
    if (status == MXS_OK) status = model_from_tensors(read, &value);
    if (status == MXS_OK) status = finish_model(settings, &value);
    if (status != MXS_OK) return status;
    *model = std::make_unique<mxs_model>(std::move(value)).release();
    return MXS_OK;
  });
}

void mxs_model_destroy(mxs_model **model) {
  if (!model) return;
  delete *model;
  *model = nullptr;
}

mxs_status mxs_model_tensors(const mxs_model *model, const mxs_tensor **tensors, uint64_t *tensor_count) {
  if (!model) return set_error(MXS_INVALID_ARGUMENT, "model is NULL");
  if (!tensors) return set_error(MXS_INVALID_ARGUMENT, "tensors is NULL");
  if (!tensor_count) return set_error(MXS_INVALID_ARGUMENT, "tensor_count is NULL");
  *tensors = model->tensors.data();
  *tensor_count = model->tensors.size();
  return MXS_OK;
}

const char *mxs_model_title(const mxs_model *model) { return model ? model->value.title.c_str() : ""; }

int32_t mxs_model_unit_count(const mxs_model *model) {
  return model ? static_cast<int32_t>(model->value.unit_names.size()) : 0;
}

const char *mxs_model_unit_name(const mxs_model *model, int32_t unit) {
  if (unit < 0 || unit >= mxs_model_unit_count(model)) return nullptr;
  return model->value.unit_names[static_cast<size_t>(unit)].c_str();
}

uint64_t mxs_model_note_count(const mxs_model *model) { return model ? model->value.notes.size() : 0; }

const char *mxs_model_note(const mxs_model *model, uint64_t index) {
  return index < mxs_model_note_count(model) ? model->value.notes[index].c_str() : nullptr;
}
