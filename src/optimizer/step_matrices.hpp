// SPDX-License-Identifier: Apache-2.0
// A caller's mxs_matrices: every field checked and decided.
#pragma once

#include "optimizer/stepper.hpp"

namespace mxs {

// MXS_INVALID_ARGUMENT: the sentence names the field.
mxs_status decide_matrices(const mxs_matrices &given, StepMatrices *matrices);

// Of StepMatrices, in elements from the first to one past the last.
uint64_t weight_extent(const StepMatrices &matrices);
uint64_t gradient_extent(const StepMatrices &matrices);

// Without gaps, matrix after matrix and row after row.
bool is_dense(const StepMatrices &matrices, int64_t row, int64_t matrix);

}  // namespace mxs
