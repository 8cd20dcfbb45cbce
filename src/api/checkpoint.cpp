// SPDX-License-Identifier: Apache-2.0
// The door of checkpoint.h's reading part: open, ask, read, verify.
#include "matrixshard/checkpoint.h"

#include "base/status.hpp"

namespace {

mxs_status not_built(const char *what) {
  return mxs::set_error(MXS_NOT_BUILT, "%s: this release has no checkpoints", what);
}

}  // namespace

mxs_status mxs_checkpoint_open(mxs_checkpoint **, const char *) { return not_built("mxs_checkpoint_open"); }
void mxs_checkpoint_close(mxs_checkpoint **) {}
mxs_status mxs_checkpoint_query(const mxs_checkpoint *, mxs_checkpoint_info *) {
  return not_built("mxs_checkpoint_query");
}
mxs_status mxs_checkpoint_array_at(const mxs_checkpoint *, uint64_t, mxs_checkpoint_array *) {
  return not_built("mxs_checkpoint_array_at");
}
mxs_status mxs_checkpoint_find(const mxs_checkpoint *, const char *, uint64_t *) {
  return not_built("mxs_checkpoint_find");
}
mxs_status mxs_checkpoint_read(const mxs_checkpoint *, uint64_t, uint64_t, uint64_t, void *) {
  return not_built("mxs_checkpoint_read");
}
mxs_status mxs_checkpoint_plan(const mxs_checkpoint *, mxs_plan **) { return not_built("mxs_checkpoint_plan"); }
mxs_status mxs_checkpoint_group(const mxs_checkpoint *, int32_t, mxs_group_values *) {
  return not_built("mxs_checkpoint_group");
}
mxs_status mxs_checkpoint_user(const mxs_checkpoint *, int32_t, const void **, uint64_t *) {
  return not_built("mxs_checkpoint_user");
}
mxs_status mxs_checkpoint_verify(const mxs_checkpoint *, const mxs_verify_options *) {
  return not_built("mxs_checkpoint_verify");
}
