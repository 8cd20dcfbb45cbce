// SPDX-License-Identifier: Apache-2.0
// Launches of the element passes of a step over CUDA memory. Scalars are formed on the device from the step's state and
// its group's values, so that a captured step follows them; what is fixed at create comes with the launch. All leave
// everything as it is if the step is skipped. Formulas: kernels/passes.hpp; the bits are those of its host tables.
//
// Muon's passes go over blocks of one shape, count of them at a time. An update is dense: block after block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/step_arguments.hpp"
#include "matrixshard/kernels.h"

namespace mxs {

// Threads of a block of these launches: a multiple of 32. Passes with sums give a warp to a run of 4,096 elements.
constexpr uint32_t pass_threads = 256;

struct PassStep {
  DeviceStepState *state = nullptr;
  const mxs_group_values *values = nullptr;
  int64_t piece = 0;  // for state->failed_piece
};

// Of a piece; all dense, row after row.
struct PassWeights {
  void *weights = nullptr, *master = nullptr;
  int32_t kind = 0;  // WeightKind
  int32_t decay = 0;  // mxs_decay
  uint64_t seed = 0, tensor_id = 0, first_element = 0;  // of stochastic rounding
};

// Blocks of one shape within matrices that have so many columns. places: of each block's first element.
struct PassBlocks {
  const uint64_t *places = nullptr;  // device
  uint32_t count = 0;
  uint64_t rows = 0, columns = 0, matrix_columns = 0;
};

// mxs_pass_adamw: elements one by one
struct AdamwArguments {
  PassStep step;
  PassWeights weights;
  int32_t epsilon_before = 0;
  const float *gradient = nullptr;
  float *exp_avg = nullptr, *exp_avg_sq = nullptr;
  uint64_t elements = 0;
};

// mxs_pass_momentum: warps take runs. run_squares: of each block's runs, in the order of MatrixRuns.
struct MomentumArguments {
  PassStep step;
  PassWeights weights;  // read for L2 decay
  PassBlocks blocks;
  int32_t momentum_kind = 0, nesterov = 0;
  const float *gradient = nullptr;
  float *momentum = nullptr, *update = nullptr;
  double *run_squares = nullptr;
};

// mxs_pass_squares: a block of threads for each block of the matrix. What is not finite counts as failed, if asked.
struct BlockSquaresArguments {
  PassStep step;
  int32_t notes_failures = 1;
  uint64_t rows = 0, columns = 0;
  uint32_t count = 0;
  const double *run_squares = nullptr;
  double *squares = nullptr;
};

// mxs_pass_row_squares: warps take rows of an update. row_squares has room for two numbers of each row: all rows' sums
// come first, behind them is scratch.
struct RowSquaresArguments {
  PassStep step;
  uint64_t rows = 0, columns = 0;
  uint32_t count = 0;
  const float *update = nullptr;
  double *row_squares = nullptr;
};

// mxs_pass_normuon: a block of threads for each block of the matrix
struct NormuonArguments {
  PassStep step;
  uint64_t rows = 0, columns = 0;
  uint32_t count = 0;
  double beta2 = 0, epsilon = 0;
  const double *squares = nullptr;  // of the update before Newton-Schulz: not finite leaves the block alone
  const double *row_squares = nullptr;
  const uint64_t *seconds = nullptr;  // of each block, within second_momentum
  float *second_momentum = nullptr, *factors = nullptr;
};

// mxs_pass_apply: elements one by one
struct ApplyArguments {
  PassStep step;
  PassWeights weights;
  PassBlocks blocks;
  double scale = 1;
  const float *update = nullptr;
  const float *row_factors = nullptr;  // nullptr: 1
  const double *squares = nullptr;     // not finite: the block stays as it is
};

}  // namespace mxs
