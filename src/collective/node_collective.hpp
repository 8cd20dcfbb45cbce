// SPDX-License-Identifier: Apache-2.0
// Collectives by load and store inside a domain: no messages.
//
//   fan-out gather       the buffer is cut in chunks; a rank that claims a chunk reads it once from its owner and
//                        streams it into all other ranks' buffers: S reads + (p-1) S writes
//   cooperative reduce   a rank that claims a chunk adds all ranks' gradients of it in rank order, starting from the
//                        owner's accumulator, and writes the accumulator: one pass
//
// Every rank enters an operation (its buffers are ready), then anybody may do any chunk, so a slow rank delays nobody
// who needs only its bytes. An operation is complete when all chunks are finished. Gathers of
// which no rank would copy 1 MiB are pulled: each rank copies for itself.
//
// An advance() does one chunk at most (1 MiB). Whoever waits for a domain's operations takes Domain::event() before
// advancing and pauses on it afterwards; a rank that could do more finds the event changed and doesn't fall asleep.
#pragma once

#include <cstdint>
#include <memory>

#include "collective/operation.hpp"
#include "layout/layout.hpp"
#include "memory/domain.hpp"
#include "matrixshard/types.h"

namespace mxs {

class Comm;

// A rank's bytes of the layout lie at base + offset of a shared region: whole-buffer offsets on both sides.
struct NodeGatherOptions {
  const Layout *layout = nullptr;      // owners are comm ranks. Copied
  const SharedRegion *source = nullptr;  // the owner's segments, at source_offset + segment offset
  const SharedRegion *target = nullptr;  // everybody's buffer, at its own target offset + segment offset
  // An owner's own segments are never written to its target: they are the same memory, or mapped into it.
};

struct NodeReduceOptions {
  const Layout *layout = nullptr;        // of the gradient buffer
  mxs_dtype dtype = MXS_F32;             // of the gradients
  const SharedRegion *source = nullptr;  // every rank's gradients, at its own source offset + segment offset
  const SharedRegion *target = nullptr;  // the owner's fp32 accumulators: packed segments
  bool accumulate = true;                // else the sum begins from zero
};

class NodeCollective : public Operation {
 public:
  // Where the options left the regions out, before each prepare: they, and a number that is the same on all ranks if
  // they are the same buffers (other ranks' numbers are compared).
  virtual void use(const SharedRegion &source, const SharedRegion &target, uint64_t buffers) = 0;
  // Offsets of the start that is enqueued next: of this rank's buffers within its regions. They may differ from rank
  // to rank.
  virtual void prepare(uint64_t source_offset, uint64_t target_offset) = 0;
  // Which of equal ones it is, the same on all ranks: folded into the signature. Not in flight.
  virtual void set_identity(uint64_t identity) = 0;
};

// All ranks of the layout are in the domain; of a comm: comm.domain. Regions must outlive the operation.
std::unique_ptr<NodeCollective> make_node_gather(Domain &domain, const NodeGatherOptions &options);
std::unique_ptr<NodeCollective> make_node_reduce(Domain &domain, const NodeReduceOptions &options);
std::unique_ptr<NodeCollective> make_node_gather(Comm &comm, const NodeGatherOptions &options);
std::unique_ptr<NodeCollective> make_node_reduce(Comm &comm, const NodeReduceOptions &options);

}  // namespace mxs
