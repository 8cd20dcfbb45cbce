// SPDX-License-Identifier: Apache-2.0
// For tests of saves: a rank that trains a model in which everything odd is, and a reader of checkpoints that knows
// nothing of how they are written.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "matrixshard/matrixshard.h"
#include "model/safetensors.hpp"
#include "support/complaints.hpp"
#include "support/temporary_folder.hpp"
#include "support/unit_model.hpp"

namespace mxs::test {

// Names in a folder, hidden ones too, with commas.
inline std::string names_in(const std::string &folder) {
  std::string text;
  for (const std::string &name : entries_of(folder)) text.append(text.empty() ? "" : ",").append(name);
  return text;
}

// The bytes of all arrays of all files that have this ending, by name.
struct Arrays {
  struct One {
    std::string dtype_word, bytes, file;
    std::vector<int64_t> shape;
  };
  std::map<std::string, One> by_name;

  std::string add_file(const std::string &folder, const std::string &name) {
    const std::string path = folder + "/" + name, all = content_of(path);
    SafetensorsHeader header;
    if (read_safetensors_header(path, &header) != MXS_OK) return mxs_last_error();
    for (const SafetensorsEntry &entry : header.entries) {
      One &one = by_name[entry.name];
      if (!one.file.empty()) return entry.name + " is in " + one.file + " and in " + name;
      one.dtype_word = entry.dtype_word;
      one.shape = entry.shape;
      one.file = name;
      one.bytes = all.substr(header.data_offset + entry.begin, entry.end - entry.begin);
      if (one.bytes.size() != entry.end - entry.begin) return name + " is shorter than its header says";
    }
    return "";
  }
  std::string add_folder(const std::string &folder, const std::string &within) {
    std::error_code none;  // weights alone have no folder optimizer
    for (const auto &entry : std::filesystem::directory_iterator(folder + "/" + within, none)) {
      const std::string name = within + entry.path().filename().string();
      if (!name.ends_with(".safetensors")) continue;
      const std::string complaint = add_file(folder, name);
      if (!complaint.empty()) return complaint;
    }
    return "";
  }
  std::string load(const std::string &folder) {
    std::string complaint = add_folder(folder, "");
    return complaint.empty() ? add_folder(folder, "optimizer/") : complaint;
  }
};

// Every role, dtype and rule; matrices of columns, of rows, stacks; frozen, tied, empty; a unit without tensors.
inline Model every_rule() {
  static const std::vector<int64_t> rows = {24, 16}, columns = {10, 8, 12}, heads(9, 256);
  Model model;
  const auto add = [&](const char *name, int unit, std::vector<int64_t> shape, mxs_dtype dtype, mxs_rule rule,
                       int group) -> mxs_tensor & {
    mxs_tensor &tensor = model.add(name, unit, std::move(shape), dtype);
    tensor.rule = rule;
    tensor.group = group;
    return tensor;
  };
  add("embedding", 0, {700, 63}, MXS_BF16, MXS_RULE_ADAMW, 1);
  mxs_tensor &q_k = add("q_k", 0, {40, 24}, MXS_BF16, MXS_RULE_SHAMPOO, 0);
  q_k.block_rows = rows.data();
  q_k.block_count = 2;
  add("wide", 1, {17, 65}, MXS_F32, MXS_RULE_SOAP, 2);
  add("experts", 1, {5, 32, 64}, MXS_BF16, MXS_RULE_SOAP, 2).master_dtype = MXS_BF16;
  mxs_tensor &c_attn = add("c_attn", 1, {12, 30}, MXS_F32, MXS_RULE_SHAMPOO, 0);
  c_attn.block_columns = columns.data();
  c_attn.block_column_count = 3;
  add("cut", 1, {40, 20}, MXS_F32, MXS_RULE_SHAMPOO, 0);
  add("hidden", 2, {20, 32}, MXS_BF16, MXS_RULE_MUON, 1).master_dtype = MXS_BF16;
  add("stack", 2, {7, 32, 64}, MXS_BF16, MXS_RULE_MUON, 1);
  add("bias", 2, {7}, MXS_F16, MXS_RULE_ADAMW, 1);
  mxs_tensor &head = add("heads", 2, {40, 2304}, MXS_F32, MXS_RULE_MUON, 1);
  head.block_columns = heads.data();
  head.block_column_count = 9;
  add("nothing", 4, {0, 12}, MXS_F32, MXS_RULE_MUON, 1);
  add("table", 4, {333, 40}, MXS_F32, MXS_RULE_FROZEN, 0);
  add("mine", 4, {9, 5}, MXS_BF16, MXS_RULE_EXTERNAL, 0);
  add("output", 5, {41, 64}, MXS_F16, MXS_RULE_MUON, 1);
  add("tied", 5, {41, 64}, MXS_F16, MXS_RULE_AUTO, 0).tied_to = "output";
  add("scale", 5, {}, MXS_F32, MXS_RULE_ADAMW, 1);
  model.finish();
  return model;
}

// A rank with units and an optimizer.
class Saver : public Units {
 public:
  ~Saver() { mxs_optimizer_destroy(&optimizer); }

