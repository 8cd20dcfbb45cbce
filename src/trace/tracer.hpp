// SPDX-License-Identifier: Apache-2.0
// Tracer: where a comm's ranks write what they do.
#pragma once

namespace mxs {

class Tracer {
 public:
  virtual ~Tracer() = default;
};

}  // namespace mxs
