// SPDX-License-Identifier: Apache-2.0
// From a path to a model: which reader, and the file's name before whatever it has to say.
//
//   *.safetensors               its header
//   *.json with a weight_map    headers of the files that it names, in its folder
//   *.json else                 a list or a configuration
//   *.csv                       a list
//   a folder                    its one index, else all its *.safetensors, else its config.json
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "base/status.hpp"
#include "machine/machine.hpp"
#include "model/model.hpp"
#include "model/weight_files.hpp"
#include "model/weights.hpp"

namespace mxs {
namespace {

using Json = nlohmann::json;

constexpr size_t text_bytes_max = size_t{64} << 20;  // a list of half a million tensors; as a tree it is ten times that

mxs_status in_file(mxs_status status, const std::string &path) { return cause_in_file(status, "model: " + path); }

mxs_status read_text(const std::string &path, std::string *text) {
  if (read_file(path, text_bytes_max, text)) return MXS_OK;
  if (errno != EFBIG) return set_error(MXS_SYSTEM, "model: read %.200s: %s", path.c_str(), std::strerror(errno));
  return set_error(MXS_INVALID_ARGUMENT, "model: %.200s: it has more than %zu MiB", path.c_str(), text_bytes_max >> 20);
}

mxs_status read_json(const std::string &path, Json *json) {
  std::string text;
  const mxs_status status = read_text(path, &text);
  return status == MXS_OK ? in_file(parse_json(text, json), path) : status;
}

bool is_there(const std::string &path) {
  struct stat information {};
  return stat(path.c_str(), &information) == 0;
}

// model_type of a config.json beside weights; "" if there is none.
mxs_status read_kind(const std::string &folder, std::string *kind) {
  const std::string path = folder + "/config.json";
  if (!is_there(path)) return MXS_OK;
  Json config;
  const mxs_status status = read_json(path, &config);
  if (status != MXS_OK) return status;
  if (config.is_object() && config.contains("model_type") && config["model_type"].is_string())
    *kind = config["model_type"].get<std::string>();
  return MXS_OK;
}

// A failure whose sentence begins with a path already.
mxs_status of_model(mxs_status status) {
  return status == MXS_OK ? MXS_OK : set_error(status, "model: %s", std::string(last_error_text()).c_str());
}

mxs_status load_weights(const WeightFiles &files, const ModelSettings &settings, LoadedModel *model) {
  std::string kind;
  mxs_status status = read_kind(files.folder, &kind);
  if (status != MXS_OK) return status;
  status = of_model(read_weight_headers(files, [&](const std::string &name, SafetensorsHeader &&header,
                                                   const std::string &) {
    return cause_in_file(add_weights(std::move(header), settings.dtype != 0, model), files.folder + "/" + name);
  }));
  if (status == MXS_OK) arrange_weights(kind, model);
  return status;
}

mxs_status load_index(const std::string &path, const Json &root, const ModelSettings &settings, LoadedModel *model) {
  WeightFiles files;
  const mxs_status status = in_file(weight_files_of_index(folder_of(path), root, &files), path);
  return status == MXS_OK ? load_weights(files, settings, model) : status;
}

mxs_status load_json(const std::string &path, const ModelSettings &settings, LoadedModel *model) {
  Json root;
  const mxs_status status = read_json(path, &root);
  if (status != MXS_OK) return status;
  if (path.ends_with(weight_index_ending) || (root.is_object() && root.contains("weight_map")))
    return load_index(path, root, settings, model);
  return in_file(model_from_json(root, model), path);
}

mxs_status load_csv(const std::string &path, LoadedModel *model) {
  std::string text;
  const mxs_status status = read_text(path, &text);
  return status == MXS_OK ? in_file(model_from_csv(text, model), path) : status;
}

mxs_status load_folder(const std::string &path, const ModelSettings &settings, LoadedModel *model) {
  std::string index;
  WeightFiles files;
  const mxs_status status = of_model(list_weight_files(path, &index, &files));
  if (status != MXS_OK) return status;
  if (!index.empty()) return load_json(path + "/" + index, settings, model);
  if (!files.names.empty()) return load_weights(files, settings, model);
  const std::string config = path + "/config.json";
  if (is_there(config)) return load_json(config, settings, model);
  return set_error(MXS_INVALID_ARGUMENT, "model: %.200s: the folder has neither *.safetensors nor config.json",
                   path.c_str());
}

mxs_status load_any(const std::string &path, const ModelSettings &settings, LoadedModel *model) {
  struct stat information {};
  if (stat(path.c_str(), &information) != 0)
    return set_error(MXS_SYSTEM, "model: read %.200s: %s", path.c_str(), std::strerror(errno));
  if (S_ISDIR(information.st_mode)) return load_folder(path, settings, model);
  if (path.ends_with(".json")) return load_json(path, settings, model);
  if (path.ends_with(".csv")) return load_csv(path, model);
  if (path.ends_with(weight_ending)) {
    WeightFiles files;
    files.folder = folder_of(path);
    files.names = {path.substr(path.rfind('/') + 1)};
    return load_weights(files, settings, model);
  }
  return set_error(MXS_INVALID_ARGUMENT,
                   "model: %.200s: its name ends in neither .safetensors nor .json nor .csv, and it is no folder",
                   path.c_str());
}

}  // namespace

mxs_status load_model(const std::string &path, const ModelSettings &settings, LoadedModel *model) {
  LoadedModel read;
  mxs_status status = load_any(path, settings, &read);
  if (status == MXS_OK) status = in_file(finish_model(settings, &read), path);
  if (status == MXS_OK) *model = std::move(read);
  return status;
}

}  // namespace mxs
