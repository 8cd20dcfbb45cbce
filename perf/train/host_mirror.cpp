// SPDX-License-Identifier: Apache-2.0
// Copies between a unit in CUDA memory and the host, which computes.
#include "host_mirror.hpp"

#include <algorithm>

#include "check.hpp"

namespace train {

HostMirror::HostMirror(const Model &model)
    : model_(model), weights_(model.tensors.size()), gradients_(model.tensors.size()), opened_(model.tensors.size()) {
  for (int unit = 0; unit < model.unit_count; ++unit)
    for (const int tensor : model.unit_tensors(unit)) {
      const auto index = static_cast<size_t>(tensor);
      const uint64_t count = model.tensors[index].count();
      weights_[index].resize(count * mxs_dtype_bytes(model.shape.dtype));
      gradients_[index].resize(count * mxs_dtype_bytes(model.shape.gradient_dtype));
    }
}

void HostMirror::fetch_weights(mxs_unit *unit, int index) {
  for (const int tensor : model_.unit_tensors(index)) {
    mxs_view view = MXS_VIEW_INIT;
    check(mxs_unit_tensor(unit, tensor, &view), "mxs_unit_tensor");
    check(mxs_copy(weights_[static_cast<size_t>(tensor)].data(), view.data, view.bytes, nullptr), "mxs_copy");
  }
}

void *HostMirror::gradient(int tensor, bool add) {
  const auto index = static_cast<size_t>(tensor);
  if (add && !opened_[index]) std::fill(gradients_[index].begin(), gradients_[index].end(), '\0');
  opened_[index] = 1;
  return gradients_[index].data();
}

void HostMirror::give_gradients(mxs_unit *unit, int index) {
  for (const int tensor : model_.unit_tensors(index)) {
    const auto at = static_cast<size_t>(tensor);
    if (!opened_[at]) continue;
    mxs_view view = MXS_VIEW_INIT;
    view.dtype = model_.shape.gradient_dtype;
    view.memory = MXS_HOST;
    view.data = gradients_[at].data();
    view.bytes = gradients_[at].size();
    check(mxs_unit_gradient_set(unit, tensor, &view), "mxs_unit_gradient_set");
    opened_[at] = 0;
  }
}

void HostMirror::drop_gradients(int index) {
  for (const int tensor : model_.unit_tensors(index)) opened_[static_cast<size_t>(tensor)] = 0;
}

}  // namespace train
