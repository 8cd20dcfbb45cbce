// SPDX-License-Identifier: Apache-2.0
// One call at a time: whoever comes while another thread is in a call is refused before it has looked at anything.
#pragma once

#include <atomic>

#include "base/status.hpp"

namespace mxs {

class SoleCall {
 public:
  explicit SoleCall(std::atomic<bool> *busy) : busy_(busy), taken_(!busy->exchange(true, std::memory_order_acquire)) {}
  ~SoleCall() {
    if (taken_) busy_->store(false, std::memory_order_release);
  }
  SoleCall(const SoleCall &) = delete;
  SoleCall &operator=(const SoleCall &) = delete;
  // what: "stepper", ...
  mxs_status status(const char *what) const {
    return taken_ ? MXS_OK
                  : set_error(MXS_HELD, "another thread is in a call of this %s; it takes one at a time, or make one "
                              "for each thread", what);
  }

 private:
  std::atomic<bool> *const busy_;
  const bool taken_;
};

}  // namespace mxs
