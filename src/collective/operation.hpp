// SPDX-License-Identifier: Apache-2.0
// Operation: one collective in flight, and the queue that carries operations out.
//
// Operations of a comm are numbered from 1 in the order of their starts, which is the same on all ranks.
//
//   messages       operation n has lane n mod 4, and begins when all earlier ones on it are complete here. A lane's
//                  messages are in order, so those of the next operation can't be mistaken for its own
//   agreement      has a lane to itself, and there is one at a time: begins at once
//   shared memory  has records of its own, and begins at once
//
// All that have begun are advanced in every pass, in rounds until none moves: the highest priority first, among equals
// the oldest. Priority never makes anybody wait for good, whatever numbers the ranks give: in each round everyone takes
// what has come and sends what is ready, and a lower one only keeps a single message per channel in flight, instead of
// its window, while a higher one has something left to send; which is enough for it to get to its end.
// Why no operation waits for ever: the oldest that isn't complete everywhere has begun everywhere where it was started
// (those before it on its lane are complete), and a schedule with a window of one gets to its end by its own lane.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "matrixshard/status.h"

namespace mxs {

class Tracer;  // trace/

// One round of an operation.
struct Turn {
  bool yields = false;    // in: one with a higher priority has messages left to send; keep one per channel in flight
  bool moved = false;     // out: something was done, so that another round may do more
  bool complete = false;  // out
};

class Operation {
 public:
  virtual ~Operation() = default;
  // Called once when its turn comes (messages) or at enqueue (shared memory). Doesn't block.
  virtual mxs_status begin(uint64_t sequence) = 0;
  // Advances without blocking. A failure fails the comm.
  virtual mxs_status advance(Turn *turn) = 0;
  virtual bool uses_messages() const = 0;
  virtual bool has_more_to_send() const { return false; }
  // Works on something that nobody of this comm tells about: whoever waits for it must look now and then.
  virtual bool polls() const { return false; }
  virtual int kind() const = 0;           // MXS_GATHER, ...
  virtual uint64_t signature() const { return 0; }  // in messages: what must be equal on all ranks
  virtual int waits_for() const { return -1; }  // a rank that it waits for, or -1
  virtual int sends_to() const { return -1; }   // a rank that has yet to take what it sends, or -1
  virtual const char *name() const = 0;   // for sentences: "gather", "reduce", ...

  bool in_flight() const { return in_flight_.load(std::memory_order_acquire); }
  uint64_t sequence() const { return sequence_; }
  int lane() const { return lane_; }  // of its messages
  // Messages only: it has its place in the order from enqueue on, but doesn't begin before the gate says true.
  void set_gate(std::function<bool()> gate) { gate_ = std::move(gate); }
  // Called when it is complete here, before anybody is told; what it returns may fail the comm. For debugging.
  void set_end(std::function<mxs_status()> end) { end_ = std::move(end); }

  // What the trace says of its starts from here on.
  struct Label {
    int unit = -1;
    uint8_t algorithm = 0;  // of Tracer::name
    bool told = true;       // false: whoever starts it tells of it
    uint64_t bytes_out = 0, bytes_in = 0;
  };
  void set_label(const Label &label) { label_ = label; }
  void set_unit(int unit) { label_.unit = unit; }
  const Label &label() const { return label_; }

 private:
  friend class OperationQueue;
  std::atomic<bool> in_flight_{false};
  bool begun_ = false;
  int lane_ = 0, priority_ = 0;
  std::function<bool()> gate_;
  std::function<mxs_status()> end_;
  uint64_t sequence_ = 0;
  Label label_;
  uint64_t ticket_ = 0;   // of its event in the trace; 0: none
  bool delayed_ = false;  // it was not its turn when it was started
};

// Holds pointers only; operations belong to collectives and units, which outlive their flight.
//
// Any thread may call anything here: one may wait for an operation while the family's thread starts another. The mutex
// is free nearly always, because calls of a family come one at a time; questions take none.
class OperationQueue {
 public:
  static constexpr int capacity = 64;  // as Domain::operation_window

