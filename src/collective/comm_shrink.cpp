// SPDX-License-Identifier: Apache-2.0
// How the living ranks of a failed comm make a comm of their own.
#include "base/status.hpp"
#include "collective/comm.hpp"

namespace mxs {

mxs_status shrink_comm(std::unique_ptr<Comm> *, Comm &failed, const mxs_comm_options &) {
  if (!failed.failed()) return set_error(MXS_INVALID_ARGUMENT, "the comm has not failed; mxs_comm_abort fails it");
  return set_error(MXS_NOT_BUILT, "mxs_comm_shrink is not built yet");
}

}  // namespace mxs
