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
#include "matrixshard/kernels.h"

namespace mxs {

// Sums of squares are formed in chunks of so many elements.
constexpr size_t norm_chunk = 4096;

// ---- weights -------------------------------------------------------------------------------------------------------

enum class WeightKind : int32_t {
  f32,              // alone
  f32_copied,       // fp32 master, and weights that equal it
  bf16_master,      // fp32 master, and weights rounded to nearest even
  f16_master,
  bf16_remainder,   // upper and lower 16 bits of the fp32 master
  bf16_nearest,     // alone, rounded to nearest even
  f16_nearest,
  bf16_stochastic,  // alone, rounded stochastically
};

// Random bits of one tensor at one step. They come from Philox4x32-10 in two stages, so that seed, tensor, step and
// element have 64 bits each and no two of them share a block. Words are 32 bits, the lower half of a number first:
//
//   (a, b, c, d) = philox(key seed, counter (tensor_id, step_number))
//   block n      = philox(key (a, b), counter (n, c, d))
//
// A block is four words, 16 bits of it for each of eight elements. Element e of the tensor has block
// e / 128 * 16 + e % 16, word e / 16 % 4, and of that the lower half if e / 64 % 2 is 0: so a vector of 16 elements
// takes the same half of the same word of 16 neighbouring blocks.
struct RandomBits {
  uint32_t key[2] = {}, counter[2] = {};
};
RandomBits random_bits(uint64_t seed, uint64_t tensor_id, uint64_t step_number);

struct WeightForm {
  WeightKind kind = WeightKind::f32;
  RandomBits random;  // of bf16_stochastic
};
// MXS_INVALID_ARGUMENT: there is no such form, or no stochastic rounding in it; the sentence says so. `weights` is not
// DEFAULT. random is left zero.
mxs_status weight_form(WeightForm *form, mxs_dtype dtype, mxs_weights weights, mxs_rounding rounding);

struct WeightRun {
  void *weights = nullptr;
  void *master = nullptr;      // float, or uint16_t of bf16_remainder; not looked at where the form has none
  uint64_t first_element = 0;  // of the run within its tensor, for random bits
};
// The same, `elements` later.
WeightRun later(const WeightForm &form, const WeightRun &run, size_t elements);

// What weights are multiplied by: 1 for L2, which is part of momentum and direction.
float decay_factor(mxs_decay decay, const mxs_group_values &values);

// Targets of so many bytes do better if they are written past the cache: what is read next would push them out anyway.
constexpr size_t stream_bytes_least = size_t{8} << 20;

// ---- momentum ------------------------------------------------------------------------------------------------------

// start + weight * (end - start), on the side that torch takes: exact at weight 0 and 1.
struct Lerp {
  float weight = 0;  // from the nearer end
  bool from_end = false;
};
Lerp lerp_of(double weight);

// g = gradient * gradient_scale + l2 * weight
// ema: m = lerp(m, g, 1 - momentum), update = nesterov ? lerp(g, m, momentum) : m
// sgd: m = momentum * m + g,         update = nesterov ? momentum * m + g : m
struct MomentumPass {
  mxs_dtype gradient_dtype = MXS_F32;
  float gradient_scale = 1;
  float l2 = 0;     // weight decay that becomes part of the gradient. 0: weights are not looked at
  WeightForm form;  // of those
  bool sgd = false, nesterov = false;
  Lerp momentum_lerp, nesterov_lerp;  // ema
  float momentum = 0;                 // sgd
  bool streams = false;               // the update is written past the cache
};
MomentumPass momentum_pass(mxs_momentum_kind kind, bool nesterov, mxs_decay decay, const mxs_group_values &values);

struct MomentumRun {
  const void *gradient = nullptr;  // at a border of its dtype
  float *momentum = nullptr;
  float *update = nullptr;  // may be the gradient, or the momentum if not nesterov
  WeightRun weights;        // read, if l2 is not 0
  size_t count = 0;
};

// ---- apply ---------------------------------------------------------------------------------------------------------

// u = update * row_factor; w = w * decay + u * update_factor, in fp32, then rounded to the form.
// cautious: decay only where u * w >= 0. decay_last: (w + u * update_factor) * decay.
struct ApplyPass {
  WeightForm form;
  float decay = 1;
  float update_factor = 0;
  bool cautious = false, decay_last = false;
};
// update_factor = -lr * update_scale
ApplyPass apply_pass(const WeightForm &form, mxs_decay decay, double update_scale, const mxs_group_values &values);

struct ApplyRun {
  WeightRun weights;
  const float *update = nullptr;
  float row_factor = 1;  // NorMuon's
  size_t count = 0;
};

// ---- AdamW and its direction ---------------------------------------------------------------------------------------

// g = gradient * gradient_scale + l2 * weight;  m = lerp(m, g, 1 - beta1);  v = v * beta2 + g * (1 - beta2) * g
// update = m * direction_factor / (sqrt(v) / correction2_root + epsilon)
// With epsilon after bias correction (torch) direction_factor is 1 / (1 - beta1^t) and correction2_root
// sqrt(1 - beta2^t); with epsilon before (Moonlight, SOAP) sqrt(1 - beta2^t) / (1 - beta1^t) and 1.
struct AdamwPass {
  mxs_dtype gradient_dtype = MXS_F32;
  float gradient_scale = 1;
  float l2 = 0;
  Lerp first_lerp;
  float beta2 = 0, second_weight = 0, correction2_root = 1, epsilon = 0, direction_factor = 1;
  ApplyPass apply;       // adamw; direction takes its form, if l2 is not 0
};
// step_number from 1.
AdamwPass adamw_pass(const ApplyPass &apply, mxs_decay decay, bool epsilon_before, uint64_t step_number,
                     const mxs_group_values &values);

struct AdamwRun {
  const void *gradient = nullptr;
  float *exp_avg = nullptr, *exp_avg_sq = nullptr;
  WeightRun weights;  // direction: read, if l2 is not 0
  size_t count = 0;
  // direction only:
  float *update = nullptr;         // may be the gradient or `filtered`
  const float *filtered = nullptr;  // instead of m, which then is neither read nor written (Shampoo's grafting)
};

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

// Rows one after the other, each in runs of at most norm_chunk elements; runs in at most parts_max parts of about equal
// count. All borders depend on the shape alone, so that sums by part have the same bits for any team. A dense array
// whose rows are of no consequence is one row.
class MatrixRuns {
 public:
  static constexpr size_t parts_max = 64;
  // Below it a part costs more to hand out than to do.
  static constexpr size_t part_elements_least = 8 * norm_chunk;

