// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/device_bytes.hpp"

#include <algorithm>

namespace mxs {

mxs_status DeviceBytes::create(std::unique_ptr<DeviceBytes> *made, Device &device) {
  std::unique_ptr<DeviceBytes> bytes(new DeviceBytes(device));
  mxs_status status = device.allocate_pinned(room_bytes, &bytes->pinned_);
  if (status == MXS_OK) status = device.create_stream(&bytes->stream_);
  if (status == MXS_OK) *made = std::move(bytes);
  return status;
}

DeviceBytes::~DeviceBytes() { device_.destroy_stream(stream_); }

mxs_status DeviceBytes::read(const void *source, uint64_t bytes,
                             const std::function<mxs_status(const std::byte *data, uint64_t bytes)> &take) {
  const std::byte *next = static_cast<const std::byte *>(source);
  for (uint64_t left = bytes; left > 0;) {
    const uint64_t part = std::min(left, room_bytes);
    mxs_status status = device_.copy(pinned_.data(), next, part, stream_);
    if (status == MXS_OK) status = device_.synchronize(stream_);
    if (status == MXS_OK) status = take(pinned_.data(), part);
    if (status != MXS_OK) return status;
    next += part, left -= part;
  }
  return MXS_OK;
}

mxs_status DeviceBytes::write(void *target, uint64_t bytes, uint64_t first) {
  const mxs_status status = device_.copy(target, pinned_.data() + first, bytes, stream_);
  return status == MXS_OK ? device_.synchronize(stream_) : status;
}

}  // namespace mxs
