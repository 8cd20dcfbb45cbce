// SPDX-License-Identifier: Apache-2.0
// What holds for a scope of calls of the driver: which context is current, and what captures elsewhere forbid.
#pragma once

#include "cuda/driver.hpp"

namespace mxs {

// Makes a device's primary context current, and puts back what was. Where it is current already, which is the rule,
// that is one call of the driver.
class CurrentContext {
 public:
  CurrentContext(const Driver &driver, CUcontext context) : driver_(driver) {
    CUcontext current = nullptr;
    result_ = driver.context_get_current(&current);
    if (result_ != CUDA_SUCCESS || current == context) return;
    result_ = driver.context_push(context);
    pushed_ = result_ == CUDA_SUCCESS;
  }
  ~CurrentContext() {
    CUcontext own = nullptr;
    if (pushed_) driver_.context_pop(&own);
  }
  CurrentContext(const CurrentContext &) = delete;
  CurrentContext &operator=(const CurrentContext &) = delete;
  CUresult result() const { return result_; }

 private:
  const Driver &driver_;
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

// While this lives, a capture (CU_STREAM_CAPTURE_MODE_GLOBAL of any thread, or this thread's own) does not forbid this
// thread what could disturb it: it loads code, and looks at events that are in no capture. A comm's thread would
// invalidate the graph that the program captures just then.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver &driver) : driver_(driver) { driver_.exchange_capture_mode(&mode_); }
  ~RelaxedCapture() { driver_.exchange_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;

 private:
  const Driver &driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace mxs
