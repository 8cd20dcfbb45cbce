// SPDX-License-Identifier: Apache-2.0
// What a step over CUDA memory keeps in device memory, and the launches that agree on it. One control block of an
// optimizer:
//
//   | report: state, verdict | values | group values ... | words of the agreement: squares, then of each rank 5 |
//
// A step without a host that waits:
//
//   mxs_step_put        values and group values into the control block; left out of captured steps
//   mxs_step_begin      words = 0, but for what this rank says
//   mxs_step_squares    words += exact squares of all pieces' gradients; notes what is not finite
//   (NCCL)              words summed over the ranks: each rank's own five stand among zeros, so it is a gather, too
//   mxs_step_conclude   words -> verdict and state
//   element passes      read state and group values; nothing if state.skip
//
// Plain structs: they are the arguments of kernels, and travel by copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "matrixshard/kernels.h"

namespace mxs {

// Element passes read it.
struct DeviceStepState {
  uint64_t step_number = 0;       // of this step, from 1. If it is skipped: of the step before
  float gradient_scale = 1;       // clip factor included
  int32_t skip = 0;               // 1: leave everything as it is
  uint64_t failed = 0;            // pieces that could not be updated so far (momentum not finite, no decomposition)
  int64_t failed_piece = -1;      // the first of them, as the launch names it: the tensor, as agreements number it
  uint64_t steps_done = 0;
};

// Why a step was refused on all ranks.
enum class StepRefusal : int32_t { none, steps, values, failed, missing };

struct DeviceVerdict {
  uint64_t concluded = 0;      // agreements so far
  uint64_t step_number = 0;    // after the latest
  double norm = 0;
  float clip_factor = 1;
  int32_t skipped = 0;
  int32_t found_inf_rank = -1;
  StepRefusal refusal = StepRefusal::none;  // of the latest
  // The latest that was refused: by which rank, and what it has. The counter only grows.
  uint64_t refused_count = 0;
  StepRefusal refused = StepRefusal::none;
  int32_t refused_rank = -1;
  uint64_t refused_steps = 0, first_steps = 0;  // done by that rank, and by rank 0
  int64_t refused_tensor = -1;
};

struct DeviceStepReport {
  DeviceStepState state;
  DeviceVerdict verdict;
};

struct DeviceStepValues {
  uint64_t hash = 0;            // of all that ranks must give alike
  int64_t missing_tensor = 0;   // a gradient that this rank lacks, where that is an error; plus 1
  int64_t failed_tensor = 0;    // what the host knows to be in disorder; plus 2
  float gradient_scale = 1, clip_norm = 0;
};

// Of each rank, in the words of an agreement.
struct StepRankWords {
  int64_t steps = 0, hash = 0, found_inf = 0;
  int64_t failed_tensor = 0;   // plus 2, so that 1 is one that has no number; 0: none
  int64_t missing_tensor = 0;  // plus 1; 0: none
};

struct StepWords {
  int64_t squares[MXS_NORM_WORDS] = {};
  // StepRankWords of rank_count ranks follow.
};
constexpr uint64_t step_word_count(int rank_count) {
  return MXS_NORM_WORDS + static_cast<uint64_t>(rank_count) * (sizeof(StepRankWords) / sizeof(int64_t));
}

// ---- launches ----

// mxs_step_put, 1 block: bytes to a target; how numbers of the host come to the device without a copy that borrows.
struct StepPutArguments {
  static constexpr uint32_t bytes_max = 3072;
  std::byte *target = nullptr;
  uint32_t bytes = 0;  // a multiple of 4
  uint32_t words[bytes_max / 4] = {};
};

struct StepControl {
  DeviceStepReport *report = nullptr;
  const DeviceStepValues *values = nullptr;
  StepWords *words = nullptr;
  int32_t rank = 0, rank_count = 1;
};

// mxs_step_begin, 1 block
struct StepBeginArguments {
  StepControl control;
};

// A piece's gradient sum, which the norm counts. Chunks are of 4,096 elements.
struct StepSquaresPiece {
  const float *gradient = nullptr;
  uint64_t elements = 0;
  uint64_t first_chunk = 0;  // of all pieces' chunks
};

// mxs_step_squares: a warp takes one chunk after the other, in blocks of 32 threads or a multiple of it
struct StepSquaresArguments {
  StepControl control;
  const StepSquaresPiece *pieces = nullptr;  // device; ascending first_chunk
  uint64_t piece_count = 0, chunk_count = 0;
};

// mxs_step_conclude, 1 block
struct StepConcludeArguments {
  StepControl control;
  int32_t commits = 1;  // the step follows: steps_done grows
};

}  // namespace mxs