  MatrixRuns(size_t rows, size_t columns)
      : columns_(columns), runs_per_row_((columns + norm_chunk - 1) / norm_chunk), run_count_(rows * runs_per_row_),
        part_count_(std::clamp<size_t>(rows * columns / part_elements_least, 1, parts_max)) {
    part_count_ = std::min(part_count_, std::max<size_t>(run_count_, 1));
  }

  size_t part_count() const { return part_count_; }

  // body(row, column, count) for each run of the part, in order.
  template <class Body>
  void each(size_t part, Body &&body) const {
    const size_t end = (part + 1) * run_count_ / part_count_;
    for (size_t run = part * run_count_ / part_count_; run < end; ++run) {
      const size_t column = run % runs_per_row_ * norm_chunk;
      body(run / runs_per_row_, column, std::min(norm_chunk, columns_ - column));
    }
  }

  // The sum of body(row, column, count), a double, over a whole matrix: by part, then part after part.
  template <class Body>
  double sum(Body &&body) const {
    double total = 0.0;
    for (size_t part = 0; part < part_count_; ++part) total += part_sum(part, body);
    return total;
  }

  template <class Body>
  double part_sum(size_t part, Body &&body) const {
    double sum = 0.0;
    each(part, [&](size_t row, size_t column, size_t count) { sum += body(row, column, count); });
    return sum;
  }

 private:
  size_t columns_, runs_per_row_, run_count_, part_count_;
};

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
