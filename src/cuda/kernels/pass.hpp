// SPDX-License-Identifier: Apache-2.0
// What single lanes do in the launches of device/pass_arguments.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/both.hpp"
#include "device/pass_arguments.hpp"
#include "kernels/elements.hpp"
#include "kernels/matrix_runs.hpp"
#include "kernels/pass_scalars.hpp"

namespace mxs {

MXS_BOTH inline WeightForm form_of(const PassWeights &weights, uint64_t step_number) {
  WeightForm form;
  form.kind = static_cast<WeightKind>(weights.kind);
  if (form.kind == WeightKind::bf16_stochastic)
    form.random = scalar::random_bits(weights.seed, weights.tensor_id, step_number);
  return form;
}

MXS_BOTH inline WeightRun run_of(const PassWeights &weights) {
  return {weights.weights, weights.master, weights.first_element};
}

// ---- adamw ----

MXS_BOTH inline AdamwPass adamw_pass_of(const AdamwArguments &a) {
  const DeviceStepState &state = *a.step.state;
  const ApplyPass apply =
      scalar::apply_pass(form_of(a.weights, state.step_number), a.weights.decay, 1.0, *a.step.values);
  AdamwPass pass = scalar::adamw_pass(apply, a.weights.decay, a.epsilon_before != 0, state.step_number, *a.step.values);
  pass.gradient_scale = state.gradient_scale;
  return pass;
}

MXS_BOTH inline void adamw_element(const AdamwArguments &a, const AdamwPass &pass, uint64_t index) {
  AdamwRun run;
  run.gradient = a.gradient;
  run.exp_avg = a.exp_avg;
  run.exp_avg_sq = a.exp_avg_sq;
  run.weights = run_of(a.weights);
  element::apply(pass.apply, run.weights, index, element::direction(pass, run, index));
}

// ---- muon's momentum ----

MXS_BOTH inline MomentumPass momentum_pass_of(const MomentumArguments &a) {
  const DeviceStepState &state = *a.step.state;
  MomentumPass pass = scalar::momentum_pass(a.momentum_kind, a.nesterov != 0, a.weights.decay, *a.step.values);
  pass.gradient_scale = state.gradient_scale;
  pass.form = form_of(a.weights, state.step_number);
  return pass;
}

// One run of one block: its first element in the matrices, and in the update.
struct BlockRun {
  uint64_t matrix, update, count;
};

MXS_BOTH inline BlockRun block_run(const PassBlocks &blocks, const MatrixRuns &runs, uint64_t index) {
  const uint64_t block = index / runs.run_count();
  const MatrixRuns::Run run = runs.run(index % runs.run_count());
  return {blocks.places[block] + run.row * blocks.matrix_columns + run.column,
          (block * blocks.rows + run.row) * blocks.columns + run.column, run.count};
}

// Every 32nd element from `lane` on; their squares.
MXS_BOTH inline double momentum_lane(const MomentumArguments &a, const MomentumPass &pass, const BlockRun &run,
                                     uint32_t lane) {
  MomentumRun elements;
  elements.gradient = a.gradient + run.matrix;
  elements.momentum = a.momentum + run.matrix;
  elements.update = a.update + run.update;
  if (pass.l2 != 0) elements.weights = element::later(pass.form, run_of(a.weights), run.matrix);
  double sum = 0.0;
  for (uint64_t i = lane; i < run.count; i += norm_lanes) sum += element::squared(element::momentum(pass, elements, i));
  return sum;
}

// The sum of a part's runs, in order.
MXS_BOTH inline double part_squares(const double *run_squares, const MatrixRuns &runs, uint64_t block, size_t part) {
  double sum = 0.0;
  const size_t end = runs.first_run(part + 1);
  for (size_t run = runs.first_run(part); run < end; ++run) sum += run_squares[block * runs.run_count() + run];
  return sum;
}

// A block of a matrix that is left as it is. Lanes of several blocks may come here at a time.
MXS_BOTH inline void note_failure(const PassStep &step) {
#ifdef __CUDA_ARCH__
  if (atomicAdd(reinterpret_cast<unsigned long long *>(&step.state->failed), 1ull) == 0)
    step.state->failed_piece = step.piece;
#else
  if (step.state->failed++ == 0) step.state->failed_piece = step.piece;
#endif
}

// ---- NorMuon ----

// Runs of a row in parts: a part's sum begins at zero, and goes to the row's with its last run. row_squares has the
// row's so far, and after all rows that of the part.
MXS_BOTH inline void add_row_run(const RowSquaresArguments &a, const MatrixRuns &runs, size_t part, size_t run,
                                 uint64_t row, double sum) {
  double *const all = a.row_squares + row, *const of_part = all + a.rows * a.count;
  if (run == runs.first_run(part)) {
    if (part == 0) *all = 0.0;
    *of_part = 0.0;
  }
  *of_part += sum;
  if (run + 1 == runs.first_run(part + 1)) *all += *of_part;
}

// The factors of a block, by one thread, from its rows' sums.
MXS_BOTH inline void normuon_block(const NormuonArguments &a, uint64_t block) {
  if (!std::isfinite(a.squares[block])) return;
  const double *const row_squares = a.row_squares + block * a.rows;
  float *const second = a.second_momentum + a.seconds[block], *const factors = a.factors + block * a.rows;
  double old_squares = 0.0, new_squares = 0.0;
  for (uint64_t row = 0; row < a.rows; ++row) {
    second[row] =
        scalar::normuon_second(second[row], row_squares[row], static_cast<double>(a.columns), a.beta2);
    const double factor = scalar::normuon_reciprocal(second[row], a.epsilon);
    old_squares += row_squares[row];
    new_squares += row_squares[row] * factor * factor;
  }
  const double back = scalar::normuon_back(old_squares, new_squares);
  for (uint64_t row = 0; row < a.rows; ++row)
    factors[row] = scalar::normuon_factor(scalar::normuon_reciprocal(second[row], a.epsilon), back);
}

// ---- apply ----

MXS_BOTH inline ApplyPass apply_pass_of(const ApplyArguments &a) {
  const DeviceStepState &state = *a.step.state;
  return scalar::apply_pass(form_of(a.weights, state.step_number), a.weights.decay, a.scale, *a.step.values);
}

MXS_BOTH inline void apply_element(const ApplyArguments &a, const ApplyPass &pass, uint64_t index) {
  const uint64_t line = index / a.blocks.columns, column = index % a.blocks.columns;
  const uint64_t block = line / a.blocks.rows, row = line % a.blocks.rows;
  if (a.squares && !std::isfinite(a.squares[block])) return;
  const float factor = a.row_factors ? a.row_factors[line] : 1.0f;
  element::apply(pass, run_of(a.weights), a.blocks.places[block] + row * a.blocks.matrix_columns + column,
                 a.update[index] * factor);
}

}  // namespace mxs
