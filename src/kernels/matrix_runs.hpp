// SPDX-License-Identifier: Apache-2.0
// Runs of a matrix: where element passes cut it.
#pragma once

#include <cstddef>

#include "base/both.hpp"
#include "kernels/pass_types.hpp"

namespace mxs {

// Rows one after the other, each in runs of at most norm_chunk elements; runs in at most parts_max parts of about equal
// count. All borders depend on the shape alone, so that sums by part have the same bits for any team, and on a device.
// A dense array whose rows are of no consequence is one row.
class MatrixRuns {
 public:
  static constexpr size_t parts_max = 64;
  // Below it a part costs more to hand out than to do.
  static constexpr size_t part_elements_least = 8 * norm_chunk;

  struct Run {
    size_t row, column, count;
  };

  MXS_BOTH MatrixRuns(size_t rows, size_t columns)
      : columns_(columns), runs_per_row_((columns + norm_chunk - 1) / norm_chunk), run_count_(rows * runs_per_row_) {
    const size_t wanted = rows * columns / part_elements_least;
    part_count_ = wanted > parts_max ? size_t{parts_max} : wanted;
    if (part_count_ > run_count_) part_count_ = run_count_;
    if (part_count_ == 0) part_count_ = 1;
  }

  MXS_BOTH size_t part_count() const { return part_count_; }
  MXS_BOTH size_t run_count() const { return run_count_; }
  // Of a part's runs; part_count() gives the end of the last.
  MXS_BOTH size_t first_run(size_t part) const { return part * run_count_ / part_count_; }
  MXS_BOTH Run run(size_t index) const {
    const size_t column = index % runs_per_row_ * norm_chunk, rest = columns_ - column;
    return {index / runs_per_row_, column, rest < norm_chunk ? rest : size_t{norm_chunk}};
  }

  // body(row, column, count) for each run of the part, in order.
  template <class Body>
  void each(size_t part, Body &&body) const {
    const size_t end = first_run(part + 1);
    for (size_t index = first_run(part); index < end; ++index) {
      const Run cut = run(index);
      body(cut.row, cut.column, cut.count);
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

}  // namespace mxs
