// SPDX-License-Identifier: Apache-2.0
// Manifests made by hand, for tests and for the fuzz target.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "model/safetensors.hpp"

namespace mxs::test {

// Which numbers of an array a rank wrote.
struct Share {
  int rank;
  uint64_t count;
};

// Puts an array behind all others of its file, which grows. Hashes are counted up.
inline ManifestArray &add_array(Manifest *manifest, size_t file, const std::string &name, const char *dtype,
                                std::vector<int64_t> shape, std::initializer_list<Share> shares) {
  ManifestArray array;
  array.name = array.tensor = name;
  const SafetensorsFormat &format = *find_safetensors_format(dtype);
  array.dtype_word = dtype;
  array.dtype = format.dtype;
  array.number_bytes = format.number_bytes;
  array.shape = std::move(shape);
  uint64_t numbers = 0;
  if (numbers_of_shape(array.shape, &numbers)) array.bytes = numbers * array.number_bytes;
  array.file = file;
  array.offset = manifest->files[file].bytes - manifest->files[file].data_offset;
  manifest->files[file].bytes += array.bytes;
  uint64_t first = 0;
  for (const Share &share : shares) {
    ManifestPiece piece{share.rank, first, share.count, {}};
    const uint64_t bytes = share.count * array.number_bytes;
    for (uint64_t chunk = 0; chunk * hash_chunk_bytes < bytes; ++chunk)
      piece.hashes.push_back(0xfedcba9876543210u + manifest->arrays.size() * 1000 + chunk);
    array.pieces.push_back(std::move(piece));
    first += share.count;
  }
  return manifest->arrays.emplace_back(std::move(array));
}

inline ManifestArray &add_state(Manifest *manifest, size_t file, const std::string &tensor, const char *part,
                                const char *dtype, std::vector<int64_t> shape, std::initializer_list<Share> shares) {
  ManifestArray &array = add_array(manifest, file, tensor + "." + part, dtype, std::move(shape), shares);
  array.kind = MXS_ARRAY_STATE;
  array.tensor = tensor;
  array.part = part;
  return array;
}

// Of everything something: two owners, an empty array, a scalar, state of a block and of its cut, extras, user bytes.
inline Manifest small_manifest() {
  Manifest manifest;
  manifest.version = "0.1.0";
  manifest.step_number = UINT64_MAX;
  manifest.rank_count = 3;
  manifest.has_state = true;
  manifest.rules = {{MXS_RULE_MUON, MXS_PRESET_MOONLIGHT, 0x123456789abcdef0u},
                    {MXS_RULE_ADAMW, MXS_PRESET_DEFAULT, 1}};
  manifest.rounding = UINT64_MAX;
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  values.lr = 0.1f;
  manifest.groups = {values, std::nullopt};
  manifest.user = {std::string("\0\xff\n", 3), "", "a"};
  manifest.plan = "{\"matrixshard_plan\": 1, \"tensors\": [{\"name\": \"}\\\"{\"}]}";
  for (const char *name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "optimizer/rank-00000.safetensors", "optimizer/shared.safetensors"})
    manifest.files.push_back({name, 4096, 4096, 0x0102030405060708u});
  add_array(&manifest, 0, "w", "BF16", {4096, 1024}, {{0, 4096 * 1024}});
  add_array(&manifest, 0, "nothing", "F32", {0, 5}, {{0, 0}});
  add_array(&manifest, 0, "mask \"\xc3\xa9\"", "BOOL", {1, 3}, {{0, 3}}).kind = MXS_ARRAY_EXTRA;
  add_array(&manifest, 1, "e", "F32", {3, 5}, {{1, 10}, {2, 5}});
  ManifestArray &master = add_array(&manifest, 2, "w.master", "F32", {4096, 1024}, {{0, 4096 * 1024}});
  master.kind = MXS_ARRAY_MASTER;
  master.tensor = manifest.arrays[0].name;
  ManifestArray &factor = add_state(&manifest, 2, "w", "factor_left", "F32", {2, 2}, {{0, 4}});
  factor.block = 0;
  factor.cut = 3;
  add_state(&manifest, 2, "w", "scale", "F64", {}, {{0, 1}});
  add_state(&manifest, 3, "e", "exp_avg", "F32", {3, 5}, {{1, 10}, {2, 5}});
  return manifest;
}

}  // namespace mxs::test
