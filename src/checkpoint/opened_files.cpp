// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint against its manifest.
#include <sys/stat.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "base/status.hpp"
#include "checkpoint/opened_checks.hpp"
#include "machine/machine.hpp"
#include "model/safetensors.hpp"

namespace mxs {
namespace {

mxs_status check_size(const std::string &path, uint64_t wanted_bytes) {
  struct stat information {};
  if (stat(path.c_str(), &information) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return set_error(MXS_DAMAGED, "%.300s: it is missing", path.c_str());
    return set_error(MXS_SYSTEM, "read %.300s: %s", path.c_str(), std::strerror(errno));
  }
  if (!S_ISREG(information.st_mode)) return set_error(MXS_DAMAGED, "%.300s: it is not a file", path.c_str());
  const uint64_t bytes = static_cast<uint64_t>(information.st_size);
  if (bytes == wanted_bytes) return MXS_OK;
  return set_error(MXS_DAMAGED, "%.300s: it has %" PRIu64 " bytes instead of %" PRIu64 ": %s", path.c_str(), bytes,
                   wanted_bytes, bytes < wanted_bytes ? "it was cut off, or isn't all here" : "it was written over");
}

bool same_place(const ManifestArray &array, const SafetensorsEntry &entry) {
  return array.dtype_word == entry.dtype_word && array.shape == entry.shape && array.offset == entry.begin &&
         array.bytes == entry.end - entry.begin;
}

}  // namespace

mxs_status as_damage(mxs_status status) {
  if (status != MXS_INVALID_ARGUMENT) return status;
  return set_error(MXS_DAMAGED, "%s", std::string(last_error_text()).c_str());
}

mxs_status cannot_read_text(const std::string &path, size_t bytes_max) {
  const int error = errno;
  struct stat information {};
  if (error == EFBIG)
    return set_error(MXS_DAMAGED, "%.300s: it has more than %zu MiB", path.c_str(), bytes_max >> 20);
  if (stat(path.c_str(), &information) == 0 && !S_ISREG(information.st_mode))
    return set_error(MXS_DAMAGED, "%.300s: it is not a file", path.c_str());
  return set_error(MXS_SYSTEM, "read %.300s: %s", path.c_str(), std::strerror(error));
}

mxs_status check_file(const OpenedCheckpoint &opened, size_t file, size_t first, size_t end) {
  const ManifestFile &wanted = opened.manifest.files[file];
  const std::string path = opened.path + "/" + wanted.name;
  SafetensorsHeader header;
  std::string bytes;
  uint64_t data_bytes = 0;
  mxs_status status = check_size(path, wanted.bytes);
  if (status == MXS_OK) status = as_damage(read_safetensors_bytes(path, &bytes, &data_bytes));
  if (status != MXS_OK) return status;
  if (bytes.size() != wanted.data_offset || hash_chunk(bytes.data(), bytes.size()) != wanted.header_hash)
    return set_error(MXS_DAMAGED, "%.300s: its header isn't the one that was saved: its hash is another", path.c_str());
  status = as_damage(parse_safetensors_bytes(path, bytes, data_bytes, &header));
  if (status != MXS_OK) return status;
  for (const SafetensorsEntry &entry : header.entries) {
    const auto found = opened.index_of_name.find(entry.name);
    if (found == opened.index_of_name.end() || found->second < first || found->second >= end)
      return set_error(MXS_DAMAGED, "%.300s: it has \"%.200s\", which the manifest doesn't have there", path.c_str(),
                       entry.name.c_str());
    if (!same_place(opened.manifest.arrays[found->second], entry))
      return set_error(MXS_DAMAGED, "%.300s: \"%.200s\" has another dtype, shape or place than in the manifest",
                       path.c_str(), entry.name.c_str());
  }
  if (header.entries.size() == end - first) return MXS_OK;  // names are there once only
  return set_error(MXS_DAMAGED, "%.300s: it has %zu arrays, but the manifest has %zu there", path.c_str(),
                   header.entries.size(), end - first);
}

mxs_status check_index(const OpenedCheckpoint &opened) {
  const Manifest &manifest = opened.manifest;
  const std::string path = opened.path + "/" + index_name;
  size_t array_count = 0;  // of the model's files
  for (const ManifestArray &array : manifest.arrays)
    array_count += manifest.files[array.file].name.starts_with("optimizer/") ? 0 : 1;
  std::string text;
  if (!read_file(path, index_bytes_max, &text)) {
    if (errno == ENOENT && array_count == 0) return MXS_OK;
    if (errno == ENOENT) return set_error(MXS_DAMAGED, "%.300s: it is missing", path.c_str());
    return cannot_read_text(path, index_bytes_max);
  }
  nlohmann::json root;
  std::vector<std::pair<std::string, std::string>> file_of_tensor;
  mxs_status status = parse_json(text, &root);
  if (status == MXS_OK) status = parse_safetensors_index(root, &file_of_tensor);
  if (status != MXS_OK) return as_damage(cause_in_file(status, path));
  for (const auto &[tensor, file] : file_of_tensor) {
    const auto found = opened.index_of_name.find(tensor);
    if (found == opened.index_of_name.end() || manifest.files[manifest.arrays[found->second].file].name != file)
      return set_error(MXS_DAMAGED, "%.300s: it looks for \"%.200s\" in %.200s, where the manifest hasn't got it",
                       path.c_str(), tensor.c_str(), file.c_str());
  }
  if (file_of_tensor.size() == array_count) return MXS_OK;
  return set_error(MXS_DAMAGED, "%.300s: it names %zu arrays, but the manifest has %zu in the model's files",
                   path.c_str(), file_of_tensor.size(), array_count);
}

}  // namespace mxs
