// SPDX-License-Identifier: Apache-2.0
// A checkpoint as a save would have written it, without one: from a plan, by the doors that say what lies where. All
// bytes follow from their place, so that any can be foretold.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/describe.hpp"
#include "manifests.hpp"
#include "plan/saved.hpp"
#include "support/temporary_folder.hpp"
#include "unit/plan/models.hpp"

namespace mxs::test {

// What all byte sequences of the test data begin with; never zero, so that a hole shows.
inline std::byte byte_at(size_t file, uint64_t offset) {
  return static_cast<std::byte>(1 + (offset * 0x9e3779b97f4a7c15u >> 32 ^ file * 31) % 255);
}

// A tensor of every kind that checkpoints tell apart: with a master and without, cut among ranks, tied, empty, frozen.
inline Model model_to_save() {
  Model model;
  mxs_tensor &weight = model.add("w", {1536, 1024}, 0);
  weight.dtype = MXS_BF16;
  weight.master_dtype = MXS_F32;
  model.add("e", {301, 33}, 0, MXS_RULE_ADAMW);
  model.add("h", {301, 33}, 0).tied_to = "e";
  model.add("nothing", {0, 8}, 1, MXS_RULE_FROZEN);
  model.add("f", {7, 3}, 1, MXS_RULE_FROZEN).dtype = MXS_F16;
  model.add("stack", {3, 32, 16}, 1).dtype = MXS_BF16;
  model.options.flat_bytes = 4096;
  return model;
}

inline const std::vector<StatePart> &parts_to_save(mxs_rule rule) {
  static const std::vector<StatePart> muon = {{"momentum", StateScope::element, MXS_BF16, {}, 0, 0}};
  static const std::vector<StatePart> adamw = {{"exp_avg", StateScope::element, MXS_F32, {}, 0, 0},
                                               {"exp_avg_sq", StateScope::element, MXS_F32, {}, 0, 0}};
  static const std::vector<StatePart> none;
  return rule == MXS_RULE_MUON ? muon : rule == MXS_RULE_ADAMW ? adamw : none;
}

struct SavedByHand {
  Manifest manifest;
  std::vector<std::string> headers;  // of the files
  Plan plan;
};

inline void add_files(std::vector<FiledFile> files, SavedByHand *saved) {
  for (FiledFile &file : files) {
    const size_t index = saved->manifest.files.size();
    saved->manifest.files.push_back({file.name, file.bytes, file.data_offset,
                                     hash_chunk(file.header.data(), file.header.size())});
    saved->headers.push_back(file.header);
    for (FiledArray &array : file.arrays) {
      array.file = index;
      uint64_t offset = array.offset;
      for (ManifestPiece &piece : array.pieces) {
        const uint64_t end = offset + piece.count * array.number_bytes;
        while (offset < end) {
          std::vector<std::byte> chunk(std::min(hash_chunk_bytes, end - offset));
          for (std::byte &byte : chunk) byte = byte_at(index, offset++);
          piece.hashes.push_back(hash_chunk(chunk.data(), chunk.size()));
        }
      }
      saved->manifest.arrays.push_back(std::move(array));
    }
  }
}

// MXS_OK, or why the plan isn't made.
inline mxs_status save_by_hand(SavedByHand *saved, int rank_count = 3) {
  mxs_status status = make(model_to_save(), rank_count, &saved->plan);
  if (status == MXS_OK) status = plan_to_json(saved->plan, &saved->manifest.plan);
  if (status != MXS_OK) return status;
  Manifest &manifest = saved->manifest;
  const Manifest small = small_manifest();
  manifest.version = "0.1.0";
  manifest.step_number = 500;
  manifest.rank_count = rank_count;
  manifest.has_state = true;
  manifest.rules = small.rules;
  manifest.groups = small.groups;
  manifest.user = {"one", "", ""};
  std::vector<FiledArray> arrays = describe_model(saved->plan, false);
  Manifest extra;
  extra.files.push_back({});
  add_array(&extra, 0, "mask", "BOOL", {5}, {{0, 5}}).kind = MXS_ARRAY_EXTRA;
  extra.arrays[0].pieces[0].hashes.clear();
  arrays.push_back(extra.arrays[0]);
  add_files(file_model(std::move(arrays)), saved);
  add_files(file_optimizer(describe_optimizer(saved->plan, false, parts_to_save)), saved);
  return MXS_OK;
}

inline std::string index_text(const Manifest &manifest) {
  std::string text = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {";
  const char *between = "\"";
  for (const ManifestArray &array : manifest.arrays) {
    if (manifest.files[array.file].name.starts_with("optimizer/")) continue;
    text.append(between).append(array.name).append("\": \"").append(manifest.files[array.file].name).append("\"");
    between = ", \"";
  }
  return text.append("}}");
}

inline void write_manifest(const Manifest &manifest, const std::string &folder) {
  std::string text;
  put_content(folder + "/" + manifest_name, manifest_to_json(manifest, &text) == MXS_OK ? text : "");
}

inline void write_by_hand(const SavedByHand &saved, const std::string &folder) {
  std::filesystem::create_directories(folder + "/optimizer");
  for (size_t file = 0; file < saved.headers.size(); ++file) {
    std::string text = saved.headers[file];
    const ManifestFile &listed = saved.manifest.files[file];
    while (text.size() < listed.bytes)
      text.push_back(static_cast<char>(byte_at(file, text.size() - listed.data_offset)));
    put_content(folder + "/" + listed.name, text);
  }
  put_content(folder + "/model.safetensors.index.json", index_text(saved.manifest));
  write_manifest(saved.manifest, folder);
}

}  // namespace mxs::test
