// SPDX-License-Identifier: Apache-2.0
// Engine: carries one rank's schedule out over the comm's links. It has no policy: what, from where and in which
// order is in the schedule.
#pragma once

#include <cstdint>
#include <memory>

#include "collective/message_options.hpp"
#include "collective/operation.hpp"

namespace mxs {

class Comm;

class MessageOperation : public Operation {
 public:
  // Buffers of the start that is enqueued next; meanings as in mxs_collective_start.
  virtual void prepare(const void *source, void *target) = 0;
  // Which of equal ones it is, the same on all ranks: folded into the signature. Not in flight.
  virtual void set_identity(uint64_t identity) = 0;
  virtual const Schedule &schedule() const = 0;
  virtual uint64_t scratch_bytes() const = 0;
  virtual uint64_t chunk_bytes() const = 0;
};

// Builds the schedule and takes all scratch memory. What choose() leaves open has been chosen: chunk_bytes and window
// are not 0. Local: options must be equal on all ranks, which messages tell
// when they arrive (MXS_MISMATCH), and callers better before.
mxs_status make_message_operation(std::unique_ptr<MessageOperation> *operation, Comm &comm,
                                  const MessageOptions &options);

}  // namespace mxs
