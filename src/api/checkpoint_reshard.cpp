// SPDX-License-Identifier: Apache-2.0
// The door of mxs_checkpoint_reshard.
#include "matrixshard/checkpoint.h"

#include "base/status.hpp"

namespace {

mxs_status not_built(const char *what) {
  return mxs::set_error(MXS_NOT_BUILT, "%s: this release has no checkpoints", what);
}

}  // namespace

mxs_status mxs_checkpoint_reshard(const mxs_checkpoint *, const char *, const mxs_topology *,
                                  const mxs_plan_options *, const mxs_checkpoint_options *) {
  return not_built("mxs_checkpoint_reshard");
}
