// SPDX-License-Identifier: Apache-2.0
// Block: a block of threads as kernels see it, on the device or on the CPU. A kernel is written once, as phases:
//
//   MXS_KERNEL(mxs_example, ExampleArguments, ExampleShared) {      // arguments, block, shared
//     block.each([&](uint32_t lane) { shared.part[lane] = ...; });
//     block.each([&](uint32_t lane) { ... = shared.part[lane ^ 1]; });
//   }
//
// each(): on the device every thread runs its own lane, and then all wait for each other; on the CPU one thread runs
// all lanes in order. So what lanes give each other lies in `shared`, from one phase to the next; what is outside of
// each() must be equal in all lanes; and what a phase writes, no other lane reads or writes in that phase.
//
// By nvcc NAME is a kernel that takes its arguments by value; by g++ it is NAME_on_cpu, the stand-in's twin, whose
// shared memory is poisoned.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/both.hpp"

#ifdef __CUDACC__
#define MXS_ON_DEVICE __device__
#define MXS_KERNEL(NAME, ARGUMENTS, SHARED)                                                              \
  static MXS_ON_DEVICE void NAME##_body(const ARGUMENTS &, const ::mxs::Block &, SHARED &);              \
  extern "C" __global__ void NAME(ARGUMENTS arguments) {                                                 \
    __shared__ SHARED shared;                                                                            \
    NAME##_body(arguments, ::mxs::Block(blockIdx.x, gridDim.x, blockDim.x), shared);                     \
  }                                                                                                      \
  static MXS_ON_DEVICE void NAME##_body(const ARGUMENTS &arguments, const ::mxs::Block &block,           \
                                        [[maybe_unused]] SHARED &shared)
#else
#define MXS_ON_DEVICE
#define MXS_KERNEL(NAME, ARGUMENTS, SHARED)                                                              \
  static void NAME##_body(const ARGUMENTS &, const ::mxs::Block &, SHARED &);                            \
  extern "C" void NAME##_on_cpu(const void *, uint32_t, uint32_t);                                       \
  extern "C" void NAME##_on_cpu(const void *arguments, uint32_t blocks, uint32_t threads) {              \
    ::mxs::run_twin<ARGUMENTS, SHARED>(arguments, blocks, threads, NAME##_body);                         \
  }                                                                                                      \
  static void NAME##_body(const ARGUMENTS &arguments, const ::mxs::Block &block, [[maybe_unused]] SHARED &shared)
#endif

namespace mxs {

class Block {
 public:
  MXS_BOTH Block(uint32_t index, uint32_t count, uint32_t lanes) : index_(index), count_(count), lanes_(lanes) {}

  MXS_BOTH uint32_t index() const { return index_; }
  MXS_BOTH uint32_t count() const { return count_; }
  MXS_BOTH uint32_t lanes() const { return lanes_; }

  template <class Body>
  MXS_ON_DEVICE void each(Body &&body) const {
#ifdef __CUDACC__
    body(threadIdx.x);
    __syncthreads();
#else
    for (uint32_t lane = 0; lane < lanes_; ++lane) body(lane);
#endif
  }

  // body(index) for all of [0, count), spread over all lanes of all blocks. No phase: no lane waits for another.
  template <class Body>
  MXS_ON_DEVICE void spread(uint64_t count, Body &&body) const {
    const uint64_t stride = static_cast<uint64_t>(count_) * lanes_, first = static_cast<uint64_t>(index_) * lanes_;
#ifdef __CUDACC__
    for (uint64_t i = first + threadIdx.x; i < count; i += stride) body(i);
#else
    for (uint64_t start = first; start < count; start += stride)
      for (uint64_t i = start; i < start + lanes_ && i < count; ++i) body(i);
#endif
  }

  // body(index) for all of [0, count), spread over the lanes of this block: a phase.
  template <class Body>
  MXS_ON_DEVICE void share(uint64_t count, Body &&body) const {
    each([&](uint32_t lane) {
      for (uint64_t i = lane; i < count; i += lanes_) body(i);
    });
  }

 private:
  uint32_t index_, count_, lanes_;
};

// What every lane has for itself from phase to phase: each is lane's alone.
template <class Value, uint32_t lanes_max>
class PerLane {
 public:
#ifdef __CUDACC__
  MXS_ON_DEVICE Value &operator[](uint32_t) { return own_; }

 private:
  Value own_;
#else
  Value &operator[](uint32_t lane) { return all_[lane]; }

 private:
  Value all_[lanes_max];
#endif
};

// For kernels that share nothing.
struct NothingShared {
  unsigned char nothing;
};

#ifndef __CUDACC__
template <class Arguments, class Shared, class Body>
void run_twin(const void *arguments, uint32_t blocks, uint32_t threads, Body &&body) {
  Arguments own;
  std::memcpy(static_cast<void *>(&own), arguments, sizeof own);
  for (uint32_t block = 0; block < blocks; ++block) {
    Shared shared;
    std::memset(static_cast<void *>(&shared), 0xa5, sizeof shared);
    body(own, Block(block, blocks, threads), shared);
  }
}
#endif

}  // namespace mxs
