// SPDX-License-Identifier: Apache-2.0
// The queue of operations: who begins when, and who has finished.
#include "collective/operation.hpp"

#include "base/status.hpp"

namespace mxs {

mxs_status OperationQueue::enqueue(Operation *operation, uint64_t *sequence) {
  const std::lock_guard lock(mutex_);
  const uint64_t next = next_.load(std::memory_order_relaxed);
  if (operation->in_flight())
    return set_error(MXS_HELD, "this %s is still in flight (operation %llu); wait for it before it is started again",
                     operation->name(), static_cast<unsigned long long>(operation->sequence_));
  if (next - first_.load(std::memory_order_relaxed) >= capacity)
    return set_error(MXS_OVER_BUDGET, "%d operations are in flight on this comm already; wait for one first", capacity);
  operation->sequence_ = next;
  operation->begun_ = false;
  if (!operation->uses_messages()) {
    const mxs_status status = operation->begin(next);
    if (status != MXS_OK) return status;
    operation->begun_ = true;
  } else {
    message_count_.fetch_add(1, std::memory_order_relaxed);
  }
  operation->in_flight_.store(true, std::memory_order_relaxed);
  ring_[next % capacity].store(operation, std::memory_order_release);
  next_.store(next + 1, std::memory_order_release);
  *sequence = next;
  return MXS_OK;
}

// Messages: the oldest such operation only; when it completes, the next one begins in the same pass.
mxs_status OperationQueue::advance() {
  const std::lock_guard lock(mutex_);
  bool messages_wait = false;
  uint64_t first = first_.load(std::memory_order_relaxed);
  const uint64_t next = next_.load(std::memory_order_relaxed);
  for (uint64_t sequence = first; sequence < next; ++sequence) {
    std::atomic<Operation *> &entry = ring_[sequence % capacity];
    Operation *operation = entry.load(std::memory_order_relaxed);
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
      if (operation->uses_messages()) message_count_.fetch_sub(1, std::memory_order_relaxed);
      // From here on it may be destroyed or started again; the entry is what a wait in another thread looks at, so
      // that whoever has waited finds it no longer in flight.
      operation->in_flight_.store(false, std::memory_order_release);
      entry.store(nullptr, std::memory_order_release);
    } else if (operation->uses_messages()) {
      messages_wait = true;
    }
  }
  while (first < next && !ring_[first % capacity].load(std::memory_order_relaxed)) ++first;
  first_.store(first, std::memory_order_release);
  return MXS_OK;
}

bool OperationQueue::complete(uint64_t sequence) const {
  if (sequence < first_.load(std::memory_order_acquire)) return true;
  return sequence < next_.load(std::memory_order_acquire) && find(sequence) == nullptr;
}

// The slot may have gone to a later operation since the caller looked: that one's number tells.
Operation *OperationQueue::find(uint64_t sequence) const {
  if (sequence >= next_.load(std::memory_order_acquire)) return nullptr;
  Operation *operation = ring_[sequence % capacity].load(std::memory_order_acquire);
  return sequence < first_.load(std::memory_order_acquire) ? nullptr : operation;
}

OperationQueue::Description OperationQueue::describe(uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  Description description;
  if (const Operation *operation = find(sequence))
    description = {operation->name(), operation->kind(), operation->waits_for()};
  return description;
}

void OperationQueue::bury(std::unique_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  for (std::atomic<Operation *> &entry : ring_)
    if (entry.load(std::memory_order_relaxed) == operation.get()) entry.store(nullptr, std::memory_order_release);
  buried_.push_back(std::move(operation));
}

}  // namespace mxs
