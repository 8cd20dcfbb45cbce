// SPDX-License-Identifier: Apache-2.0
// The second half of a reduce with replicas: an owner's sums over its shard group are added up over the replicas.
//
//   shard group   reduce into scratch
//   replicas               after it, an all-reduce of the scratch onto the accumulators, in two operations:
//                          1 reduce: each replica adds all scratches to its part of the accumulators
//                          2 gather: each replica's part of the accumulators goes to all, in place
//
// Every replica then holds bits that one of them computed, whatever the order of addition; and as accumulators were
// equal before, nothing is counted twice over micro-batches.
//
// The two have their place in the replicas' order of operations from the start of the reduce on, and begin when what
// they wait for is complete (Operation::set_gate), so that the order is the same on all replicas. In the order of the
// shard group stands this object, which makes progress for both: whoever waits in the shard group carries the replicas
// along.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "collective/comm.hpp"
#include "collective/engine.hpp"
#include "layout/layout.hpp"

namespace mxs {

class ReplicaSum final : public Operation {
 public:
  explicit ReplicaSum(Comm &replicas) : replicas_(replicas) {}

  // Local. bytes: of this rank's sums, the same on its peers; 0: nothing to add. identity: of the
  // unit. ready: scratch is complete.
  mxs_status make(uint64_t bytes, bool rank_order, uint64_t identity, std::function<bool()> ready);
  // Takes the replicas' part its place in their order; then this is to be enqueued.
  mxs_status start(const std::byte *scratch, std::byte *sums, int priority);
  // After a failure.
  void bury();

  mxs_status begin(uint64_t) override { return MXS_OK; }
  mxs_status advance(Turn *turn) override;
  bool uses_messages() const override { return false; }
  bool polls() const override { return true; }
  int kind() const override;
  const char *name() const override { return "sum over replicas"; }

 private:
  Comm &replicas_;
  Layout layout_;  // even, of the sums
  uint64_t own_offset_ = 0, bytes_ = 0, peers_seen_ns_ = 0;
  std::unique_ptr<MessageOperation> reduce_, gather_;
  uint64_t reduce_request_ = 0, gather_request_ = 0;
};

}  // namespace mxs
