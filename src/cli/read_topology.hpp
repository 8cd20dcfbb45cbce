// SPDX-License-Identifier: Apache-2.0
// Topologies in words or files, as commands take them: `--topology "nodes:2 ranks:4"`, `--topology cluster.json`.
#pragma once

#include <unistd.h>

#include <string>

#include "matrixshard/matrixshard.hpp"

namespace mxs_cli {

// Words have colons; what is there as a file is one all the same. Throws mxs::error with the sentence.
inline mxs::topology read_topology(const std::string &words_or_file) {
  const char *text = words_or_file.c_str();
  const bool is_file = words_or_file.find(':') == std::string::npos || access(text, F_OK) == 0;
  return is_file ? mxs::load_topology(text) : mxs::make_topology(text);
}

}  // namespace mxs_cli
