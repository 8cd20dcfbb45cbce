// SPDX-License-Identifier: Apache-2.0
// Topologies in words or files, as commands take them: `--topology "nodes:2 ranks:4"`, `--topology cluster.json`.
#pragma once

#include <unistd.h>

#include <string>

#include "matrixshard/matrixshard.hpp"

namespace mxs_cli {

// Throws mxs::error with the sentence. What names a file is one.
inline mxs::topology read_topology(const std::string &words_or_file) {
  mxs_topology *made = nullptr;
  mxs::check(access(words_or_file.c_str(), F_OK) == 0 ? mxs_topology_load(&made, words_or_file.c_str())
                                                      : mxs_topology_create(&made, words_or_file.c_str()));
  return mxs::topology(made);
}

}  // namespace mxs_cli
