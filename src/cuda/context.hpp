// SPDX-License-Identifier: Apache-2.0
// Makes a device's primary context current for a scope, and puts back what was. Where it is current already, which is
// the rule, that is one call of the driver.
#pragma once

#include "cuda/driver.hpp"

namespace mxs {

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

}  // namespace mxs
