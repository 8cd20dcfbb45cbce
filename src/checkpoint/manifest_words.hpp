// SPDX-License-Identifier: Apache-2.0
// What the manifest's file calls things, for the one who writes it and the one who reads it.
//
//   {"matrixshard_checkpoint": 1, "version": "0.1.0", "step": 500, "ranks": 4, "masters": false, "state": true,
//    "rules": [
//     {"rule": "muon", "preset": "default", "options": "0123456789abcdef"}],
//    "rounding": "0123456789abcdef",
//    "groups": [
//     {"lr": 0.02, "weight_decay": 0.01, "momentum": 0.95, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-08},
//     null],
//    "user": ["", "aGVsbG8=", "", ""],
//    "files": [
//     {"name": "model-00001-of-00001.safetensors", "bytes": 4112, "header_bytes": 4096, "header_hash": "..."},
//     {"name": "optimizer/rank-00000.safetensors", "bytes": 4128, "header_bytes": 4096, "header_hash": "..."}],
//    "arrays": [
//     {"name": "w", "dtype": "BF16", "shape": [4, 2], "kind": "weights", "file": 0, "offset": 0,
//      "pieces": [{"rank": 0, "count": 8, "hashes": ["..."]}]},
//     {"name": "w.momentum", "dtype": "BF16", "shape": [4, 2], "kind": "state", "tensor": "w", "part": "momentum",
//      ...}],
//    "plan": {"matrixshard_plan": 1, ...},
//    "hash": "0123456789abcdef"}
//
// Each array is one line. file: counted from 0. offset: of bytes within the file's data. pieces: in row order, each
// goes on where the one before ended. Of state that belongs to one matrix there are also block and cut. hash: of all
// bytes before the comma that it comes after, since a step number or the user's bytes show no damage by themselves.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

#include "matrixshard/checkpoint.h"
#include "matrixshard/kernels.h"

namespace mxs {

inline constexpr int64_t manifest_version = 1;
// What the file ends with: this, 16 digits, and that.
inline constexpr std::string_view manifest_hash_member = ",\n \"hash\": \"", manifest_end = "\"}\n";
inline constexpr uint64_t user_bytes_max = uint64_t{1} << 20;  // of one rank

// In the order of their numbers.
inline constexpr const char *array_kind_words[] = {"none", "weights", "master", "state", "extra"};
static_assert(std::size(array_kind_words) == MXS_ARRAY_EXTRA + 1);

struct GroupField {
  const char *name;
  float mxs_group_values::*member;
};
inline constexpr GroupField group_fields[] = {
    {"lr", &mxs_group_values::lr},       {"weight_decay", &mxs_group_values::weight_decay},
    {"momentum", &mxs_group_values::momentum}, {"beta1", &mxs_group_values::beta1},
    {"beta2", &mxs_group_values::beta2}, {"epsilon", &mxs_group_values::epsilon},
};

}  // namespace mxs
