// SPDX-License-Identifier: Apache-2.0
// Launches of the kernels for linear algebra (kernels/arguments.hpp) with as many blocks as their work has parts.
#pragma once

#include <algorithm>

#include "base/arithmetic.hpp"
#include "cuda/kernels/arguments.hpp"
#include "device/device.hpp"

namespace mxs {

// More would do nothing but begin and end: kernels go on to their next part by themselves.
constexpr uint64_t blocks_most = uint64_t{1} << 20;

template <class Arguments>
mxs_status launch_parts(Device &device, const char *kernel, const Arguments &arguments, uint64_t parts,
                        uint32_t threads, DeviceStream stream) {
  if (parts == 0) return MXS_OK;
  return device.launch(kernel, &arguments, sizeof arguments, static_cast<uint32_t>(std::min(parts, blocks_most)),
                       threads, stream);
}

inline mxs_status launch_multiply(Device &device, const MultiplyArguments &a, DeviceStream stream) {
  const uint64_t tiles = divide_up(a.rows, product_tile) * divide_up(a.columns, product_tile);
  return launch_parts(device, "mxs_multiply", a, tiles * a.count, product_threads, stream);
}

inline uint64_t move_tiles(const MoveArguments &a) {
  return divide_up(a.rows, move_tile) * divide_up(a.columns, move_tile) * a.count;
}
inline mxs_status launch_load(Device &device, const MoveArguments &a, DeviceStream stream) {
  return launch_parts(device, "mxs_newton_schulz_load", a, move_tiles(a), move_threads, stream);
}
inline mxs_status launch_store(Device &device, const MoveArguments &a, DeviceStream stream) {
  return launch_parts(device, "mxs_newton_schulz_store", a, move_tiles(a), move_threads, stream);
}

inline mxs_status launch_add_diagonal(Device &device, const AddDiagonalArguments &a, DeviceStream stream) {
  constexpr uint32_t threads = 256;
  return launch_parts(device, "mxs_add_diagonal", a, divide_up(a.n * a.n * a.count, threads), threads, stream);
}

inline mxs_status launch_decompose(Device &device, const char *kernel, const DecomposeArguments &a,
                                   DeviceStream stream) {
  return launch_parts(device, kernel, a, 1, decompose_threads, stream);
}

}  // namespace mxs
