// SPDX-License-Identifier: Apache-2.0
// From a path to an open checkpoint.
//
//   a folder with matrixshard.json   the manifest, then all that it says: files, headers, index, plan
//   a folder with step-* folders     the newest of them, as above
//   *.safetensors, an index, or a    headers; what a manifest would say is made up of them
//   folder that has such files
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/hash.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/opened_checks.hpp"
#include "machine/machine.hpp"
#include "matrixshard/version.h"
#include "model/weight_files.hpp"
#include "plan/saved.hpp"

namespace mxs {
namespace {

constexpr size_t manifest_bytes_max = size_t{1} << 30;  // of three million arrays

bool is_there(const std::string &path) {
  struct stat information {};
  return stat(path.c_str(), &information) == 0;
}

// Names differ: the reader of the manifest, or of the headers, has seen to it.
void index_arrays(OpenedCheckpoint *opened) {
  opened->index_of_name.reserve(opened->manifest.arrays.size());
  for (size_t index = 0; index < opened->manifest.arrays.size(); ++index) {
    opened->index_of_name.emplace(opened->manifest.arrays[index].name, index);
    opened->bytes += opened->manifest.arrays[index].bytes;
  }
}

// Files of masters and state, which only our saves write.
bool has_state_files(const std::string &folder) {
  std::error_code fault;
  std::filesystem::directory_iterator entry(folder + "/optimizer", fault), end;
  for (; !fault && entry != end; entry.increment(fault))
    if (is_checkpoint_file_name("optimizer/" + entry->path().filename().string())) return true;
  return false;
}

uint64_t hash_of_files(const Manifest &manifest, std::string_view text) {
  Fingerprint hash;
  hash.add(text);
  for (const ManifestFile &file : manifest.files)
    hash.add(file.name).add(file.bytes).add(file.data_offset).add(file.header_hash);
  return hash.value();
}

// ---- with a manifest ----

mxs_status read_manifest(const std::string &folder, std::string *text) {
  const std::string path = folder + "/" + manifest_name;
  if (read_file(path, manifest_bytes_max, text)) return MXS_OK;
  if (errno == ENOENT)
    return set_error(MXS_DAMAGED, "%.300s: it is missing, so this is no whole checkpoint; for its weights alone open "
                     "its model.safetensors.index.json", path.c_str());
  return cannot_read_text(path, manifest_bytes_max);
}

mxs_status restore_saved_plan(const Manifest &manifest, std::unique_ptr<Plan> *plan) {
  auto made = std::make_unique<Plan>();
  SavedPlan saved;
  mxs_status status = saved_plan_from_json(manifest.plan, &saved);
  if (status == MXS_OK) status = restore_plan(saved, made.get());
  if (status != MXS_OK) return set_error(status, "plan: %s", std::string(last_error_text()).c_str());
  *plan = std::move(made);
  return MXS_OK;
}

// Plans are read by making them anew. A release that plans otherwise can't make an older one's, but arrays say all that
// a load wants; within one release it is damage.
mxs_status take_plan(OpenedCheckpoint *opened) {
  mxs_status status = restore_saved_plan(opened->manifest, &opened->plan);
  if (status == MXS_OK) return check_plan_arrays(*opened, *opened->plan);
  if (opened->manifest.version == mxs_version_text()) return status;
  opened->plan_fault = "saved by release " + opened->manifest.version + ": " + last_error_text();
  log_line(MXS_LOG_WARNING, "%.300s is opened without its plan, which this release can't make again (%s)",
           opened->path.c_str(), opened->plan_fault.c_str());
  return MXS_OK;
}

mxs_status open_saved(const std::string &folder, OpenedCheckpoint *opened) {
  const std::string manifest_path = folder + "/" + manifest_name;
  std::string text;
  mxs_status status = read_manifest(folder, &text);
  if (status != MXS_OK) return status;
  opened->path = folder;
  opened->has_manifest = true;
  status = cause_in_file(manifest_from_json(text, &opened->manifest), manifest_path);
  if (status == MXS_OK) status = cause_in_file(check_manifest_hash(text), manifest_path);
  if (status != MXS_OK) return status;
  opened->hash = hash_of_files(opened->manifest, text);
  text = std::string();
  index_arrays(opened);
  status = for_each_file(opened->manifest, [&](size_t file, size_t first, size_t end) {
    return check_file(*opened, file, first, end);
  });
  if (status == MXS_OK) status = check_index(*opened);
  if (status != MXS_OK) return status;
  status = cause_in_file(take_plan(opened), manifest_path);
  return as_damage(status);
}

// ---- without one ----

void add_header(const std::string &name, SafetensorsHeader &&header, const std::string &bytes, Manifest *manifest) {
  const uint64_t data_bytes = header.entries.empty() ? 0 : header.entries.back().end;
  const size_t file = manifest->files.size();
  manifest->files.push_back({name, header.data_offset + data_bytes, header.data_offset,
                             hash_chunk(bytes.data(), bytes.size())});
  for (SafetensorsEntry &entry : header.entries) {
    ManifestArray &array = manifest->arrays.emplace_back();
    array.name = array.tensor = std::move(entry.name);
    array.number_bytes = find_safetensors_format(entry.dtype_word)->number_bytes;
    array.dtype_word = std::move(entry.dtype_word);
    array.dtype = entry.dtype;
    array.shape = std::move(entry.shape);
    array.file = file;
    array.offset = entry.begin;
    array.bytes = entry.end - entry.begin;
  }
}

// A file that the index names, or that was listed, and that isn't there is damage; one that can't be read isn't.
mxs_status open_weights(const WeightFiles &files, OpenedCheckpoint *opened) {
  for (const std::string &name : files.names)
    if (!is_there(files.folder + "/" + name) && (errno == ENOENT || errno == ENOTDIR))
      return set_error(MXS_DAMAGED, "%.300s/%.200s: it is missing", files.folder.c_str(), name.c_str());
  const mxs_status status = as_damage(read_weight_headers(
      files, [&](const std::string &name, SafetensorsHeader &&header, const std::string &bytes) {
        add_header(name, std::move(header), bytes, &opened->manifest);
        return MXS_OK;
      }));
  if (status != MXS_OK) return status;
  opened->path = files.folder;
  opened->hash = hash_of_files(opened->manifest, "");
  index_arrays(opened);
  return MXS_OK;
}

mxs_status open_index(const std::string &path, OpenedCheckpoint *opened) {
  std::string text;
  nlohmann::json root;
  WeightFiles files;
  if (!read_file(path, index_bytes_max, &text)) return cannot_read_text(path, index_bytes_max);
  mxs_status status = parse_json(text, &root);
  if (status == MXS_OK) status = weight_files_of_index(folder_of(path), root, &files);
  if (status != MXS_OK) return as_damage(cause_in_file(status, path));
  return open_weights(files, opened);
}

mxs_status open_folder(const std::string &folder, OpenedCheckpoint *opened) {
  if (is_there(folder + "/" + manifest_name)) return open_saved(folder, opened);
  const std::string newest = newest_checkpoint(folder);
  if (!newest.empty()) return open_saved(newest, opened);
  std::string index;
  WeightFiles files;
  const mxs_status status = as_damage(list_weight_files(folder, &index, &files));
  if (status != MXS_OK) return status;
  if (files.names.empty() && index.empty())
    return set_error(MXS_NOT_FOUND, "%.300s: the folder has no checkpoint: neither matrixshard.json nor step-* folders "
                     "nor *.safetensors", folder.c_str());
  // A save that has lost its manifest is damaged, not somebody's model.
  if (has_state_files(folder)) return open_saved(folder, opened);
  return index.empty() ? open_weights(files, opened) : open_index(folder + "/" + index, opened);
}

mxs_status open_any(const std::string &path, OpenedCheckpoint *opened) {
  struct stat information {};
  if (stat(path.c_str(), &information) != 0) {
    if (errno != ENOENT && errno != ENOTDIR)
      return set_error(MXS_SYSTEM, "read %.300s: %s", path.c_str(), std::strerror(errno));
    return set_error(MXS_NOT_FOUND, "%.300s: there is nothing of this name; give a checkpoint, a folder of checkpoints "
                     "(step-*), or a safetensors model", path.c_str());
  }
  if (S_ISDIR(information.st_mode)) return open_folder(path, opened);
  const std::string name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  if (name == manifest_name) return open_saved(folder_of(path), opened);
  if (path.ends_with(".json")) return open_index(path, opened);
  if (!path.ends_with(weight_ending))
    return set_error(MXS_NOT_FOUND, "%.300s: it is no checkpoint: neither a folder nor *.safetensors nor an index "
                     "(*.json)", path.c_str());
  WeightFiles files;
  files.folder = folder_of(path);
  files.names = {name};
  return open_weights(files, opened);
}

}  // namespace

mxs_status open_checkpoint(const std::string &path, OpenedCheckpoint *opened) {
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  const mxs_status status = open_any(plain, opened);
  return status == MXS_OK ? MXS_OK : set_error(status, "checkpoint: %s", std::string(last_error_text()).c_str());
}

}  // namespace mxs
