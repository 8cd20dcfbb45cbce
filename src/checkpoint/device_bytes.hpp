// SPDX-License-Identifier: Apache-2.0
// DeviceBytes: bytes of device memory through pinned memory, a few MiB at a time, for saves and loads of units in CUDA
// memory. One caller at a time; what comes back has arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "device/device.hpp"

namespace mxs {

class DeviceBytes {
 public:
  static constexpr uint64_t room_bytes = uint64_t{4} << 20;

  static mxs_status create(std::unique_ptr<DeviceBytes> *made, Device &device);
  ~DeviceBytes();

  // Its copies come in its order: what they must come after is put on it before.
  DeviceStream stream() const { return stream_; }

  // take(data, bytes): the next of them, in host memory that is good until it returns.
  mxs_status read(const void *source, uint64_t bytes,
                  const std::function<mxs_status(const std::byte *data, uint64_t bytes)> &take);
  // The other way: what has been put into room(), from `first` on.
  std::byte *room() const { return pinned_.data(); }
  mxs_status write(void *target, uint64_t bytes, uint64_t first = 0);

 private:
  explicit DeviceBytes(Device &device) : device_(device) {}

  Device &device_;
  PinnedMemory pinned_;
  DeviceStream stream_ = nullptr;
};

}  // namespace mxs
