// SPDX-License-Identifier: Apache-2.0
// Manifest: what a checkpoint's matrixshard.json says. Values and their JSON; no file is touched here.
//
//   files    each with its size and the hash of its header
//   arrays   where each lies, what it is of the model, and the hashes of the pieces that ranks wrote
//
// Hashes are XXH3 (64 bits) of chunks of 4 MiB, counted from the first byte of each piece; the last chunk is shorter.
// So a rank hashes what it writes alone, and a reader of any range reads at most one chunk more at either end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "matrixshard/checkpoint.h"

namespace mxs {

constexpr uint64_t hash_chunk_bytes = uint64_t{4} << 20;
constexpr char manifest_name[] = "matrixshard.json";
constexpr char index_name[] = "model.safetensors.index.json";

// Numbers [first, first + count) of an array, in row order.
struct ManifestPiece {
  int rank = 0;
  uint64_t first = 0, count = 0;
  std::vector<uint64_t> hashes;
};

struct ManifestArray {
  std::string name;
  std::string dtype_word;     // "BF16"
  mxs_dtype dtype = 0;        // 0: none of ours
  uint32_t number_bytes = 0;  // of one
  std::vector<int64_t> shape;
  mxs_array_kind kind = MXS_ARRAY_WEIGHTS;
  std::string tensor;  // of a master and of state: whose; else the name
  std::string part;    // of state, as in mxs_state_part, without the number of a block: "momentum", "factor_left"
  // State of one matrix: its placement within the tensor, and the block that shampoo cuts of it. -1: state that has
  // numbers for all of the tensor, pieces of which lie with its pieces.
  int64_t block = -1, cut = -1;
  size_t file = 0;
  uint64_t offset = 0;  // bytes within the file's data
  uint64_t bytes = 0;
  std::vector<ManifestPiece> pieces;  // ascending, covering all of it; without a manifest there are none
};

struct ManifestFile {
  std::string name;  // within the folder: "model-00001-of-00004.safetensors", "optimizer/rank-00000.safetensors"
  uint64_t bytes = 0, data_offset = 0;
  uint64_t header_hash = 0;  // XXH3 of its first data_offset bytes
};

struct ManifestRule {
  mxs_rule rule = MXS_RULE_AUTO;
  mxs_preset preset = MXS_PRESET_DEFAULT;
  uint64_t options = 0;  // hash: OptionHashes
};

struct Manifest {
  std::string version;  // of the library
  uint64_t step_number = 0;
  int rank_count = 0;
  bool masters = false;    // model files have them
  bool has_state = false;  // of an optimizer
  std::vector<ManifestRule> rules;  // that step something
  uint64_t rounding = 0;            // hash: OptionHashes
  std::vector<std::optional<mxs_group_values>> groups;  // by number
  std::vector<std::string> user;    // by rank: bytes; "" of one that gave nothing
  std::string plan;                 // plan_to_json
  std::vector<ManifestFile> files;
  std::vector<ManifestArray> arrays;  // by file, then offset
};

// ---- manifest_write.cpp ----
// MXS_INVALID_ARGUMENT: a name is not UTF-8. What check_manifest refuses is written as it is.
mxs_status manifest_to_json(const Manifest &manifest, std::string *text);

// ---- manifest_read.cpp ----
// Whatever contradicts itself is MXS_DAMAGED, as check_manifest has it; MXS_NOT_BUILT: a version that isn't known here.
// The plan is left as text.
mxs_status manifest_from_json(std::string_view text, Manifest *manifest);
// Of a text that was taken: is it, to the last byte, as manifest_to_json wrote it? If not MXS_DAMAGED.
mxs_status check_manifest_hash(std::string_view text);

// ---- manifest_check.cpp ----
// Refuses names that leave the folder, arrays outside their file, over each other or out of order, gaps, pieces that
// don't cover, hashes that are too few. MXS_DAMAGED; the sentence names file and array.
mxs_status check_manifest(const Manifest &manifest);

// Numbers that a shape has. False: more than 2^62, or a side below 0.
bool numbers_of_shape(const std::vector<int64_t> &shape, uint64_t *numbers);

// Numbers that an array has, by its bytes.
inline uint64_t numbers_of(const ManifestArray &array) {
  return array.number_bytes == 0 ? 0 : array.bytes / array.number_bytes;
}

// "model-00001-of-00004.safetensors" or one of "optimizer/": nothing else, nothing outside.
bool is_checkpoint_file_name(std::string_view name);

// XXH3, 64 bits.
uint64_t hash_chunk(const void *data, uint64_t bytes);

}  // namespace mxs
