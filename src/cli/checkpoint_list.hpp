// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a folder.
#pragma once

#include <string>

namespace mxs_cli {

// Not itself a checkpoint or a model, but with folders of such names: step-00000500, .step-00001000.partial-1a2b.
bool is_folder_of_checkpoints(const std::string &path);

// Prints them, and what killed saves left. Returns 1 if one can't be read.
int list_checkpoints(const std::string &path, bool json);

}  // namespace mxs_cli
