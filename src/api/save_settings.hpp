// SPDX-License-Identifier: Apache-2.0
// A path and mxs_checkpoint_options, checked and read: of a save, and of a reshard.
#pragma once

#include "checkpoint/save.hpp"
#include "matrixshard/checkpoint.h"

namespace mxs {

mxs_status read_save_settings(const char *path, const mxs_checkpoint_options &options, SaveSettings *settings);

}  // namespace mxs
