// SPDX-License-Identifier: Apache-2.0
// The launches of device/factor_arguments.hpp. What single lanes do is in factor.hpp.
#pragma once

#include "cuda/kernels/block.hpp"
#include "cuda/kernels/factor.hpp"
#include "cuda/kernels/pass.cuh"

namespace mxs {

struct DirectionShared {
  SharedPass<AdamwPass> pass;
  WarpSums sums;
};

// run_squares of a matrix: body(run, lane) is what a lane of its warp adds.
template <class Body>
MXS_ON_DEVICE void sum_runs(const Block &block, const MatrixRuns &runs, double *run_squares, WarpSums &shared,
                            Body &&body) {
  const uint32_t warps = block.lanes() / warp_lanes;
  const uint64_t stride = static_cast<uint64_t>(block.count()) * warps;
  for (uint64_t first = block.index() * static_cast<uint64_t>(warps); first < runs.run_count(); first += stride) {
    block.each([&](uint32_t lane) {
      const uint64_t run = first + lane / warp_lanes;
      shared.sums[lane] = run < runs.run_count() ? body(runs.run(run), lane % warp_lanes) : 0.0;
    });
    add_up_warps(block, shared);
    block.each([&](uint32_t lane) {
      const uint64_t run = first + lane / warp_lanes;
      if (lane % warp_lanes == 0 && run < runs.run_count()) run_squares[run] = shared.sums[lane];
    });
  }
}

}  // namespace mxs

MXS_KERNEL(mxs_factor_gradient, mxs::FactorGradientArguments, mxs::SharedPass<mxs::MomentumPass>) {
  block.share(1, [&](uint64_t) { shared.get() = mxs::gradient_pass(arguments); });
  block.spread(arguments.place.rows * arguments.place.columns,
               [&](uint64_t i) { mxs::gradient_element(arguments, shared.get(), i); });
}

MXS_KERNEL(mxs_factor_filter, mxs::FactorFilterArguments, mxs::SharedPass<mxs::FilterPass>) {
  block.share(1, [&](uint64_t) { shared.get() = mxs::filter_pass(arguments); });
  block.spread(arguments.place.rows * arguments.place.columns,
               [&](uint64_t i) { mxs::filter_element(arguments, shared.get(), i); });
}

MXS_KERNEL(mxs_factor_direction, mxs::FactorDirectionArguments, mxs::DirectionShared) {
  block.share(1, [&](uint64_t) { shared.pass.get() = mxs::direction_pass(arguments); });
  mxs::sum_runs(block, mxs::MatrixRuns(arguments.place.rows, arguments.place.columns), arguments.run_squares,
                shared.sums, [&](const mxs::MatrixRuns::Run &run, uint32_t lane) {
                  return mxs::direction_lane(arguments, shared.pass.get(), run, lane);
                });
}

MXS_KERNEL(mxs_factor_squares, mxs::FactorSquaresArguments, mxs::WarpSums) {
  mxs::sum_runs(block, mxs::MatrixRuns(arguments.rows, arguments.columns), arguments.run_squares, shared,
                [&](const mxs::MatrixRuns::Run &run, uint32_t lane) {
                  return mxs::lane_squares(arguments.numbers + run.row * arguments.columns + run.column, run.count,
                                           lane);
                });
}

MXS_KERNEL(mxs_factor_rescale, mxs::FactorRescaleArguments, mxs::NothingShared) {
  const float factor = static_cast<float>(std::sqrt(*arguments.wanted) / (std::sqrt(*arguments.found) + 1e-16));
  block.spread(arguments.elements, [&](uint64_t i) { arguments.numbers[i] *= factor; });
}

MXS_KERNEL(mxs_factor_buffer, mxs::FactorBufferArguments, mxs::SharedPass<mxs::MomentumPass>) {
  block.share(1, [&](uint64_t) { shared.get() = mxs::buffer_pass(arguments); });
  block.spread(arguments.place.rows * arguments.place.columns,
               [&](uint64_t i) { mxs::buffer_element(arguments, shared.get(), i); });
}

MXS_KERNEL(mxs_factor_apply, mxs::FactorApplyArguments, mxs::SharedPass<mxs::ApplyPass>) {
  block.share(1, [&](uint64_t) { shared.get() = mxs::factor_apply_pass(arguments); });
  block.spread(arguments.place.rows * arguments.place.columns, [&](uint64_t i) {
    mxs::element::apply(shared.get(), mxs::run_of(arguments.weights), mxs::place_of(arguments.place, i),
                        arguments.update[i]);
  });
}

MXS_KERNEL(mxs_factor_input, mxs::FactorInputArguments, mxs::NothingShared) {
  block.spread(arguments.n * arguments.n, [&](uint64_t i) {
    const float value = arguments.factor[i] * arguments.scale;
    arguments.matrix[i] = i % (arguments.n + 1) == 0 ? value + arguments.lift : value;
  });
}

MXS_KERNEL(mxs_factor_powers, mxs::FactorPowersArguments, mxs::NothingShared) {
  block.spread(1, [&](uint64_t) { mxs::find_powers(arguments); });
}

MXS_KERNEL(mxs_factor_columns, mxs::FactorColumnsArguments, mxs::NothingShared) {
  block.spread(arguments.n * arguments.n, [&](uint64_t i) {
    arguments.matrix[i] =
        static_cast<float>(static_cast<double>(arguments.matrix[i]) * arguments.powers[i % arguments.n]);
  });
}

MXS_KERNEL(mxs_factor_estimates, mxs::FactorEstimatesArguments, mxs::NothingShared) {
  block.spread(arguments.n, [&](uint64_t column) {
    double sum = 0.0;
    for (uint64_t row = 0; row < arguments.n; ++row)
      sum += static_cast<double>(arguments.left[row * arguments.n + column]) *
             static_cast<double>(arguments.right[row * arguments.n + column]);
    arguments.values[column] = sum;
  });
}

MXS_KERNEL(mxs_factor_permute, mxs::FactorPermuteArguments, mxs::NothingShared) {
  block.spread(arguments.rows * arguments.columns, [&](uint64_t i) {
    const uint64_t row = i / arguments.columns, column = i % arguments.columns;
    const bool by_columns = arguments.order && arguments.by_columns;
    const bool by_rows = arguments.order && !arguments.by_columns;
    const uint64_t from_row = by_rows ? arguments.order[row] : row;
    const uint64_t from_column = by_columns ? arguments.order[column] : column;
    arguments.target[row * arguments.target_stride + column] =
        arguments.source[from_row * arguments.source_stride + from_column];
  });
}
