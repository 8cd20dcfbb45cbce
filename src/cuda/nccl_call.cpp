// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl_call.hpp"

#include <algorithm>
#include <ctime>

#include "base/status.hpp"

namespace mxs {

bool Poll::wait() {
  if (now_ns() >= end_ns_) return false;
  const timespec time = {0, static_cast<long>(step_ns_)};
  nanosleep(&time, nullptr);
  step_ns_ = std::min<uint64_t>(2 * step_ns_, 1'000'000);
  return true;
}

mxs_status nccl_failed(const NcclLibrary &nccl, int result, NcclComm comm, const char *what) {
  const char *const kind = nccl.get_error_string(result);
  const char *const last = nccl.get_last_error(comm);
  const bool has_last = last && *last;
  return set_error(result == nccl_remote_error ? MXS_PEER_FAILED : MXS_DEVICE_FAILED, "%s: %s (result %d)%s%.300s; "
                   "NCCL %s, and NCCL_DEBUG=WARN says more", what, kind ? kind : "unknown", result,
                   has_last ? ": " : "", has_last ? last : "", nccl_version_text(nccl.version).c_str());
}

}  // namespace mxs
