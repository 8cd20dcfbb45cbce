// SPDX-License-Identifier: Apache-2.0
// Engine: carries one rank's schedule out over the comm's links. It has no policy: what, from where and in which
// order is in the schedule.
#pragma once

#include <cstdint>
#include <memory>

#include "collective/operation.hpp"
#include "layout/layout.hpp"
#include "matrixshard/types.h"
#include "schedule/schedule.hpp"

namespace mxs {

class Comm;

struct MessageOptions {
  int kind = 0;                           // MXS_GATHER, MXS_REDUCE, MXS_RESHARD
  const Layout *layout = nullptr;         // followed by make_message_operation only
  const Layout *target_layout = nullptr;  // reshard
  Algorithm algorithm = Algorithm::flat;  // one that serves the kind and order
  mxs_dtype dtype = MXS_F32;              // reduce
  bool rank_order = false, accumulate = false;
  uint64_t chunk_bytes = 0;               // choose: 0 leaves it open
  int window = 0;                         // likewise
};

class MessageOperation : public Operation {
 public:
  // Buffers of the start that is enqueued next; meanings as in mxs_collective_start.
  virtual void prepare(const void *source, void *target) = 0;
  virtual const Schedule &schedule() const = 0;
  virtual uint64_t scratch_bytes() const = 0;
  virtual uint64_t chunk_bytes() const = 0;
};

// Builds the schedule and takes all scratch memory. Local: options must be equal on all ranks, which messages tell
// when they arrive (MXS_MISMATCH), and callers better before.
mxs_status make_message_operation(std::unique_ptr<MessageOperation> *operation, Comm &comm,
                                  const MessageOptions &options);

}  // namespace mxs
