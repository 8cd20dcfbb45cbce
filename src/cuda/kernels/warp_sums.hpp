// SPDX-License-Identifier: Apache-2.0
// Sums of fp64 numbers over warps of 32 lanes, in the order of the host's lanes (kernels.hpp): lane i gets lane i + 16,
// then i + 8, 4, 2, 1. Lane 0 of each warp then has the warp's.
#pragma once

#include <cstdint>

#include "cuda/kernels/block.hpp"
#include "kernels/pass_types.hpp"

namespace mxs {

constexpr uint32_t warp_lanes = static_cast<uint32_t>(norm_lanes);
constexpr uint32_t warp_sum_lanes_max = 256;  // of a block

// The first phase puts each lane's own into `sums`; the sum of a warp is at its lane 0 afterwards.
struct WarpSums {
  double sums[warp_sum_lanes_max];
};

MXS_ON_DEVICE inline void add_up_warps(const Block &block, WarpSums &shared) {
  for (uint32_t half = warp_lanes / 2; half > 0; half /= 2)
    block.each([&](uint32_t lane) {
      if (lane % warp_lanes < half) shared.sums[lane] += shared.sums[lane + half];
    });
}

// Scalars that all lanes of a block have in common: a shared variable can't have a constructor.
template <class Pass>
struct SharedPass {
  alignas(16) unsigned char bytes[sizeof(Pass)];
  MXS_ON_DEVICE Pass &get() { return *reinterpret_cast<Pass *>(bytes); }
};

MXS_ON_DEVICE inline void add_word(int64_t *word, int64_t value) {
#ifdef __CUDACC__
  if (value) atomicAdd(reinterpret_cast<unsigned long long *>(word), static_cast<unsigned long long>(value));
#else
  *word += value;
#endif
}

}  // namespace mxs
