// SPDX-License-Identifier: Apache-2.0
// An open checkpoint with its arrays, as `mxs checkpoint` looks at it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.hpp"

namespace mxs_cli {

struct CheckpointView {
  mxs::checkpoint handle;
  mxs_checkpoint_info info = MXS_CHECKPOINT_INFO_INIT;
  std::string path;  // of the checkpoint; of a model of others as it was asked for
  std::vector<mxs_checkpoint_array> arrays;  // in the order of files; texts are the handle's
  mxs::plan plan;                            // nullptr without a manifest
};

// Throws mxs::error. What is neither a file nor a folder (a pipe, a device) is refused before anybody waits for it.
CheckpointView view_checkpoint(const std::string &path);

std::string array_kind_name(mxs_array_kind kind);             // "weights", "master", "state", "extra"
std::string shape_text(const mxs_checkpoint_array &array);    // "(4096, 1024)"
std::string short_name(const std::string &name, size_t width = 56);  // printable, in one cell of a table
std::string last_part(const std::string &path);               // "step-00000500" of ".../step-00000500/"
std::string counted_text(uint64_t count, const char *one, const char *several);  // "1 array", "3 arrays"
// "step 500, saved by 4 ranks with matrixshard 0.1.0; 25 arrays in 7 files, 44.2 MiB"
std::string title_text(const CheckpointView &view);
// Ranks that own a piece of a tensor, "-" without a plan.
std::string owners_text(const CheckpointView &view, const std::string &tensor);
// A model's own bytes: what is left with --weights-only.
bool is_of_model(const mxs_checkpoint_array &array);

}  // namespace mxs_cli
