// SPDX-License-Identifier: Apache-2.0
// What a caller's mxs_checkpoint holds. Nothing changes after open, so any thread may use it.
#pragma once

#include "checkpoint/opened.hpp"
#include "matrixshard/checkpoint.h"

struct mxs_checkpoint {
  mxs::OpenedCheckpoint opened;
};
