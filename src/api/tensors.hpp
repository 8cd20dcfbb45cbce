// SPDX-License-Identifier: Apache-2.0
// The tensors that a caller describes, for a plan or a model.
#pragma once

#include <vector>

#include "api/door.hpp"
#include "matrixshard/plan.h"

namespace mxs {

// Copies of the structs; what they point to stays the caller's.
inline mxs_status read_tensors(const mxs_tensor *given, uint64_t count, uint64_t count_max,
                               std::vector<mxs_tensor> *tensors) {
  return read_array(given, count, count_max, offsetof(mxs_tensor, block_columns), "tensors", MXS_TENSOR_INIT,
                    [&](const mxs_tensor &tensor) { tensors->push_back(tensor); });
}

}  // namespace mxs
