// SPDX-License-Identifier: Apache-2.0
// The launches of device/pass_arguments.hpp. What single lanes do is in pass.hpp; scalars are formed once in each block.
#pragma once

#include "cuda/kernels/block.hpp"
#include "cuda/kernels/pass.hpp"
#include "cuda/kernels/warp_sums.hpp"

namespace mxs {

struct MomentumShared {
  SharedPass<MomentumPass> pass;
  WarpSums sums;
};

struct PartSums {
  double sums[MatrixRuns::parts_max];
};

// The lanes' squares of a run of an update.
MXS_ON_DEVICE inline double lane_squares(const float *numbers, uint64_t count, uint32_t lane) {
  double sum = 0.0;
  for (uint64_t i = lane; i < count; i += norm_lanes) sum += element::squared(numbers[i]);
  return sum;
}

}  // namespace mxs

MXS_KERNEL(mxs_pass_adamw, mxs::AdamwArguments, mxs::SharedPass<mxs::AdamwPass>) {
  if (arguments.step.state->skip) return;
  block.share(1, [&](uint64_t) { shared.get() = mxs::adamw_pass_of(arguments); });
  block.spread(arguments.elements, [&](uint64_t i) { mxs::adamw_element(arguments, shared.get(), i); });
}

MXS_KERNEL(mxs_pass_momentum, mxs::MomentumArguments, mxs::MomentumShared) {
  if (arguments.step.state->skip) return;
  block.share(1, [&](uint64_t) { shared.pass.get() = mxs::momentum_pass_of(arguments); });
  const mxs::MatrixRuns runs(arguments.blocks.rows, arguments.blocks.columns);
  const uint64_t total = runs.run_count() * arguments.blocks.count;
  const uint32_t warps = block.lanes() / mxs::warp_lanes;
  const uint64_t stride = static_cast<uint64_t>(block.count()) * warps;
  for (uint64_t first = block.index() * static_cast<uint64_t>(warps); first < total; first += stride) {
    block.each([&](uint32_t lane) {
      const uint64_t run = first + lane / mxs::warp_lanes;
      shared.sums.sums[lane] =
          run < total ? mxs::momentum_lane(arguments, shared.pass.get(), mxs::block_run(arguments.blocks, runs, run),
                                           lane % mxs::warp_lanes)
                      : 0.0;
    });
    mxs::add_up_warps(block, shared.sums);
    block.each([&](uint32_t lane) {
      const uint64_t run = first + lane / mxs::warp_lanes;
      if (lane % mxs::warp_lanes == 0 && run < total) arguments.run_squares[run] = shared.sums.sums[lane];
    });
  }
}

MXS_KERNEL(mxs_pass_squares, mxs::BlockSquaresArguments, mxs::PartSums) {
  if (arguments.step.state->skip) return;
  const mxs::MatrixRuns runs(arguments.rows, arguments.columns);
  for (uint64_t number = block.index(); number < arguments.count; number += block.count()) {
    block.share(runs.part_count(), [&](uint64_t part) {
      shared.sums[part] = mxs::part_squares(arguments.run_squares, runs, number, part);
    });
    block.share(1, [&](uint64_t) {
      double sum = 0.0;
      for (size_t part = 0; part < runs.part_count(); ++part) sum += shared.sums[part];
      arguments.squares[number] = sum;
      if (arguments.notes_failures && !std::isfinite(sum)) mxs::note_failure(arguments.step);
    });
  }
}

// Rows by warps; a row's runs one after the other, in the host's parts.
MXS_KERNEL(mxs_pass_row_squares, mxs::RowSquaresArguments, mxs::WarpSums) {
  if (arguments.step.state->skip) return;
  const mxs::MatrixRuns runs(1, arguments.columns);
  const uint64_t total = arguments.rows * arguments.count;
  const uint32_t warps = block.lanes() / mxs::warp_lanes;
  const uint64_t stride = static_cast<uint64_t>(block.count()) * warps;
  for (uint64_t first = block.index() * static_cast<uint64_t>(warps); first < total; first += stride) {
    for (size_t part = 0; part < runs.part_count(); ++part)
      for (size_t index = runs.first_run(part); index < runs.first_run(part + 1); ++index) {
        const mxs::MatrixRuns::Run run = runs.run(index);
        block.each([&](uint32_t lane) {
          const uint64_t row = first + lane / mxs::warp_lanes;
          shared.sums[lane] = row < total ? mxs::lane_squares(arguments.update + row * arguments.columns + run.column,
                                                              run.count, lane % mxs::warp_lanes)
                                          : 0.0;
        });
        mxs::add_up_warps(block, shared);
        block.each([&](uint32_t lane) {
          const uint64_t row = first + lane / mxs::warp_lanes;
          if (lane % mxs::warp_lanes != 0 || row >= total) return;
          mxs::add_row_run(arguments, runs, part, index, row, shared.sums[lane]);
        });
      }
  }
}

MXS_KERNEL(mxs_pass_normuon, mxs::NormuonArguments, mxs::NothingShared) {
  if (arguments.step.state->skip) return;
  block.spread(arguments.count, [&](uint64_t number) { mxs::normuon_block(arguments, number); });
}

MXS_KERNEL(mxs_pass_apply, mxs::ApplyArguments, mxs::SharedPass<mxs::ApplyPass>) {
  if (arguments.step.state->skip) return;
  block.share(1, [&](uint64_t) { shared.get() = mxs::apply_pass_of(arguments); });
  block.spread(arguments.blocks.rows * arguments.blocks.columns * arguments.blocks.count,
               [&](uint64_t i) { mxs::apply_element(arguments, shared.get(), i); });
}
