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
  const bool is_there = access(text, F_OK) == 0;
  if (!is_there && words_or_file.find(':') == std::string::npos)
    throw mxs::error(MXS_INVALID_ARGUMENT, std::string("topology: \"")
                                               .append(words_or_file)
                                               .append("\" is no file, nor words such as \"nodes:8 ranks:8\""));
  return is_there ? mxs::load_topology(text) : mxs::make_topology(text);
}

}  // namespace mxs_cli
