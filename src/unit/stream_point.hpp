// SPDX-License-Identifier: Apache-2.0
// StreamPoint: what a stream had got when somebody looked, for other streams to wait for. An event that is made once.
#pragma once

#include <utility>

#include "device/device.hpp"

namespace mxs {

class StreamPoint {
 public:
  StreamPoint() = default;
  StreamPoint(StreamPoint &&other) noexcept
      : device_(std::exchange(other.device_, nullptr)), event_(other.event_), set_(other.set_) {}
  StreamPoint &operator=(StreamPoint &&) = delete;
  ~StreamPoint() {
    if (device_) device_->destroy_event(event_);
  }

  mxs_status make(Device &device) {
    const mxs_status status = device.create_event(&event_);
    if (status == MXS_OK) device_ = &device;
    return status;
  }
  // From here on it is what `stream` has so far.
  mxs_status record(DeviceStream stream) {
    const mxs_status status = device_->record(event_, stream);
    if (status == MXS_OK) set_ = true;
    return status;
  }
  // What `stream` gets from here on begins after it. Nothing if it was never set, or cleared.
  mxs_status hold_back(DeviceStream stream) const { return set_ ? device_->wait(stream, event_) : MXS_OK; }
  bool set() const { return set_; }
  void clear() { set_ = false; }

 private:
  Device *device_ = nullptr;
  DeviceEvent event_ = nullptr;
  bool set_ = false;
};

}  // namespace mxs
