// SPDX-License-Identifier: Apache-2.0
// Operation: one collective in flight, and the queue that carries operations out.
//
// Operations of a comm are numbered from 1 in the order of their starts, which is the same on all ranks. Those that
// use messages run one at a time, in order (a channel's messages are in order anyway); those that use shared memory
// have records of their own, and all of them are looked at in every progress.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "matrixshard/status.h"

namespace mxs {

class Operation {
 public:
  virtual ~Operation() = default;
  // Called once when its turn comes (messages) or at enqueue (shared memory). Doesn't block.
  virtual mxs_status begin(uint64_t sequence) = 0;
  // Advances without blocking; sets *complete. A failure fails the comm.
  virtual mxs_status advance(bool *complete) = 0;
  virtual bool uses_messages() const = 0;
  virtual int kind() const = 0;           // MXS_GATHER, ...
  virtual int waits_for() const { return -1; }  // a rank that it waits for, or -1
  virtual const char *name() const = 0;   // for sentences: "gather", "reduce", ...

  bool in_flight() const { return in_flight_; }
  uint64_t sequence() const { return sequence_; }

 private:
  friend class OperationQueue;
  bool in_flight_ = false, begun_ = false;
  uint64_t sequence_ = 0;
};

// Holds pointers only; operations belong to collectives and units, which outlive their flight.
class OperationQueue {
 public:
  static constexpr int capacity = 64;  // as Domain::operation_window

  // MXS_OVER_BUDGET if capacity operations are in flight. An operation is in the queue at most once.
  mxs_status enqueue(Operation *operation, uint64_t *sequence);
  mxs_status advance();
  bool complete(uint64_t sequence) const;
  Operation *find(uint64_t sequence) const;  // nullptr if complete
  bool idle() const { return first_ == next_; }
  uint64_t last() const { return next_ - 1; }
  // After a failure of the comm: an operation that is in flight for ever is kept until the comm's links are closed,
  // because peers may still read its memory.
  void bury(std::unique_ptr<Operation> operation);

 private:
  std::array<Operation *, capacity> ring_{};
  uint64_t first_ = 1, next_ = 1;  // [first_, next_) may be in flight; a nullptr inside is complete
  std::vector<std::unique_ptr<Operation>> buried_;
};

}  // namespace mxs
