// SPDX-License-Identifier: Apache-2.0
// A copy of what a rank saves, so that training can go on: one block of memory for all spans.
#include <cinttypes>
#include <cstring>
#include <memory>
#include <new>

#include "base/status.hpp"
#include "checkpoint/device_bytes.hpp"
#include "checkpoint/save_content.hpp"

namespace mxs {

namespace {

uint64_t bytes_elsewhere(const SaveContent &content) {
  uint64_t bytes = 0;
  for (const OwnFile &file : content.files)
    for (const OwnPiece &piece : file.pieces)
      for (const SaveSpan &span : piece.spans) bytes += span.bytes;
  return bytes;
}

mxs_status copy_span(const SaveContent &content, const SaveSpan &span, std::byte *target,
                     std::unique_ptr<DeviceBytes> *device_bytes) {
  if (!span.on_device) {
    std::memcpy(target, span.data, span.bytes);
    return MXS_OK;
  }
  const mxs_status status = *device_bytes ? MXS_OK : DeviceBytes::create(device_bytes, *content.device);
  if (status != MXS_OK) return status;
  return (*device_bytes)->read(span.data, span.bytes, [&](const std::byte *data, uint64_t bytes) {
    std::memcpy(target, data, bytes);
    target += bytes;
    return MXS_OK;
  });
}

}  // namespace

mxs_status take_snapshot(SaveContent *content) {
  const uint64_t bytes = bytes_elsewhere(*content);
  if (bytes == 0) return MXS_OK;
  try {
    content->snapshot = io_memory(bytes);
  } catch (const std::bad_alloc &) {
    return set_error(MXS_OUT_OF_MEMORY, "rank %d has no %" PRIu64 " bytes for a copy of what it owns; save without a "
                     "copy (mxs_checkpoint_save)", content->rank, bytes);
  }
  content->snapshot_bytes = content->snapshot.get_deleter().bytes;
  std::byte *next = content->snapshot.get();
  std::unique_ptr<DeviceBytes> device_bytes;
  for (OwnFile &file : content->files)
    for (OwnPiece &piece : file.pieces) {
      const std::byte *const first = next;
      for (const SaveSpan &span : piece.spans) {
        const mxs_status status = copy_span(*content, span, next, &device_bytes);
        if (status != MXS_OK) return status;
        next += span.bytes;
      }
      if (!piece.spans.empty()) piece.spans = {{first, static_cast<uint64_t>(next - first), false}};
    }
  return MXS_OK;
}

}  // namespace mxs
