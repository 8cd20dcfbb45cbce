// SPDX-License-Identifier: Apache-2.0
// When a caller is told how far it is.
#pragma once

#include "base/status.hpp"
#include "checkpoint/file_io.hpp"

namespace mxs {

constexpr uint64_t told_each_bytes = uint64_t{16} << 20;

// MXS_CANCELLED: it says stop.
inline mxs_status tell_progress(IoProgress *progress) {
  if (!progress || !progress->go_on || progress->go_on(progress->done_bytes)) return MXS_OK;
  return set_error(MXS_CANCELLED, "cancelled as asked for");
}

inline mxs_status note_progress(IoProgress *progress, uint64_t bytes) {
  if (!progress) return MXS_OK;
  const uint64_t before = progress->done_bytes;
  progress->done_bytes += bytes;
  return before / told_each_bytes == progress->done_bytes / told_each_bytes ? MXS_OK : tell_progress(progress);
}

}  // namespace mxs
