// SPDX-License-Identifier: Apache-2.0
// QK-clip: the rows of each head times a factor.
#pragma once

#include "optimizer/stepper.hpp"

namespace mxs {

// matrices: one matrix, its heads as blocks. factors: one a block.
mxs_status scale_heads(const StepMatrices &matrices, void *weights, void *master, const float *factors,
                       uint64_t step_number);

}  // namespace mxs
