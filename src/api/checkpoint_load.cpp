// SPDX-License-Identifier: Apache-2.0
// The door of mxs_checkpoint_load.
#include "matrixshard/checkpoint.h"

#include "base/status.hpp"

namespace {

mxs_status not_built(const char *what) {
  return mxs::set_error(MXS_NOT_BUILT, "%s: this release has no checkpoints", what);
}

}  // namespace

mxs_status mxs_checkpoint_load(const mxs_checkpoint *, mxs_unit *const *, uint64_t, mxs_optimizer *,
                               const mxs_load_options *) {
  return not_built("mxs_checkpoint_load");
}
