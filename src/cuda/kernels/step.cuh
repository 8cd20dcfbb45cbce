// SPDX-License-Identifier: Apache-2.0
// The launches of device/step_arguments.hpp. What single lanes do is in step.hpp.
#pragma once

#include "cuda/kernels/block.hpp"
#include "cuda/kernels/step.hpp"
#include "cuda/kernels/warp_sums.hpp"

namespace mxs {

struct SquaresShared {
  WarpSums sums;
  uint32_t not_finite[warp_sum_lanes_max];
};

}  // namespace mxs

MXS_KERNEL(mxs_step_put, mxs::StepPutArguments, mxs::NothingShared) {
  uint32_t *const target = reinterpret_cast<uint32_t *>(arguments.target);
  block.spread(arguments.bytes / 4, [&](uint64_t i) { target[i] = arguments.words[i]; });
}

MXS_KERNEL(mxs_step_begin, mxs::StepBeginArguments, mxs::NothingShared) {
  block.spread(MXS_NORM_WORDS, [&](uint64_t i) { arguments.control.words->squares[i] = 0; });
  block.spread(static_cast<uint64_t>(arguments.control.rank_count), [&](uint64_t rank) {
    mxs::rank_words(arguments.control)[rank] = mxs::first_words(arguments.control, static_cast<int32_t>(rank));
  });
}

MXS_KERNEL(mxs_step_squares, mxs::StepSquaresArguments, mxs::SquaresShared) {
  const mxs::StepControl &control = arguments.control;
  const uint32_t warps = block.lanes() / mxs::warp_lanes;
  const uint64_t stride = static_cast<uint64_t>(block.count()) * warps;
  const float scale = control.values->gradient_scale;
  for (uint64_t first = block.index() * static_cast<uint64_t>(warps); first < arguments.chunk_count; first += stride) {
    block.each([&](uint32_t lane) {
      const uint64_t chunk = first + lane / mxs::warp_lanes;
      bool not_finite = false;
      shared.sums.sums[lane] = chunk < arguments.chunk_count
                                   ? mxs::lane_squares(mxs::squares_chunk(arguments, chunk), scale,
                                                       lane % mxs::warp_lanes, &not_finite)
                                   : 0.0;
      shared.not_finite[lane] = not_finite;
    });
    mxs::add_up_warps(block, shared.sums);
    block.each([&](uint32_t lane) {
      if (lane % mxs::warp_lanes != 0) return;
      uint32_t not_finite = 0;
      for (uint32_t i = 0; i < mxs::warp_lanes; ++i) not_finite |= shared.not_finite[lane + i];
      if (not_finite) {
        mxs::rank_words(control)[control.rank].found_inf = 1;
        return;
      }
      const mxs::ExactParts parts = mxs::exact_parts(shared.sums.sums[lane]);
      for (int i = 0; i < 3; ++i) mxs::add_word(&control.words->squares[parts.first + i], parts.words[i]);
    });
  }
}

MXS_KERNEL(mxs_step_conclude, mxs::StepConcludeArguments, mxs::NothingShared) {
  block.spread(1, [&](uint64_t) { mxs::step_conclude(arguments); });
}
