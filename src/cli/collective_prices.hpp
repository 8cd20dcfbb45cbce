// SPDX-License-Identifier: Apache-2.0
// What collectives take on a topology that needn't exist: mxs_simulate's answer, by the algorithm, chunk and window
// that the library would choose there, times the factor that `mxs-perf tune` may have saved for the algorithm.
//
// A simulation's cost grows with its messages: a million a second, and a gather of 1 GiB to 1,024 ranks has four. So
//
//   worlds of up to 32 ranks, of one node, or of uneven nodes       are simulated as they are;
//   larger ones level by level, as two-level algorithms run them:   T = max(between nodes, inside) + 2 local hops
//     between: one rank a node, who has one rail's share of what its node owns. Of more than 256 nodes several are
//              taken as one, and what is above the bound grows with their number
//     inside:  the node of the largest owner; what other nodes own comes in evenly through its ranks
//   more than 128 MiB through a port: as 128 MiB, then the bound grows with the bytes and what is above it with their
//     square root, as the best chunk does;
//   an exchange among more than 256 ranks: among the first 256, with as many bytes of a rank; each further peer costs
//     two overheads.
//
// By levels 8 nodes of 8 ranks differ by 1 to 9% from the whole simulation for 930 MiB (NICs 50 GB/s, 450 inside;
// gathers and bf16 reduces, even and of 7 owners; the fastest two-level algorithm of each).
#pragma once

#include <cstdint>
#include <vector>

#include "matrixshard/matrixshard.hpp"

namespace mxs_cli {

// All in nanoseconds. owned: bytes of each rank.
class CollectivePrices {
 public:
  explicit CollectivePrices(const mxs::topology &topology);

  double gather(const std::vector<uint64_t> &owned) const { return price(MXS_GATHER, MXS_F32, owned); }
  // owned: in dtype. Types that no reduce takes cost what fp32 does.
  double reduce(const std::vector<uint64_t> &owned, mxs_dtype dtype) const;
  // From even shares of every owner's bytes to the owners, or back.
  double exchange(const std::vector<uint64_t> &owned) const;

 private:
  // lanes: ports that share the bytes.
  double simulated(const mxs::topology &topology, int32_t kind, mxs_dtype dtype, const std::vector<uint64_t> &owned,
                   uint64_t lanes) const;
  double price(int32_t kind, mxs_dtype dtype, const std::vector<uint64_t> &owned) const;
  double by_levels(int32_t kind, mxs_dtype dtype, const std::vector<uint64_t> &owned) const;
  double factor(const char *algorithm, bool between_nodes) const;
  bool is_even() const;

  const mxs::topology &topology_;
  mxs_speeds speeds_ = MXS_SPEEDS_INIT;
  int32_t ranks_ = 0, nodes_ = 0, rails_ = 1;  // rails: of a node
  std::vector<int32_t> node_of_;
  bool has_levels_ = false;
  mxs::topology between_, inside_;
};

}  // namespace mxs_cli
