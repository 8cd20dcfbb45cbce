// SPDX-License-Identifier: Apache-2.0
// Which tile kernel this CPU and this system can run.
#pragma once

#include "kernels/tiles/tiles.hpp"
#include "matrixshard/status.h"

namespace mxs::tiles {

// Every kernel that runs here, the slower one first; for tests. The system is asked for AMX once.
const Kernel *const *all_kernels(int *count);

// The best, or the one that MXS_TILES=amx_bf16|avx512_bf16 names; nullptr: none, or MXS_TILES=none.
const Kernel *chosen_kernel();

// MXS_ENVIRONMENT if MXS_TILES names a kernel that doesn't run here.
mxs_status check_choice();

}  // namespace mxs::tiles
