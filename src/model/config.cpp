// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face: which architecture it names, in which dtype, and its keys. A key that an architecture
// needs and the file lacks is a fault, never a guess; defaults are those that no published model contradicts.
#include "model/config.hpp"

#include <cinttypes>
#include <nlohmann/json.hpp>

#include "base/status.hpp"

namespace mxs {
namespace {

using Json = nlohmann::json;

// Two of them multiplied stay below 2^62.
constexpr int64_t count_max = int64_t{1} << 30;

mxs_status read_dtype(const Config &config, LoadedModel *model) {
  const char *key = config.has("torch_dtype") ? "torch_dtype" : "dtype";
  mxs_dtype dtype = MXS_BF16;
  if (config.has(key)) {
    const std::string word = config.text(key);
    if (config.status() != MXS_OK) return config.status();
    dtype = dtype_of_word(word);
    if (dtype != MXS_F32 && dtype != MXS_BF16 && dtype != MXS_F16)
      return set_error(MXS_INVALID_ARGUMENT, "%s is \"%.60s\", not float32, bfloat16 or float16", key, word.c_str());
  } else {
    model->notes.push_back("the configuration names no torch_dtype: its tensors are taken as bf16");
  }
  for (LoadedTensor &tensor : model->tensors) tensor.dtype = dtype;
  return MXS_OK;
}

// The first of "architectures", "" if there is none.
mxs_status read_class(const Json &root, std::string *class_name) {
  const auto found = root.find("architectures");
  if (found == root.end() || found->is_null()) return MXS_OK;
  if (!found->is_array() || (!found->empty() && !found->front().is_string()))
    return set_error(MXS_INVALID_ARGUMENT, "architectures is not a list of names");
  if (!found->empty()) *class_name = found->front().get<std::string>();
  return MXS_OK;
}

}  // namespace

bool Config::has(const char *key) const {
  const auto found = root_.find(key);
  return found != root_.end() && !found->is_null();
}

bool Config::wrong(const char *key, const std::string &what) const {
  if (status_ == MXS_OK) status_ = set_error(MXS_INVALID_ARGUMENT, "%s %.200s", key, what.c_str());
  return false;
}

int64_t Config::whole_number(const char *key, int64_t least) const {
  if (!has(key)) {
    wrong(key, "is missing");
    return least;
  }
  const Json &value = root_[key];
  const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > count_max) &&
                    value.get<int64_t>() >= least && value.get<int64_t>() <= count_max;
  if (fits) return value.get<int64_t>();
  wrong(key, std::string("is not a whole number from ")
                 .append(std::to_string(least)).append(" to ").append(std::to_string(count_max)));
  return least;
}

int64_t Config::count(const char *key) const { return whole_number(key, 1); }

int64_t Config::count_or(const char *key, int64_t otherwise) const { return has(key) ? count(key) : otherwise; }

bool Config::flag(const char *key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const Json &value = root_[key];
  return value.is_boolean() ? value.get<bool>() : wrong(key, "is neither true nor false");
}

std::string Config::text(const char *key) const {
  if (!has(key)) return "";
  const Json &value = root_[key];
  if (value.is_string()) return value.get<std::string>();
  wrong(key, "is not a text");
  return "";
}

mxs_status model_from_config(const Json &root, LoadedModel *model) {
  if (!root.is_object()) return set_error(MXS_INVALID_ARGUMENT, "it is no configuration: not an object");
  const Config config(root);
  std::string class_name;
  mxs_status status = read_class(root, &class_name);
  const std::string kind = config.text("model_type");
  if (status == MXS_OK) status = config.status();
  if (status != MXS_OK) return status;
  if (class_name.empty() && kind.empty())
    return set_error(MXS_INVALID_ARGUMENT,
                     "architectures and model_type are missing: it is no configuration of a model");
  const Architecture *architecture = find_architecture(class_name, kind);
  if (!architecture)
    return set_error(MXS_NOT_BUILT,
                     "architecture \"%.100s\" (model_type \"%.100s\") isn't known; known are %s. Give its safetensors "
                     "files, or a list: {\"tensors\": [{\"name\": ..., \"shape\": [8, 4], \"dtype\": \"bf16\"}, "
                     "...]}, where rule, unit, block_rows, block_columns and transposed are optional",
                     class_name.c_str(), kind.c_str(), known_architectures().c_str());
  LoadedModel read;
  read.kind = architecture->kind;
  status = architecture->build(config, &read);
  if (status == MXS_OK) status = read_dtype(config, &read);
  if (status == MXS_OK) *model = std::move(read);
  return status;
}

}  // namespace mxs
