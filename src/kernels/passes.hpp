// SPDX-License-Identifier: Apache-2.0
// Element passes of optimizers. Each has two structs: a Pass with what is equal for all elements of a step (scalars,
// formed once, in fp64, as Python does, and rounded once), and a Run with the arrays of one contiguous run of elements.
// Tables (kernels.hpp) carry them out; every table gives the same bits, and bits don't depend on where runs are cut.
//
//   sum_of_squares   gradient -> its norm, and is it finite?
//   momentum         gradient, momentum -> momentum, update, sum of the update's squares
//   direction        gradient, averages -> averages, update m / (sqrt(v) + epsilon), sum of its squares
//   apply            update, weights -> weights: decay, update, rounding
//   adamw            direction and apply in one: the same bits as one after the other
//   scale_weights    weights * factor, for QK-clip
//   scale            fp32 * factor, for NorMuon where weights don't change
//
// Weights are read and written in any form that mxs_matrices knows. A run is one row of a matrix or, of dense ones, any
// run of elements; MatrixRuns at the end cuts matrices into runs for a team.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/team.hpp"
#include "kernels/matrix_runs.hpp"
#include "kernels/pass_types.hpp"
#include "matrixshard/kernels.h"

namespace mxs {

RandomBits random_bits(uint64_t seed, uint64_t tensor_id, uint64_t step_number);
// MXS_INVALID_ARGUMENT: there is no such form, or no stochastic rounding in it; the sentence says so. `weights` is not
// DEFAULT. random is left zero.
mxs_status weight_form(WeightForm *form, mxs_dtype dtype, mxs_weights weights, mxs_rounding rounding);
// The same, `elements` later.
WeightRun later(const WeightForm &form, const WeightRun &run, size_t elements);

// What weights are multiplied by: 1 for L2, which is part of momentum and direction.
float decay_factor(mxs_decay decay, const mxs_group_values &values);

// Targets of so many bytes do better if they are written past the cache: what is read next would push them out anyway.
constexpr size_t stream_bytes_least = size_t{8} << 20;

// ---- scalars -------------------------------------------------------------------------------------------------------

Lerp lerp_of(double weight);
MomentumPass momentum_pass(mxs_momentum_kind kind, bool nesterov, mxs_decay decay, const mxs_group_values &values);
// update_factor = -lr * update_scale
ApplyPass apply_pass(const WeightForm &form, mxs_decay decay, double update_scale, const mxs_group_values &values);
// step_number from 1.
AdamwPass adamw_pass(const ApplyPass &apply, mxs_decay decay, bool epsilon_before, uint64_t step_number,
                     const mxs_group_values &values);

// ---- NorMuon -------------------------------------------------------------------------------------------------------

// v = lerp(v, mean of the row's squares, 1 - beta2), row / (sqrt(v) + epsilon), and the whole back to its old norm:
// found as one factor a row, from the rows' sums of squares. Rows of zeros stay zero, a matrix of zeros too.
void normuon_factors(float *factors, float *second_momentum, const double *row_squares, size_t rows, size_t columns,
                     double beta2, double epsilon);

// ---- mxs_elements --------------------------------------------------------------------------------------------------

void muon_momentum(const mxs_elements &elements, const mxs_group_values &values);
void muon_apply(const mxs_elements &elements, const mxs_group_values &values);
void adamw(const mxs_elements &elements, const mxs_group_values &values);

// ---- runs of a matrix ----------------------------------------------------------------------------------------------

// body(matrix, row, column, count) for every run of `count` equal matrices, on the team.
template <class Body>
void over_runs(Team *team, const MatrixRuns &runs, size_t matrix_count, Body &&body) {
  const size_t parts = runs.part_count();
  team->run(matrix_count * parts, [&](size_t part, int) {
    const size_t matrix = part / parts;
    runs.each(part % parts, [&](size_t row, size_t column, size_t count) { body(matrix, row, column, count); });
  });
}

// The same where body returns a double: sums[matrix] is that of the matrix, with equal bits for any team.
template <class Body>
void sum_over_runs(Team *team, const MatrixRuns &runs, size_t matrix_count, double *sums, Body &&body) {
  const auto of_matrix = [&](size_t matrix) {
    return [&body, matrix](size_t row, size_t column, size_t count) { return body(matrix, row, column, count); };
  };
  if (matrix_count >= static_cast<size_t>(team->size()) || runs.part_count() == 1) {
    team->run(matrix_count, [&](size_t matrix, int) { sums[matrix] = runs.sum(of_matrix(matrix)); });
    return;
  }
  for (size_t matrix = 0; matrix < matrix_count; ++matrix) {
    double partial[MatrixRuns::parts_max];
    team->run(runs.part_count(), [&](size_t part, int) { partial[part] = runs.part_sum(part, of_matrix(matrix)); });
    sums[matrix] = 0.0;
    for (size_t part = 0; part < runs.part_count(); ++part) sums[matrix] += partial[part];
  }
}

}  // namespace mxs
