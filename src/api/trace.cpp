// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/trace.h"

#include "api/door.hpp"

using namespace mxs;

static_assert(sizeof(mxs_trace_event) == 80, "part of the ABI");
static_assert(sizeof(mxs_trace_rank) == 72, "part of the ABI");

namespace {

mxs_status not_built(const char *what) { return set_error(MXS_NOT_BUILT, "%s is not built yet", what); }

}  // namespace

mxs_status mxs_trace_open(mxs_trace **, const char *const *, uint64_t) { return not_built("mxs_trace_open"); }
mxs_status mxs_trace_close(mxs_trace **) { return MXS_OK; }
int32_t mxs_trace_rank_count(const mxs_trace *) { return 0; }
mxs_status mxs_trace_rank_at(const mxs_trace *, int32_t, mxs_trace_rank *) { return not_built("mxs_trace_rank_at"); }
uint64_t mxs_trace_event_count(const mxs_trace *) { return 0; }
mxs_status mxs_trace_event_at(const mxs_trace *, uint64_t, mxs_trace_event *) {
  return not_built("mxs_trace_event_at");
}
mxs_status mxs_trace_report(const mxs_trace *, char *, size_t, size_t *) { return not_built("mxs_trace_report"); }
mxs_status mxs_trace_write(const mxs_trace *, const char *) { return not_built("mxs_trace_write"); }
