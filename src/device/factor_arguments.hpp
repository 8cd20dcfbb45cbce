// SPDX-License-Identifier: Apache-2.0
// Launches of Shampoo's and SOAP's passes in CUDA memory, beside their products and decompositions (device/linear.hpp).
// One block of one matrix at a time, a "unit": what is dense is of its shape, and the piece's arrays have a stride.
//
// The host knows the step number and whether the step is skipped, as refreshes hang on them; scalars come from the
// device all the same, so that there is one way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/pass_arguments.hpp"

namespace mxs {

// Where a unit lies in the piece's arrays, in elements.
struct FactorPlace {
  uint64_t first = 0, stride = 0;
  uint64_t rows = 0, columns = 0;
};

// mxs_factor_gradient: target (dense) = what the rule sees of the gradient. L2 decay reads weights.
struct FactorGradientArguments {
  PassStep step;
  PassWeights weights;
  FactorPlace place;
  const float *gradient = nullptr;
  float *target = nullptr;
};

// mxs_factor_filter: average = lerp(average, gradient, 1 - beta1); target = average / (1 - beta1^t). Dense but average.
struct FactorFilterArguments {
  PassStep step;
  FactorPlace place;
  const float *gradient = nullptr;
  float *average = nullptr, *target = nullptr;
};

// mxs_factor_direction: update (dense, which holds the gradient) = AdamW's. Warps take runs.
struct FactorDirectionArguments {
  PassStep step;
  FactorPlace place;
  int32_t grafts = 0;  // Shampoo's grafting: beta2 0.999, epsilon 1e-10 after bias correction. Else SOAP's, of t - 1
  const float *filtered = nullptr;  // dense; grafting
  float *average = nullptr;         // SOAP
  float *average_squares = nullptr;
  float *update = nullptr;
  double *run_squares = nullptr;    // of the update; in the order of MatrixRuns
};

// mxs_factor_squares: run_squares of dense numbers. Warps take runs.
struct FactorSquaresArguments {
  PassStep step;
  uint64_t rows = 0, columns = 0;
  const float *numbers = nullptr;
  double *run_squares = nullptr;
};

// mxs_factor_rescale: numbers (dense) *= sqrt(wanted) / (sqrt(found) + 1e-16)
struct FactorRescaleArguments {
  PassStep step;
  uint64_t elements = 0;
  const double *wanted = nullptr, *found = nullptr;
  float *numbers = nullptr;
};

// mxs_factor_buffer: Shampoo's momentum after preconditioning, in place. weights.decay L2: decay joins before it.
struct FactorBufferArguments {
  PassStep step;
  PassWeights weights;
  FactorPlace place;
  float momentum = 0;
  int32_t nesterov = 0;
  float *buffer = nullptr, *update = nullptr;
};

// mxs_factor_apply
struct FactorApplyArguments {
  PassStep step;
  PassWeights weights;
  FactorPlace place;
  int32_t decay_last = 0, no_decay = 0;
  const float *update = nullptr;
};

// mxs_factor_input: matrix = factor * scale, and `lift` more on the diagonal; all dense, n x n
struct FactorInputArguments {
  uint64_t n = 0;
  float scale = 1, lift = 0;
  const float *factor = nullptr;
  float *matrix = nullptr;
};

// mxs_factor_powers, 1 block: powers = (values, moved to be positive)^(-exponent / 2); *failed = 1 if one is none
struct FactorPowersArguments {
  uint64_t n = 0;
  double epsilon = 0, exponent = 0, largest = 0;
  const float *values = nullptr;
  double *powers = nullptr;
  int32_t *failed = nullptr;
};

// mxs_factor_columns: column i of matrix *= powers[i]
struct FactorColumnsArguments {
  uint64_t n = 0;
  const double *powers = nullptr;
  float *matrix = nullptr;
};

// mxs_factor_estimates: values[i] = the product of column i of both, in fp64, row after row
struct FactorEstimatesArguments {
  uint64_t n = 0;
  const float *left = nullptr, *right = nullptr;
  double *values = nullptr;
};

// mxs_factor_permute: target row r, column c = source row order[r], column c; or by columns. order nullptr: a copy
struct FactorPermuteArguments {
  uint64_t rows = 0, columns = 0, source_stride = 0, target_stride = 0;
  const float *source = nullptr;
  float *target = nullptr;
  const uint32_t *order = nullptr;  // device
  int32_t by_columns = 0;
};

}  // namespace mxs
