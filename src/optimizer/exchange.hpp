// SPDX-License-Identifier: Apache-2.0
// Exchange: packed bytes from their owners by one layout to their owners by another, over and over, without the
// optimizer's knowing how.
#pragma once

#include <functional>
#include <memory>

#include "layout/layout.hpp"
#include "matrixshard/status.h"

namespace mxs {

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Doesn't block, and allocates nothing. Buffers are borrowed until wait has returned. All ranks start in one order.
  virtual mxs_status start(const void *source, void *target) = 0;
  // Until the latest start is complete here. A failure is one of the comm.
  virtual mxs_status wait() = 0;
  // Was the latest start complete here, so far as progress has been made? Also after a failure of the comm.
  virtual bool complete() const = 0;
  // After a failure: `memory` stays until peers can't reach it any more.
  virtual void keep(std::shared_ptr<void> memory) = 0;
};

// Collective.
using MakeExchange =
    std::function<mxs_status(std::unique_ptr<Exchange> *exchange, const Layout &source, const Layout &target)>;

}  // namespace mxs
