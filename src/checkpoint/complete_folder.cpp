// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/complete_folder.hpp"

#include <utility>

#include "base/json_field.hpp"

namespace mxs {

namespace {

// What Hugging Face's readers begin with.
std::string index_to_json(const Manifest &manifest) {
  uint64_t total_bytes = 0;
  Json weight_map = Json::object();
  for (const ManifestArray &array : manifest.arrays) {
    if (array.kind != MXS_ARRAY_WEIGHTS && array.kind != MXS_ARRAY_EXTRA) continue;
    total_bytes += array.bytes;
    weight_map[array.name] = manifest.files[array.file].name;
  }
  const Json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", std::move(weight_map)}};
  return index.dump(2) + "\n";
}

}  // namespace

mxs_status complete_folder(const Manifest &manifest, const std::string &files_from, IoProgress *progress,
                           PartialFolder *folder) {
  std::string text;
  mxs_status status = manifest_to_json(manifest, &text);
  if (status == MXS_OK) status = write_synced(folder->path() + "/" + index_name, index_to_json(manifest));
  if (status == MXS_OK) status = write_synced(folder->path() + "/" + manifest_name, text);
  if (status == MXS_OK && !files_from.empty()) status = copy_companions(files_from, folder->path());
  if (status == MXS_OK) status = tell_progress(progress);
  return status == MXS_OK ? folder->commit() : status;
}

}  // namespace mxs
