// SPDX-License-Identifier: Apache-2.0
// Rendezvous: where the living ranks of a comm find each other once it has failed, and maybe its rank 0 is gone.
#pragma once

namespace mxs {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
};

}  // namespace mxs
