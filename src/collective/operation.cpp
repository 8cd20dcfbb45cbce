// SPDX-License-Identifier: Apache-2.0
// The queue of operations: who begins when, and who has finished.
#include "collective/operation.hpp"

#include "base/status.hpp"

namespace mxs {

mxs_status OperationQueue::enqueue(Operation *operation, uint64_t *sequence) {
  if (operation->in_flight_)
    return set_error(MXS_HELD, "this %s is still in flight (operation %llu); wait for it before it is started again",
                     operation->name(), static_cast<unsigned long long>(operation->sequence_));
  if (next_ - first_ >= capacity)
    return set_error(MXS_OVER_BUDGET, "%d operations are in flight on this comm already; wait for one first", capacity);
  operation->sequence_ = next_;
  operation->begun_ = false;
  if (!operation->uses_messages()) {
    const mxs_status status = operation->begin(next_);
    if (status != MXS_OK) return status;
    operation->begun_ = true;
  }
  operation->in_flight_ = true;
  ring_[next_ % capacity] = operation;
  *sequence = next_++;
  return MXS_OK;
}

// Messages: the oldest such operation only; when it completes, the next one begins in the same pass.
mxs_status OperationQueue::advance() {
  bool messages_wait = false;
  for (uint64_t sequence = first_; sequence < next_; ++sequence) {
    Operation *&operation = ring_[sequence % capacity];
    if (!operation || (messages_wait && operation->uses_messages())) continue;
    if (!operation->begun_) {
      const mxs_status status = operation->begin(sequence);
      if (status != MXS_OK) return status;
      operation->begun_ = true;
    }
    bool complete = false;
    const mxs_status status = operation->advance(&complete);
    if (status != MXS_OK) return status;
    if (complete) {
      operation->in_flight_ = false;
      operation = nullptr;
    } else if (operation->uses_messages()) {
      messages_wait = true;
    }
  }
  while (first_ < next_ && !ring_[first_ % capacity]) ++first_;
  return MXS_OK;
}

bool OperationQueue::complete(uint64_t sequence) const {
  return sequence < first_ || (sequence < next_ && !ring_[sequence % capacity]);
}

Operation *OperationQueue::find(uint64_t sequence) const {
  return sequence < first_ || sequence >= next_ ? nullptr : ring_[sequence % capacity];
}

void OperationQueue::bury(std::unique_ptr<Operation> operation) {
  for (Operation *&entry : ring_)
    if (entry == operation.get()) entry = nullptr;
  buried_.push_back(std::move(operation));
}

}  // namespace mxs
