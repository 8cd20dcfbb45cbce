// SPDX-License-Identifier: Apache-2.0
// From a path to a model: which reader, and the file's name before whatever it has to say.
//
//   *.safetensors               its header
//   *.json with a weight_map    headers of the files that it names, in its folder
//   *.json else                 a list or a configuration
//   *.csv                       a list
//   a folder                    its one index, else all its *.safetensors, else its config.json
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/json.hpp"
#include "base/status.hpp"
#include "machine/machine.hpp"
#include "model/model.hpp"
#include "model/weights.hpp"

namespace mxs {
namespace {

using Json = nlohmann::json;
using FileOfTensor = std::vector<std::pair<std::string, std::string>>;

constexpr size_t text_bytes_max = size_t{64} << 20;  // a list of half a million tensors; as a tree it is ten times that
constexpr const char *index_ending = ".safetensors.index.json";

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

std::string folder_of(const std::string &path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
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

mxs_status same_name(const std::string &folder, const std::string &tensor, const std::string &one,
                     const std::string &other) {
  return set_error(MXS_INVALID_ARGUMENT, "model: %.200s: tensor \"%.200s\" is in %.100s and in %.100s", folder.c_str(),
                   tensor.c_str(), one.c_str(), other.c_str());
}

// index: NULL if the folder has none.
mxs_status load_weights(const std::string &folder, const std::vector<std::string> &files, const FileOfTensor *index,
                        const ModelSettings &settings, LoadedModel *model) {
  std::string kind;
  mxs_status status = read_kind(folder, &kind);
  std::unordered_map<std::string, std::string> file_of_tensor;
  for (size_t number = 0; status == MXS_OK && number < files.size(); ++number) {
    const std::string &file = files[number], path = folder + "/" + file;
    SafetensorsHeader header;
    status = read_safetensors_header(path, &header);
    if (status != MXS_OK) return set_error(status, "model: %s", std::string(last_error_text()).c_str());
    if (index) status = in_file(check_against_index(*index, file, &header), folder);
    for (size_t entry = 0; status == MXS_OK && entry < header.entries.size(); ++entry) {
      const std::string &tensor = header.entries[entry].name;
      const auto [place, is_new] = file_of_tensor.emplace(tensor, file);
      if (!is_new) return same_name(folder, tensor, place->second, file);
    }
    if (status == MXS_OK) status = in_file(add_weights(std::move(header), settings.dtype != 0, model), path);
  }
  if (status == MXS_OK) arrange_weights(kind, model);
  return status;
}

mxs_status load_index(const std::string &path, const Json &root, const ModelSettings &settings, LoadedModel *model) {
  FileOfTensor file_of_tensor;
  const mxs_status status = in_file(parse_safetensors_index(root, &file_of_tensor), path);
  if (status != MXS_OK) return status;
  std::vector<std::string> files;
  for (const auto &[tensor, file] : file_of_tensor) files.push_back(file);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return load_weights(folder_of(path), files, &file_of_tensor, settings, model);
}

mxs_status load_json(const std::string &path, const ModelSettings &settings, LoadedModel *model) {
  Json root;
  const mxs_status status = read_json(path, &root);
  if (status != MXS_OK) return status;
  if (path.ends_with(index_ending) || (root.is_object() && root.contains("weight_map")))
    return load_index(path, root, settings, model);
  return in_file(model_from_json(root, model), path);
}

mxs_status load_csv(const std::string &path, LoadedModel *model) {
  std::string text;
  const mxs_status status = read_text(path, &text);
  return status == MXS_OK ? in_file(model_from_csv(text, model), path) : status;
}

mxs_status list_folder(const std::string &path, std::vector<std::string> *indices, std::vector<std::string> *files) {
  std::error_code fault;
  for (std::filesystem::directory_iterator entry(path, fault), end; !fault && entry != end; entry.increment(fault)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(index_ending)) indices->push_back(name);
    if (name.ends_with(".safetensors")) files->push_back(name);
  }
  if (fault) return set_error(MXS_SYSTEM, "model: read %.200s: %s", path.c_str(), fault.message().c_str());
  std::sort(indices->begin(), indices->end());
  std::sort(files->begin(), files->end());
  return MXS_OK;
}

mxs_status load_folder(const std::string &path, const ModelSettings &settings, LoadedModel *model) {
  std::vector<std::string> indices, files;
  const mxs_status status = list_folder(path, &indices, &files);
  if (status != MXS_OK) return status;
  if (indices.size() > 1)
    return set_error(MXS_INVALID_ARGUMENT,
                     "model: %.200s: the folder has %zu indices, such as %.100s and %.100s; name one",
                     path.c_str(), indices.size(), indices[0].c_str(), indices[1].c_str());
  if (!indices.empty()) return load_json(path + "/" + indices[0], settings, model);
  if (!files.empty()) return load_weights(path, files, nullptr, settings, model);
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
  if (path.ends_with(".safetensors"))
    return load_weights(folder_of(path), {path.substr(path.rfind('/') + 1)}, nullptr, settings, model);
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
