// SPDX-License-Identifier: Apache-2.0
// HostMirror: the demo's network computes on the CPU, whatever memory its weights lie in. For units in CUDA memory this
// holds host copies: of a unit's weights while it is whole, and of gradients until they are reduced.
#pragma once

#include <vector>

#include "matrixshard/matrixshard.h"
#include "model.hpp"

namespace train {

class HostMirror {
 public:
  explicit HostMirror(const Model &model);

  // The unit is whole: its tensors come to the host.
  void fetch_weights(mxs_unit *unit, int index);
  const void *weights(int tensor) const { return weights_[static_cast<size_t>(tensor)].data(); }

  void *gradient(int tensor, bool add);
  // What was opened since the last time goes to the device, into the unit's gradients.
  void give_gradients(mxs_unit *unit, int index);
  void drop_gradients(int index);

 private:
  const Model &model_;
  std::vector<std::vector<char>> weights_, gradients_;  // by tensor
  std::vector<char> opened_;
};

}  // namespace train
