// SPDX-License-Identifier: Apache-2.0
// The queue of operations: who begins when, and who has finished.
#include "collective/operation.hpp"

#include <algorithm>

#include "base/status.hpp"
#include "matrixshard/comm.h"
#include "trace/tracer.hpp"
#include "transport/transport.hpp"

namespace mxs {

static_assert(agreement_lane == collective_lanes && lane_count == collective_lanes + 1);

mxs_status OperationQueue::enqueue(Operation *operation, uint64_t *sequence, int priority) {
  enqueuers_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  enqueuers_.fetch_sub(1, std::memory_order_relaxed);
  const uint64_t next = next_.load(std::memory_order_relaxed);
  if (operation->in_flight())
    return set_error(MXS_HELD, "this %s is still in flight (operation %llu); wait for it before it is started again",
                     operation->name(), static_cast<unsigned long long>(operation->sequence_));
  if (next - first_.load(std::memory_order_relaxed) >= capacity)
    return set_error(MXS_OVER_BUDGET, "%d operations are in flight on this comm already; wait for one first", capacity);
  operation->sequence_ = next;
  operation->begun_ = false;
  operation->priority_ = priority;
  operation->lane_ = operation->kind() == MXS_AGREE ? agreement_lane : static_cast<int>(next % collective_lanes);
  if (!operation->uses_messages()) {
    const mxs_status status = operation->begin(next);
    if (status != MXS_OK) return status;
    operation->begun_ = true;
  } else {
    message_count_.fetch_add(1, std::memory_order_relaxed);
  }
  if (operation->polls()) polling_count_.fetch_add(1, std::memory_order_relaxed);
  operation->in_flight_.store(true, std::memory_order_relaxed);
  const uint64_t signature = operation->signature();
  records_[next % capacity] = {next, operation->kind(), signature};
  operation->ticket_ = 0;
  if (tracer_) tell_start(operation);
  const uint64_t what = signature ^ static_cast<uint64_t>(operation->kind());
  const uint64_t history = history_.load(std::memory_order_relaxed) ^ what;
  history_.store((history + 1) * 0x9e3779b97f4a7c15u, std::memory_order_relaxed);
  ring_[next % capacity].store(operation, std::memory_order_release);
  next_.store(next + 1, std::memory_order_release);
  *sequence = next;
  return MXS_OK;
}

mxs_status OperationQueue::advance(bool *more) {
  constexpr int rounds_max = 16;
  const std::lock_guard lock(mutex_);
  bool moved = true;
  for (int number = 0; moved && number < rounds_max && (number == 0 || !wanted()); ++number) {
    moved = false;
    const mxs_status status = round(number == 0, &moved);
    if (status != MXS_OK) return status;
    if (moved) moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  if (more) *more = moved;
  uint64_t first = first_.load(std::memory_order_relaxed);
  const uint64_t next = next_.load(std::memory_order_relaxed);
  while (first < next && !ring_[first % capacity].load(std::memory_order_relaxed)) ++first;
  if (tracer_ && first != first_.load(std::memory_order_relaxed)) tracer_->note_complete(first - 1);
  first_.store(first, std::memory_order_release);
  return MXS_OK;
}

// ---- in the trace ----

void OperationQueue::tell_start(Operation *operation) const {
  tracer_->note_start(operation->sequence_);
  operation->delayed_ = false;
  const Operation::Label &label = operation->label_;
  if (!label.told) return;
  TraceEvent event;
  event.kind = operation->kind() == MXS_AGREE ? MXS_EVENT_AGREEMENT : MXS_EVENT_OPERATION;
  event.name = tracer_->name(operation->name());
  event.algorithm = label.algorithm;
  event.phase = phase_->load(std::memory_order_relaxed);
  event.unit = label.unit;
  event.sequence = operation->sequence_;
  event.bytes_out = label.bytes_out;
  event.bytes_in = label.bytes_in;
  operation->ticket_ = tracer_->begin(event);
  if (event.kind == MXS_EVENT_AGREEMENT) tracer_->note_agreement(operation->sequence_);
}

// Only where it had to wait for its turn.
void OperationQueue::tell_begin(const Operation &operation) const {
  if (operation.delayed_) tracer_->mark("begun", operation.sequence_, phase_->load(std::memory_order_relaxed));
}

// Those that work in shared memory have one turn in a pass, which is a chunk; those below one that has just done a
// chunk have none.
mxs_status OperationQueue::round(bool first, bool *moved) {
  std::array<std::atomic<Operation *> *, capacity> active;
  size_t count = 0;
  bool lane_taken[lane_count] = {};
  const uint64_t next = next_.load(std::memory_order_relaxed);
  for (uint64_t sequence = first_.load(std::memory_order_relaxed); sequence < next; ++sequence) {
    std::atomic<Operation *> &entry = ring_[sequence % capacity];
    Operation *operation = entry.load(std::memory_order_relaxed);
    if (!operation) continue;
    if (operation->uses_messages()) {
      bool &taken = lane_taken[operation->lane_];
      if (taken) {
        operation->delayed_ = true;
        continue;
      }
      taken = true;
    } else if (!first) {
      continue;
    }
    if (!operation->begun_) {
      if (operation->gate_ && !operation->gate_()) {
        operation->delayed_ = true;
        continue;
      }
      const mxs_status status = operation->begin(sequence);
      if (status != MXS_OK) return status;
      operation->begun_ = true;
      if (tracer_) tell_begin(*operation);
    }
    size_t place = count++;
    for (; place > 0 && active[place - 1]->load(std::memory_order_relaxed)->priority_ < operation->priority_; --place)
      active[place] = active[place - 1];
    active[place] = &entry;
  }
  // Of those with a higher priority than the one that is looked at.
  constexpr int64_t none = int64_t{1} << 40;
  int64_t sender = none, worker = none;
  for (size_t i = 0; i < count; ++i) {
    Operation *operation = active[i]->load(std::memory_order_relaxed);
    if (!operation->uses_messages() && worker > operation->priority_ && worker != none) continue;
    Turn turn;
    turn.yields = sender != none && sender > operation->priority_;
    const mxs_status status = operation->advance(&turn);
    if (status != MXS_OK) return status;
    if (operation->uses_messages()) {
      *moved |= turn.moved || turn.complete;  // complete: the next one on its lane may begin
      if (sender == none && !turn.complete && operation->has_more_to_send()) sender = operation->priority_;
    } else if (worker == none && turn.moved) {
      worker = operation->priority_;
    }
    if (turn.complete && operation->end_) {
      const mxs_status ended = operation->end_();
      if (ended != MXS_OK) return ended;
    }
    if (turn.complete) finish(operation, active[i]);
  }
  return MXS_OK;
}

// From here on it may be destroyed or started again; the entry is what a wait in another thread looks at, so that
// whoever has waited finds it no longer in flight.
void OperationQueue::finish(Operation *operation, std::atomic<Operation *> *entry) {
  if (tracer_) tracer_->end(operation->ticket_);
  if (operation->uses_messages()) message_count_.fetch_sub(1, std::memory_order_relaxed);
  if (operation->polls()) polling_count_.fetch_sub(1, std::memory_order_relaxed);
  operation->in_flight_.store(false, std::memory_order_release);
  entry->store(nullptr, std::memory_order_release);
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
    description = {operation->name(), operation->kind(), waits_for(*operation), operation->label().unit};
  return description;
}

// Of one that has not begun: what the one waits for that is in its way. Of itself it knows its last start only.
int OperationQueue::waits_for(const Operation &operation) const {
  if (operation.begun_) return operation.waits_for();
  for (uint64_t sequence = first_.load(std::memory_order_relaxed); sequence < operation.sequence_; ++sequence) {
    const Operation *before = ring_[sequence % capacity].load(std::memory_order_relaxed);
    if (before && before->begun_ && before->uses_messages() && before->lane_ == operation.lane_)
      return before->waits_for();
  }
  return -1;
}

OperationQueue::Record OperationQueue::record(uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const Record &found = records_[sequence % capacity];
  return found.sequence == sequence ? found : Record{};
}

void OperationQueue::bury(std::unique_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  for (std::atomic<Operation *> &entry : ring_)
    if (entry.load(std::memory_order_relaxed) == operation.get()) entry.store(nullptr, std::memory_order_release);
  buried_.push_back(std::move(operation));
}

}  // namespace mxs
