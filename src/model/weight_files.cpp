// SPDX-License-Identifier: Apache-2.0
#include "model/weight_files.hpp"

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "base/status.hpp"
#include "machine/machine.hpp"

namespace mxs {
namespace {

// Headers against the index and each other.
class Headers {
 public:
  explicit Headers(const WeightFiles &files) : files_(files) {
    for (const auto &[tensor, file] : files.file_of_tensor) ++tensor_count_[file];
  }

  mxs_status check(const std::string &file, const SafetensorsHeader &header) {
    for (const SafetensorsEntry &entry : header.entries) {
      const mxs_status status = files_.has_index ? check_entry(file, entry.name) : check_alone(file, entry.name);
      if (status != MXS_OK) return status;
    }
    if (!files_.has_index || header.entries.size() == tensor_count_[file]) return MXS_OK;
    return find_missing(file, header);
  }

 private:
  mxs_status check_entry(const std::string &file, const std::string &tensor) const {
    const auto wanted = files_.file_of_tensor.find(tensor);
    if (wanted != files_.file_of_tensor.end() && wanted->second == file) return MXS_OK;
    return set_error(MXS_INVALID_ARGUMENT, "%.200s: %.200s has tensor \"%.200s\", which the index doesn't look for "
                     "there", files_.folder.c_str(), file.c_str(), tensor.c_str());
  }
  mxs_status check_alone(const std::string &file, const std::string &tensor) {
    const auto [place, is_new] = file_of_known_.emplace(tensor, &file);
    if (is_new) return MXS_OK;
    return set_error(MXS_INVALID_ARGUMENT, "%.200s: tensor \"%.200s\" is in %.100s and in %.100s",
                     files_.folder.c_str(), tensor.c_str(), place->second->c_str(), file.c_str());
  }
  mxs_status find_missing(const std::string &file, const SafetensorsHeader &header) const {
    std::unordered_set<std::string_view> there;
    for (const SafetensorsEntry &entry : header.entries) there.insert(entry.name);
    std::string_view missing;  // the first by name
    for (const auto &[tensor, its_file] : files_.file_of_tensor)
      if (its_file == file && !there.contains(tensor) && (missing.empty() || tensor < missing)) missing = tensor;
    return set_error(MXS_INVALID_ARGUMENT, "%.200s: the index looks for tensor \"%.200s\" in %.200s, which hasn't got "
                     "it", files_.folder.c_str(), std::string(missing).c_str(), file.c_str());
  }

  const WeightFiles &files_;
  std::unordered_map<std::string, size_t> tensor_count_;                 // of a file, by the index
  std::unordered_map<std::string, const std::string *> file_of_known_;  // of tensors, without an index
};

}  // namespace

std::string folder_of(const std::string &path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

mxs_status list_weight_files(const std::string &folder, std::string *index, WeightFiles *files) {
  std::vector<std::string> indices;
  WeightFiles found;
  found.folder = folder;
  std::error_code fault;
  for (std::filesystem::directory_iterator entry(folder, fault), end; !fault && entry != end; entry.increment(fault)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(weight_index_ending)) indices.push_back(name);
    if (name.ends_with(weight_ending)) found.names.push_back(name);
  }
  if (fault) return set_error(MXS_SYSTEM, "read %.200s: %s", folder.c_str(), fault.message().c_str());
  std::sort(indices.begin(), indices.end());
  std::sort(found.names.begin(), found.names.end());
  if (indices.size() > 1)
    return set_error(MXS_INVALID_ARGUMENT, "%.200s: the folder has %zu indices, such as %.100s and %.100s; name one",
                     folder.c_str(), indices.size(), indices[0].c_str(), indices[1].c_str());
  *index = indices.empty() ? "" : indices[0];
  *files = std::move(found);
  return MXS_OK;
}

mxs_status weight_files_of_index(const std::string &folder, const nlohmann::json &root, WeightFiles *files) {
  std::vector<std::pair<std::string, std::string>> pairs;
  const mxs_status status = parse_safetensors_index(root, &pairs);
  if (status != MXS_OK) return status;
  WeightFiles found;
  found.folder = folder;
  found.has_index = true;
  std::unordered_set<std::string> names;
  for (auto &[tensor, file] : pairs) {
    names.insert(file);
    found.file_of_tensor.emplace(std::move(tensor), std::move(file));
  }
  found.names.assign(names.begin(), names.end());
  std::sort(found.names.begin(), found.names.end());
  *files = std::move(found);
  return MXS_OK;
}

mxs_status read_weight_headers(const WeightFiles &files, const TakeHeader &take) {
  Headers headers(files);
  for (const std::string &name : files.names) {
    SafetensorsHeader header;
    std::string bytes;
    const std::string path = files.folder + "/" + name;
    mxs_status status = read_safetensors_header(path, &header, &bytes);
    if (status == MXS_OK) status = headers.check(name, header);
    if (status == MXS_OK) status = take(name, std::move(header), bytes);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

}  // namespace mxs
