// SPDX-License-Identifier: Apache-2.0
#include "unit/replicas.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "collective/choice.hpp"
#include "matrixshard/collective.h"
#include "unit/pool.hpp"
#include "unit/unit.hpp"

namespace mxs {

namespace {

constexpr uint64_t peers_period_ns = 50'000'000;  // between two looks at peers, as in a wait

// Parts of whole cache lines, in rank order.
Layout even_layout(uint64_t bytes, int rank_count) {
  constexpr uint64_t line_bytes = 64;
  Layout layout;
  layout.rank_count = rank_count;
  layout.alignment = line_bytes;
  layout.bytes = bytes;
  const uint64_t lines = (bytes + line_bytes - 1) / line_bytes, count = static_cast<uint64_t>(rank_count);
  for (uint64_t rank = 0; rank < count; ++rank) {
    const uint64_t begin = std::min(bytes, lines * rank / count * line_bytes);
    const uint64_t end = std::min(bytes, lines * (rank + 1) / count * line_bytes);
    if (begin < end) layout.segments.push_back({static_cast<int>(rank), begin, end - begin});
  }
  return layout;
}

mxs_status make_operation(std::unique_ptr<MessageOperation> *operation, Comm &replicas, MessageOptions options) {
  Choice choice;
  const mxs_status status = choose_messages(replicas.topology, options, nullptr, &choice);
  if (status != MXS_OK) return status;
  apply(choice, &options);
  return make_message_operation(operation, replicas, options);
}

}  // namespace

int ReplicaSum::kind() const { return MXS_REDUCE; }

mxs_status ReplicaSum::make(uint64_t bytes, bool rank_order, uint64_t identity, std::function<bool()> ready) {
  bytes_ = bytes;
  if (bytes == 0) return MXS_OK;
  layout_ = even_layout(bytes, replicas_.rank_count);
  for (const Segment &segment : layout_.segments)
    if (segment.owner == replicas_.rank) own_offset_ = segment.offset;
  MessageOptions options;
  options.kind = MXS_REDUCE;
  options.layout = &layout_;
  options.rank_order = rank_order;
  options.accumulate = true;
  mxs_status status = make_operation(&reduce_, replicas_, options);
  if (status != MXS_OK) return status;
  options = MessageOptions();
  options.kind = MXS_GATHER;
  options.layout = &layout_;
  status = make_operation(&gather_, replicas_, options);
  if (status != MXS_OK) return status;
  reduce_->set_identity(identity);
  gather_->set_identity(identity);
  reduce_->set_gate(std::move(ready));
  gather_->set_gate([this] { return replicas_.queue.complete(reduce_request_); });
  return MXS_OK;
}

mxs_status ReplicaSum::start(const std::byte *scratch, std::byte *sums, int priority) {
  if (bytes_ == 0) return MXS_OK;
  reduce_->prepare(scratch, sums + own_offset_);
  gather_->prepare(nullptr, sums);
  mxs_status status = replicas_.queue.enqueue(reduce_.get(), &reduce_request_, priority);
  if (status == MXS_OK) status = replicas_.queue.enqueue(gather_.get(), &gather_request_, priority);
  if (status == MXS_OK) replicas_.set_off();
  return status;
}

// Peers in other replicas are looked at here, because nobody waits for them by their own comm.
mxs_status ReplicaSum::advance(Turn *turn) {
  if (bytes_ == 0) {
    turn->complete = true;
    return MXS_OK;
  }
  mxs_status status = replicas_.progress();
  turn->complete = replicas_.queue.complete(gather_request_);
  if (turn->complete) return MXS_OK;
  if (status != MXS_OK) return status;
  const uint64_t now = now_ns();
  if (now < peers_seen_ns_ + peers_period_ns) return MXS_OK;
  peers_seen_ns_ = now;
  return replicas_.look_at_peers();
}

void ReplicaSum::bury() {
  for (std::unique_ptr<MessageOperation> *operation : {&reduce_, &gather_})
    if (*operation && (*operation)->in_flight()) replicas_.queue.bury(std::move(*operation));
}

mxs_status Unit::start_replica_sum(int priority) {
  if (!replica_sum_) return MXS_OK;
  const mxs_status status =
      replica_sum_->start(pool_->memory() + pool_->scratch_offset(gradient_slot_), sums(), priority);
  return status == MXS_OK ? comm_->queue.enqueue(replica_sum_.get(), &replica_request_, priority) : status;
}

}  // namespace mxs
