// SPDX-License-Identifier: Apache-2.0
// The door of checkpoint.h's saving part.
#include "matrixshard/checkpoint.h"

#include "base/status.hpp"

namespace {

mxs_status not_built(const char *what) {
  return mxs::set_error(MXS_NOT_BUILT, "%s: this release has no checkpoints", what);
}

}  // namespace

mxs_status mxs_checkpoint_save(const char *, mxs_unit *const *, uint64_t, mxs_optimizer *,
                               const mxs_checkpoint_options *) {
  return not_built("mxs_checkpoint_save");
}
mxs_status mxs_save_start(mxs_save **, const char *, mxs_unit *const *, uint64_t, mxs_optimizer *,
                          const mxs_checkpoint_options *) {
  return not_built("mxs_save_start");
}
mxs_status mxs_save_query(const mxs_save *, mxs_save_info *) { return not_built("mxs_save_query"); }
mxs_status mxs_save_wait(mxs_save *, uint64_t) { return not_built("mxs_save_wait"); }
mxs_status mxs_save_cancel(mxs_save *) { return not_built("mxs_save_cancel"); }
mxs_status mxs_save_destroy(mxs_save **) { return not_built("mxs_save_destroy"); }