  std::string make_all(mxs_comm *its_comm, const Model &model = every_rule()) {
    const std::string complaint = make(its_comm, model, unit_options);
    if (!complaint.empty()) return complaint;
    if (unit_with_more_slots >= 0) {
      mxs_unit *&unit = units[static_cast<size_t>(unit_with_more_slots)];
      mxs_unit_options more = MXS_UNIT_OPTIONS_INIT;
      more.slots = 3;
      mxs_unit_destroy(&unit);
      if (mxs_unit_create(&unit, comm, plan, unit_with_more_slots, &more) != MXS_OK) return error_of("mxs_unit_create");
    }
    shampoo_.interval = soap_.interval = 2;
    shampoo_.block_max = block_max;
    muon_.preset = muon_preset;
    mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
    options.shampoo_options = &shampoo_;
    options.soap_options = &soap_;
    options.muon_options = &muon_;
    return want(MXS_OK, mxs_optimizer_create(&optimizer, units.data(), units.size(), &options), "the optimizer");
  }

  // Weights of version 1, and a step, after which state is no longer zero.
  std::string train(int first_round = 1, int rounds = 2) {
    std::string complaint = first_round == 1 ? fill(1) : "";
    for (int round = first_round; round < first_round + rounds && complaint.empty(); round++) complaint = turn(round);
    return complaint;
  }

  mxs_status save(const std::string &path, const mxs_checkpoint_options *options = nullptr) {
    return mxs_checkpoint_save(path.c_str(), units.data(), units.size(), optimizer, options);
  }
  mxs_status start(mxs_save **save, const std::string &path, const mxs_checkpoint_options *options = nullptr) {
    return mxs_save_start(save, path.c_str(), units.data(), units.size(), optimizer, options);
  }

  // Weights as they are gathered, all ranks' masters that are here, and all of this rank's state are in the arrays.
  std::string compare(const Arrays &arrays, bool masters = false) {
    std::string complaint = compare_weights(arrays, masters);
    for (uint64_t number = 0; number < inner().placements.size() && complaint.empty(); number++)
      complaint = compare_master(arrays, number, masters);
    for (uint64_t i = 0; i < mxs_optimizer_state_count(optimizer) && complaint.empty(); i++)
      complaint = compare_state(arrays, i);
    return complaint;
  }

  std::string compare_weights(const Arrays &arrays, bool masters = false) {
    std::string complaint;
    for (size_t index = 0; index < units.size(); index++) {
      mxs_unit *const unit = units[index];
      if (mxs_unit_gather(unit, nullptr) != MXS_OK || mxs_unit_wait(unit, nullptr) != MXS_OK) return error_of("gather");
      for (const int tensor : inner().units[index].tensors) {
        const PlannedTensor &planned = inner().tensors[static_cast<size_t>(tensor)];
        if (masters && planned.master_dtype != planned.dtype) continue;
        mxs_view view = MXS_VIEW_INIT;
        if (mxs_unit_tensor(unit, tensor, &view) != MXS_OK) return error_of("mxs_unit_tensor");
        if (complaint.empty()) complaint = same_bytes(arrays, planned.name, 0, view.data, view.bytes, view.bytes);
      }
      if (mxs_unit_release(unit, MXS_FREE, nullptr) != MXS_OK) return error_of("release");
    }
    return complaint;
  }

  uint64_t owned_bytes() const {
    uint64_t bytes = 0;
    for (const mxs_unit *unit : units)
      for (const OwnedPlacement &owned : unit->owned())
        bytes += owned.element_count *
                 (dtype_bytes(owned.dtype) + (owned.master ? dtype_bytes(owned.master_dtype) : 0));
    for (uint64_t i = 0; i < mxs_optimizer_state_count(optimizer); i++) {
      mxs_state_info info = MXS_STATE_INFO_INIT;
      mxs_optimizer_state(optimizer, i, &info);
      bytes += info.view.bytes;
    }
    return bytes;
  }

  mxs_optimizer *optimizer = nullptr;
  // These are set before make_all.
  int block_max = 16;
  mxs_preset muon_preset = MXS_PRESET_NORMUON;
  const mxs_unit_options *unit_options = nullptr;
  int unit_with_more_slots = -1;  // than the others: it is of another pool

