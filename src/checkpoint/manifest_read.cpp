// SPDX-License-Identifier: Apache-2.0
// A manifest from text, field by field; whether it contradicts itself is seen next, in manifest_check.cpp. See
// manifest_words.hpp.
//
// Arrays are read one by one as the parser comes to them, and the plan is passed over: as a tree the manifest of
// 400,000 arrays would take a gigabyte.
#include <cmath>

#include "base/arithmetic.hpp"
#include "base/base64.hpp"
#include "base/json.hpp"
#include "base/json_field.hpp"
#include "base/status.hpp"
#include "base/words.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/manifest_words.hpp"
#include "kernels/presets.hpp"
#include "model/safetensors.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

constexpr int64_t number_max = static_cast<int64_t>(bytes_max);
constexpr size_t word_bytes_max = 64;

void read_preset(const JsonField &field, mxs_preset *preset) {
  std::string word;
  field.read_text(&word, word_bytes_max);
  if (!field.good()) return;
  int count = 0;
  const Preset *const presets = all_presets(&count);
  for (int index = 0; index < count; ++index)
    if (word == presets[index].name) {
      *preset = presets[index].preset;
      return;
    }
  field.wrong("is no preset that this release knows");
}

void read_rule(const JsonField &entry, ManifestRule *rule) {
  if (!entry.is_object({"rule", "preset", "options"})) return;
  entry["rule"].read_word(&rule->rule, rule_words, std::size(rule_words));
  read_preset(entry["preset"], &rule->preset);
  entry["options"].read_hexadecimal(&rule->options);
}

void read_float(const JsonField &field, float *value) {
  if (!field.good()) return;
  const double number = field.value().is_number() ? field.value().get<double>() : -1;
  const float rounded = static_cast<float>(number);  // infinite, where it is too large
  if (number >= 0 && std::isfinite(rounded))
    *value = rounded;
  else
    field.wrong("is not a number from 0 to the largest in fp32");
}

void read_group(const JsonField &entry, std::optional<mxs_group_values> *group) {
  if (!entry.good() || entry.value().is_null()) return;
  if (!entry.is_object({"lr", "weight_decay", "momentum", "beta1", "beta2", "epsilon"})) return;
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  for (const GroupField &each : group_fields) read_float(entry[each.name], &(values.*each.member));
  *group = values;
}

void read_user(const JsonField &field, std::string *bytes) {
  std::string text;
  field.read_text(&text, (user_bytes_max + 2) / 3 * 4);
  if (!field.good()) return;
  if (!bytes_of_base64(text, bytes)) field.wrong("is not base64");
}

// use(element, made) for each of a list; one after the other, so that a list of something else takes no room.
template <class Value, class Use>
void read_list(const JsonField &list, std::vector<Value> *values, Use &&use) {
  if (!list.is_list(0, SIZE_MAX)) return;
  for (size_t index = 0; list.good() && index < list.size(); ++index) use(list[index], &values->emplace_back());
}

void read_file(const JsonField &entry, ManifestFile *file) {
  if (!entry.is_object({"name", "bytes", "header_bytes", "header_hash"})) return;
  entry["name"].read_name(&file->name);
  entry["bytes"].read(&file->bytes, 0, number_max);
  entry["header_bytes"].read(&file->data_offset, 0, number_max);
  entry["header_hash"].read_hexadecimal(&file->header_hash);
}

void read_piece(const JsonField &entry, ManifestPiece *piece) {
  if (!entry.is_object({"rank", "count", "hashes"})) return;
  entry["rank"].read(&piece->rank, 0, rank_count_max - 1);
  entry["count"].read(&piece->count, 0, number_max);
  read_list(entry["hashes"], &piece->hashes, [](const JsonField &hash, uint64_t *value) {
    hash.read_hexadecimal(value);
  });
}

// Pieces go on where the one before ended; a sum beyond 2^62 shows as one that doesn't fit the shape.
void read_pieces(const JsonField &list, std::vector<ManifestPiece> *pieces) {
  uint64_t end = 0;
  read_list(list, pieces, [&end](const JsonField &entry, ManifestPiece *piece) {
    read_piece(entry, piece);
    piece->first = end;
    if (!checked_add(end, piece->count, &end)) entry["count"].wrong("makes more than 2^62 numbers");
  });
  pieces->shrink_to_fit();
}

void read_format(const JsonField &field, ManifestArray *array) {
  field.read_text(&array->dtype_word, word_bytes_max);
  if (!field.good()) return;
  const SafetensorsFormat *const format = find_safetensors_format(array->dtype_word);
  if (!format) {
    field.wrong("is no dtype of safetensors");
    return;
  }
  array->dtype = format->dtype;
  array->number_bytes = format->number_bytes;
}

// Of a master and of state: whose it is.
void read_belonging(const JsonField &entry, ManifestArray *array) {
  const bool is_state = array->kind == MXS_ARRAY_STATE, has_tensor = is_state || array->kind == MXS_ARRAY_MASTER;
  for (const char *name : {"part", "block", "cut"})
    if (!is_state && entry.has(name)) entry[name].wrong("stands there, but it is no state");
  if (!has_tensor && entry.has("tensor")) entry["tensor"].wrong("stands there, but it is neither master nor state");
  if (has_tensor)
    entry["tensor"].read_name(&array->tensor);
  else
    array->tensor = array->name;
  if (is_state) entry["part"].read_name(&array->part);
  if (entry.has("block")) entry["block"].read(&array->block, 0, number_max);
  if (entry.has("cut")) entry["cut"].read(&array->cut, 0, number_max);
}