  // From here on starts and ends are events. Before the first start.
  void trace_to(Tracer *tracer, const std::atomic<int> *phase) {
    tracer_ = tracer;
    phase_ = phase;
  }

  // MXS_OVER_BUDGET if capacity operations are in flight. An operation is in the queue at most once.
  mxs_status enqueue(Operation *operation, uint64_t *sequence, int priority = 0);
  // A bounded number of rounds, so that a start doesn't stay with a long stream. *more: there was more to do.
  mxs_status advance(bool *more = nullptr);
  // Somebody is about to enqueue, and should not have to wait for one who makes progress over and over.
  bool wanted() const { return enqueuers_.load(std::memory_order_relaxed) != 0; }
  bool complete(uint64_t sequence) const;
  Operation *find(uint64_t sequence) const;  // nullptr if complete
  bool idle() const { return first_.load(std::memory_order_acquire) == next_.load(std::memory_order_acquire); }
  bool messages_in_flight() const { return message_count_.load(std::memory_order_relaxed) != 0; }
  bool polls() const { return polling_count_.load(std::memory_order_relaxed) != 0; }
  // No operation over shared memory is in flight.
  bool only_messages() const {
    return next_.load(std::memory_order_relaxed) - first_.load(std::memory_order_relaxed) ==
           static_cast<uint64_t>(message_count_.load(std::memory_order_relaxed));
  }
  // No operation can be enqueued before that one is complete; 0: there is room.
  uint64_t in_the_way() const {
    const uint64_t first = first_.load(std::memory_order_acquire);
    return next_.load(std::memory_order_acquire) - first >= capacity ? first : 0;
  }
  uint64_t last() const { return next_.load(std::memory_order_acquire) - 1; }

  // What a wait says about an operation that is in flight.
  struct Description {
    const char *name = "operation";
    int kind = 0, waits_for = -1, unit = -1;
  };
  Description describe(uint64_t sequence) const;

  // What was started under a number. sequence 0: not yet, or so long ago that it is forgotten.
  struct Record {
    uint64_t sequence = 0;
    int kind = 0;
    uint64_t signature = 0;
  };
  Record record(uint64_t sequence) const;
  // Those in flight, the oldest first: calls use(record, rank that it waits for), and again with one that it sends to.
  template <class Use>
  void each_in_flight(Use &&use) const {
    const std::lock_guard lock(mutex_);
    const uint64_t next = next_.load(std::memory_order_relaxed);
    for (uint64_t sequence = first_.load(std::memory_order_relaxed); sequence < next; ++sequence)
      if (const Operation *operation = ring_[sequence % capacity].load(std::memory_order_relaxed)) {
        use(records_[sequence % capacity], waits_for(*operation));
        const int other = operation->begun_ ? operation->sends_to() : -1;
        if (other >= 0) use(records_[sequence % capacity], other);
      }
  }
  // Of all that was started so far, in order: equal on all ranks at an agreement.
  uint64_t history() const { return history_.load(std::memory_order_relaxed); }
  // Grows whenever messages move.
  uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }
  // After a failure of the comm: an operation that is in flight for ever is kept until the comm's links are closed,
  // because peers may still read its memory.
  void bury(std::unique_ptr<Operation> operation);

 private:
  int waits_for(const Operation &operation) const;
  mxs_status round(bool first, bool *moved);
  void finish(Operation *operation, std::atomic<Operation *> *entry);
  void tell_start(Operation *operation) const;
  void tell_begin(const Operation &operation) const;

  mutable std::mutex mutex_;
  std::array<std::atomic<Operation *>, capacity> ring_{};
  std::atomic<uint64_t> first_{1}, next_{1};  // [first_, next_) may be in flight; a nullptr inside is complete
  std::atomic<int> message_count_{0}, polling_count_{0}, enqueuers_{0};
  std::atomic<uint64_t> moves_{0}, history_{0};
  std::array<Record, capacity> records_{};
  std::vector<std::unique_ptr<Operation>> buried_;
  Tracer *tracer_ = nullptr;
  const std::atomic<int> *phase_ = nullptr;
};

}  // namespace mxs
