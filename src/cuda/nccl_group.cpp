// SPDX-License-Identifier: Apache-2.0
#include "base/status.hpp"
#include "cuda/nccl.hpp"

namespace mxs {

mxs_status make_nccl_group(std::unique_ptr<DeviceGroup> *, const Driver &, CUcontext, int, const GroupOptions &) {
  return set_error(MXS_NOT_BUILT, "groups by NCCL are not in this build");
}

}  // namespace mxs