void read_array(const JsonField &entry, ManifestArray *array) {
  if (!entry.is_object({"name", "dtype", "shape", "kind", "tensor", "part", "block", "cut", "file", "offset",
                        "pieces"}))
    return;
  entry["name"].read_name(&array->name);
  read_format(entry["dtype"], array);
  entry["shape"].read_numbers(&array->shape, 0, number_max);
  if (entry.good() && array->shape.size() > MXS_DIMENSIONS_MAX) entry["shape"].wrong("is longer than 8");
  entry["kind"].read_word(&array->kind, array_kind_words, std::size(array_kind_words));
  read_belonging(entry, array);
  entry["file"].read(&array->file, 0, number_max);
  entry["offset"].read(&array->offset, 0, number_max);
  read_pieces(entry["pieces"], &array->pieces);
  uint64_t numbers = 0;
  if (entry.good() && (!numbers_of_shape(array->shape, &numbers) ||
                       !checked_multiply(numbers, array->number_bytes, &array->bytes)))
    entry["shape"].wrong("has more than 2^62 bytes");
}

void read_head(const JsonField &root, Manifest *manifest) {
  if (!root.is_object({"matrixshard_checkpoint", "version", "step", "ranks", "masters", "state", "rules", "rounding",
                       "groups", "user", "files", "arrays", "plan", "hash"}))
    return;
  root["version"].read_text(&manifest->version, word_bytes_max);
  root["step"].read_unsigned(&manifest->step_number);
  root["ranks"].read(&manifest->rank_count, 1, rank_count_max);
  root["masters"].read_flag(&manifest->masters);
  root["state"].read_flag(&manifest->has_state);
  read_list(root["rules"], &manifest->rules, read_rule);
  root["rounding"].read_hexadecimal(&manifest->rounding);
  read_list(root["groups"], &manifest->groups, read_group);
  read_list(root["user"], &manifest->user, read_user);
  read_list(root["files"], &manifest->files, read_file);
  root["arrays"].is_list(0, 0);  // they have been handed over
  uint64_t hash = 0;
  root["hash"].read_hexadecimal(&hash);  // compared by check_manifest_hash
}

// Before all else: a newer release may have other fields, which are no damage.
mxs_status check_version(const Json &json) {
  mxs_status status = MXS_OK;
  int64_t known = 0;
  const JsonField root(&json, "", &status);
  if (!json.is_object() || !json.contains("matrixshard_checkpoint"))
    return set_error(MXS_DAMAGED, "it is no manifest of a checkpoint: matrixshard_checkpoint is missing");
  root["matrixshard_checkpoint"].read(&known, 1, INT64_MAX);
  if (status != MXS_OK || known == manifest_version) return status;
  return set_error(MXS_NOT_BUILT,
                   "it was written by a newer release (version %lld; this one reads %lld): update matrixshard",
                   static_cast<long long>(known), static_cast<long long>(manifest_version));
}

mxs_status read_manifest(std::string_view text, Manifest *manifest) {
  mxs_status array_status = MXS_OK;
  std::string array_fault;
  JsonParts parts;
  parts.list = "arrays";
  parts.object = "plan";
  parts.take = [&](size_t index, const Json &element) {
    if (array_status != MXS_OK) return;
    const JsonField entry(&element, "arrays[" + std::to_string(index) + "]", &array_status);
    read_array(entry, &manifest->arrays.emplace_back());
    if (array_status != MXS_OK) array_fault = last_error_text();
  };
  Json json;
  mxs_status status = parse_json(text, &parts, &json);
  if (status == MXS_OK) status = check_version(json);
  if (status != MXS_OK) return status;
  const JsonField root(&json, "", &status);
  read_head(root, manifest);
  if (status != MXS_OK) return status;
  if (array_status != MXS_OK) return set_error(array_status, "%s", array_fault.c_str());
  if (root["plan"].is_object({})) manifest->plan = parts.object_text;
  return status == MXS_OK ? check_manifest(*manifest) : status;
}

}  // namespace

mxs_status manifest_from_json(std::string_view text, Manifest *manifest) {
  Manifest read;
  const mxs_status status = read_manifest(text, &read);
  if (status == MXS_INVALID_ARGUMENT) return set_error(MXS_DAMAGED, "%s", std::string(last_error_text()).c_str());
  if (status == MXS_OK) *manifest = std::move(read);
  return status;
}

mxs_status check_manifest_hash(std::string_view text) {
  constexpr size_t digits = 16;
  const size_t hashed = text.rfind(manifest_hash_member);
  if (hashed == std::string_view::npos)
    return set_error(MXS_DAMAGED, "it doesn't end with its hash: it was edited, or isn't what was saved");
  const std::string_view told = text.substr(hashed + manifest_hash_member.size());
  if (told.size() == digits + manifest_end.size() && told.ends_with(manifest_end) &&
      told.starts_with(hexadecimal_text(hash_chunk(text.data(), hashed))))
    return MXS_OK;
  return set_error(MXS_DAMAGED, "it was edited, or isn't what was saved: its hash is another");
}

}  // namespace mxs
