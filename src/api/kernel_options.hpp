// SPDX-License-Identifier: Apache-2.0
// Options that an optimizer and a kernel alone have in common.
#pragma once

#include "base/status.hpp"
#include "matrixshard/kernels.h"

namespace mxs {

inline mxs_status check_preset(mxs_preset preset) {
  if (preset == MXS_PRESET_DEFAULT || preset == MXS_PRESET_TORCH_MUON) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "the Muon preset is %d, not MXS_PRESET_DEFAULT or MXS_PRESET_TORCH_MUON",
                   preset);
}

inline mxs_status check_backend(mxs_backend backend) {
  if (backend >= MXS_BACKEND_AUTO && backend <= MXS_BACKEND_TILES) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "the backend is %d, which is none of MXS_BACKEND_...",
                   backend);
}

inline mxs_status check_threads(int32_t thread_count) {
  if (thread_count >= 0 && thread_count <= 4096) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "thread_count is %d, not from 0 to 4096", thread_count);
}

}  // namespace mxs
