// SPDX-License-Identifier: Apache-2.0
// Is it memory that the host can read? For callers of what works on host memory.
#pragma once

#include "matrixshard/status.h"

namespace mxs {

// MXS_INVALID_ARGUMENT: memory of a CUDA device alone; the sentence begins with `what`. Where the process has no CUDA
// driver all memory is the host's; one that it has is asked, and neither loaded nor begun. About a microsecond.
mxs_status check_host_memory(const char *what, const void *memory);

}  // namespace mxs