 private:
  std::string turn(int round) {
    for (size_t index = 0; index < units.size(); index++) {
      if (inner().units[index].tensors.empty()) continue;
      for (const int tensor : inner().units[index].tensors) {
        const PlannedTensor &planned = inner().tensors[static_cast<size_t>(tensor)];
        if (planned.frozen() || planned.tied_to >= 0) continue;
        mxs_view view = MXS_VIEW_INIT;
        if (mxs_unit_gradient(units[index], tensor, MXS_WRITE, &view) != MXS_OK) return error_of("mxs_unit_gradient");
        for (uint64_t i = 0; i < planned.element_count; i++)
          write_value(view.data, view.dtype, i, hashed(static_cast<uint64_t>(tensor), i, static_cast<uint64_t>(round)));
      }
      if (mxs_unit_reduce(units[index], nullptr) != MXS_OK) return error_of("mxs_unit_reduce");
    }
    mxs_group_values groups[3] = {MXS_GROUP_VALUES_INIT, MXS_GROUP_VALUES_INIT, MXS_GROUP_VALUES_INIT};
    groups[1].lr = 0.02f;
    groups[2].beta1 = 0.95f;
    mxs_step step = MXS_STEP_INIT;
    step.group_count = 3;
    step.groups = groups;
    return want(MXS_OK, mxs_optimizer_step(optimizer, &step, nullptr), "the step");
  }

  static std::string same_bytes(const Arrays &arrays, const std::string &name, uint64_t offset, const void *data,
                                uint64_t bytes, uint64_t whole_bytes) {
    const auto found = arrays.by_name.find(name);
    if (found == arrays.by_name.end()) return name + " is missing";
    if (found->second.bytes.size() != whole_bytes) return name + " has another size";
    const bool same = found->second.bytes.compare(offset, bytes, static_cast<const char *>(data), bytes) == 0;
    return same ? "" : name + " has other bytes";
  }

  std::string compare_master(const Arrays &arrays, uint64_t number, bool masters) {
    const Placement &piece = inner().placements[number];
    const PlannedTensor &planned = inner().tensors[static_cast<size_t>(piece.tensor)];
    if (piece.owner != rank || piece.element_count == 0 || planned.master_dtype == planned.dtype) return "";
    mxs_view view = MXS_VIEW_INIT;
    if (mxs_unit_shard(units[static_cast<size_t>(piece.unit)], number, &view) != MXS_OK) return error_of("shard");
    return same_bytes(arrays, masters ? planned.name : planned.name + ".master", 4 * piece.element_offset, view.data,
                      view.bytes, 4 * planned.element_count);
  }

  std::string compare_state(const Arrays &arrays, uint64_t index) {
    mxs_state_info info = MXS_STATE_INFO_INIT;
    if (mxs_optimizer_state(optimizer, index, &info) != MXS_OK) return error_of("mxs_optimizer_state");
    const PlannedTensor &planned = inner().tensors[static_cast<size_t>(info.tensor)];
    const Placement &piece = inner().placements[info.placement];
    const std::string part = info.name;
    const std::string name = planned.name + "." + part;
    for (const char *by_element : {"momentum", "exp_avg", "exp_avg_sq", "graft_sq"})
      if (part == by_element)
        return same_bytes(arrays, name, 4 * piece.element_offset, info.view.data, info.view.bytes,
                          4 * planned.element_count);
    if (part == "second_momentum") {
      // As many for each element of a piece as for each of the tensor.
      const uint64_t per_tensor = info.view.bytes * planned.element_count / piece.element_count;
      return same_bytes(arrays, name, per_tensor * piece.element_offset / planned.element_count, info.view.data,
                        info.view.bytes, per_tensor);
    }
    const size_t dot = part.find('.');
    std::string of_matrix = planned.name + "." + part.substr(0, dot);
    if (planned.placement_count > 1) of_matrix += "." + std::to_string(info.placement - planned.placement_index);
    if (dot != std::string::npos) of_matrix += part.substr(dot);
    return same_bytes(arrays, of_matrix, 0, info.view.data, info.view.bytes, info.view.bytes);
  }

  mxs_shampoo_options shampoo_ = MXS_SHAMPOO_OPTIONS_INIT;
  mxs_soap_options soap_ = MXS_SOAP_OPTIONS_INIT;
  mxs_muon_options muon_ = MXS_MUON_OPTIONS_INIT;
};

// The manifest agrees with itself and with what is on disk: sizes, headers, hashes of all pieces.
inline std::string check_manifest_of(const std::string &folder, Manifest *manifest) {
  if (manifest_from_json(content_of(folder + "/" + manifest_name), manifest) != MXS_OK) return mxs_last_error();
  std::vector<std::string> bytes;
  for (const ManifestFile &file : manifest->files) {
    bytes.push_back(content_of(folder + "/" + file.name));
    if (bytes.back().size() != file.bytes) return file.name + " has another size";
    if (hash_chunk(bytes.back().data(), file.data_offset) != file.header_hash) return file.name + " has another header";
  }
  for (const ManifestArray &array : manifest->arrays)
    for (const ManifestPiece &piece : array.pieces) {
      uint64_t at = manifest->files[array.file].data_offset + array.offset + piece.first * array.number_bytes;
      uint64_t left = piece.count * array.number_bytes;
      for (const uint64_t hash : piece.hashes) {
        const uint64_t chunk = std::min(left, hash_chunk_bytes);
        if (hash_chunk(bytes[array.file].data() + at, chunk) != hash) return array.name + " has another hash";
        at += chunk;
        left -= chunk;
      }
      if (left > 0) return array.name + " has too few hashes";
    }
  return "";
}

}  // namespace mxs::test
