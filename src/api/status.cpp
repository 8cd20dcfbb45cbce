// SPDX-License-Identifier: Apache-2.0
#include "matrixshard/status.h"

#include "base/log.hpp"
#include "base/status.hpp"

namespace {

struct StatusText {
  mxs_status status;
  const char *name, *text;
};

constexpr StatusText texts[] = {
    {MXS_OK, "OK", "success"},
    {MXS_IN_PROGRESS, "IN_PROGRESS", "the operation is not complete yet"},
    {MXS_INVALID_ARGUMENT, "INVALID_ARGUMENT", "an argument is not acceptable; nothing was done"},
    {MXS_OUT_OF_MEMORY, "OUT_OF_MEMORY", "memory could not be had"},
    {MXS_OVER_BUDGET, "OVER_BUDGET", "more would be held at a time than was allowed at create"},
    {MXS_NOT_GATHERED, "NOT_GATHERED", "the unit is not gathered"},
    {MXS_NOT_OPEN, "NOT_OPEN", "no gradient of the unit is open"},
    {MXS_HELD, "HELD", "something that must be given back first is still held"},
    {MXS_STALE_VIEW, "STALE_VIEW", "the view is older than the latest step"},
    {MXS_NOT_BUILT, "NOT_BUILT", "this build or release does not have it"},
    {MXS_NOT_FOUND, "NOT_FOUND", "there is nothing of that name or number"},
    {MXS_MISMATCH, "MISMATCH", "ranks disagree on what must be equal"},
    {MXS_ENVIRONMENT, "ENVIRONMENT", "an environment variable is missing or makes no sense"},
    {MXS_TIMED_OUT, "TIMED_OUT", "the deadline passed while waiting for another rank"},
    {MXS_PEER_FAILED, "PEER_FAILED", "another rank died or hung up"},
    {MXS_TRANSPORT_FAILED, "TRANSPORT_FAILED", "a transport failed"},
    {MXS_ABORTED, "ABORTED", "the comm was aborted"},
    {MXS_SYSTEM, "SYSTEM", "the operating system refused"},
    {MXS_FORKED, "FORKED", "the library cannot be used in a forked child"},
    {MXS_INTERNAL, "INTERNAL", "a fault of the library; please report it"},
    {MXS_DAMAGED, "DAMAGED", "a file is not what was written"},
    {MXS_CANCELLED, "CANCELLED", "it was ended as asked for"},
    {MXS_NO_DEVICE, "NO_DEVICE", "no CUDA device can be used here"},
    {MXS_DEVICE_FAILED, "DEVICE_FAILED", "CUDA or NCCL refused a call"},
};

const StatusText *find(mxs_status status) {
  for (const StatusText &entry : texts)
    if (entry.status == status) return &entry;
  return nullptr;
}

}  // namespace

const char *mxs_status_name(mxs_status status) {
  const StatusText *entry = find(status);
  return entry ? entry->name : "UNKNOWN";
}

const char *mxs_status_text(mxs_status status) {
  const StatusText *entry = find(status);
  return entry ? entry->text : "not a status of this library";
}

const char *mxs_last_error(void) { return mxs::last_error_text(); }

mxs_status mxs_set_log(mxs_log_function function, void *context, int32_t level) {
  if (function && (level < MXS_LOG_WARNING || level > MXS_LOG_DEBUG))
    return mxs::set_error(MXS_INVALID_ARGUMENT, "level is %d, not from %d to %d", level, MXS_LOG_WARNING,
                          MXS_LOG_DEBUG);
  mxs::set_log(function, context, level);
  return MXS_OK;
}
