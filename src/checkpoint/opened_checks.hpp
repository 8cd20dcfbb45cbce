// SPDX-License-Identifier: Apache-2.0
// What opening a checkpoint looks at, and verifying it looks at again: files against the manifest, and the plan in it.
// Sentences begin with the file's path.
#pragma once

#include <cstddef>
#include <string>

#include "checkpoint/opened.hpp"

namespace mxs {

constexpr size_t index_bytes_max = size_t{256} << 20;

// MXS_INVALID_ARGUMENT of a reader becomes MXS_DAMAGED: files that say nonsense aren't the caller's fault.
mxs_status as_damage(mxs_status status);

// ---- opened_files.cpp ----
// Why read_file has failed, by errno: what is too long or no file is damage.
mxs_status cannot_read_text(const std::string &path, size_t bytes_max);
// The file is there with its size, and its header has the hash and the arrays [first, end) of the manifest. The
// manifest may be made up.
mxs_status check_file(const OpenedCheckpoint &opened, size_t file, size_t first, size_t end);
// model.safetensors.index.json names just the arrays of the model's files.
mxs_status check_index(const OpenedCheckpoint &opened);

// ---- opened_plan.cpp ----
// Each tensor of the plan has its weights, as the plan has them, and each array is one of its tensor's.
mxs_status check_plan_arrays(const OpenedCheckpoint &opened, const Plan &plan);

// check(file, first, end) of each file, with where its arrays are in the manifest, until one fails.
template <class Check>
mxs_status for_each_file(const Manifest &manifest, Check &&check) {
  size_t first = 0;
  for (size_t file = 0; file < manifest.files.size(); ++file) {
    size_t end = first;
    while (end < manifest.arrays.size() && manifest.arrays[end].file == file) ++end;
    const mxs_status status = check(file, first, end);
    if (status != MXS_OK) return status;
    first = end;
  }
  return MXS_OK;
}

}  // namespace mxs
