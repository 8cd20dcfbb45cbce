// SPDX-License-Identifier: Apache-2.0
// A unit's gradients: they are opened in a slot of the pool and added, over all ranks, to the owners' fp32 sums.
//
//   EMPTY --gradient()--> OPEN --reduce--> REDUCING --> EMPTY
//           takes a slot                                gives it back, seen at the next call that needs to know
//                         --discard--> EMPTY
//
// The slot is unit mod gradient_slots, unless another unit has open gradients there; then the next one. A slot that is
// being reduced is waited for: in backward order it is the one that began first.
#include <cassert>
#include <cstring>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "device/host_memory.hpp"
#include "unit/device_unit.hpp"
#include "unit/pool.hpp"
#include "unit/replicas.hpp"
#include "unit/unit.hpp"

namespace mxs {

namespace {

uint64_t gradient_bytes(const Plan &plan, const UnitTensor &tensor) {
  return tensor.element_count * dtype_bytes(plan.tensors[static_cast<size_t>(tensor.tensor)].gradient_dtype);
}

}  // namespace

std::byte *Unit::gradients() const { return pool_->gradient_slot(gradient_slot_); }

mxs_status Unit::take_gradient_slot(DeviceStream stream) {
  if (gradient_slot_ >= 0) return MXS_OK;
  const int count = pool_->options.gradient_slots, preferred = index_ % count;
  for (int turn = 0; turn < count; turn++) {
    const int slot = (preferred + turn) % count;
    Unit *holder = pool_->gradient_holder(slot);
    if (holder && holder->gradients_state_ == MXS_OPEN) continue;
    mxs_status status = MXS_OK;
    if (device_) status = hand_over_gradient_slot(slot, holder, stream);
    else if (holder) status = holder->wait_reduce(0);
    if (status != MXS_OK) return status;
    pool_->take_gradient_slot(slot, this);
    gradient_slot_ = slot;
    if (canaries_) canaries_->gradients.fill(gradients());
    return MXS_OK;
  }
  return set_error(MXS_OVER_BUDGET,
                   "rank %d, unit %d: all %d gradient slots hold open gradients of other units; reduce one, or create "
                   "the units with more gradient_slots",
                   rank_, index_, count);
}

mxs_status Unit::open_gradient(int tensor, int flags, mxs_view *view) {
  mxs_status status = comm_->check();
  if (status != MXS_OK) return status;
  UnitTensor *found = nullptr;
  status = find_tensor(tensor, &found);
  if (status != MXS_OK) return status;
  const PlannedTensor &planned = plan().tensors[static_cast<size_t>(found->tensor)];
  if (planned.frozen())
    return set_error(MXS_INVALID_ARGUMENT, "unit %d, tensor %.200s is frozen and has no gradient", index_,
                     planned.name.c_str());
  status = end_reducing(stream_);
  if (status == MXS_OK) status = take_gradient_slot(stream_);
  if (status != MXS_OK) return status;
  std::byte *data = gradients() + found->gradient_offset;
  if (flags == MXS_ADD && !found->opened) status = zero(data, gradient_bytes(plan(), *found), stream_);
  if (status != MXS_OK) {
    if (gradients_state_ != MXS_OPEN) return_gradient_slot(stream_);
    return status;
  }
  found->opened = true;
  gradients_state_ = MXS_OPEN;
  fill_view(planned.shape, planned.gradient_dtype, data, found->element_count, found->tensor, view);
  return MXS_OK;
}

mxs_status Unit::set_gradient(int tensor, const mxs_view &view) {
  UnitTensor *found = nullptr;
  mxs_status status = find_tensor(tensor, &found);
  if (status != MXS_OK) return status;
  const PlannedTensor &planned = plan().tensors[static_cast<size_t>(found->tensor)];
  const uint64_t bytes = gradient_bytes(plan(), *found);
  if (view.dtype != planned.gradient_dtype)
    return set_error(MXS_INVALID_ARGUMENT, "tensor %.200s: the gradient given is %s, but its gradient dtype is %s",
                     planned.name.c_str(), mxs_dtype_name(view.dtype), mxs_dtype_name(planned.gradient_dtype));
  if (view.bytes != bytes || (bytes && !view.data))
    return set_error(MXS_INVALID_ARGUMENT, "tensor %.200s: the gradient given has %llu bytes at %p, but %llu are "
                     "needed",
                     planned.name.c_str(), static_cast<unsigned long long>(view.bytes), view.data,
                     static_cast<unsigned long long>(bytes));
  if (!device() && bytes) status = check_host_memory("view.data", view.data);
  if (status != MXS_OK) return status;
  mxs_view target = MXS_VIEW_INIT;
  status = open_gradient(tensor, MXS_WRITE, &target);
  if (status != MXS_OK) return status;
  return bytes ? copy_gradient(target.data, view) : MXS_OK;
}

mxs_status Unit::reduce(const mxs_call &call) {
  mxs_status status = comm_->check();
  if (status != MXS_OK) return status;
  if (gradients_state_ != MXS_OPEN)
    return set_error(MXS_NOT_OPEN,
                     "rank %d, unit %d: no gradient is open; a rank that has none calls mxs_unit_skip instead", rank_,
                     index_);
  status = look_at_gradients("mxs_unit_reduce");
  if (status != MXS_OK) return status;
  for (UnitTensor &tensor : tensors_) {
    const bool missing = !tensor.opened && tensor.gradient_offset != UINT64_MAX && tensor.element_count;
    if (missing) status = zero(gradients() + tensor.gradient_offset, gradient_bytes(plan(), tensor), call.stream);
    if (status != MXS_OK) return status;
  }
  return start_reduce(call);
}

mxs_status Unit::reduce_zeros(const mxs_call &call) {
  mxs_status status = comm_->check();
  if (status != MXS_OK) return status;
  if (gradients_state_ == MXS_OPEN)
    return set_error(MXS_HELD, "rank %d, unit %d: gradients are open; call mxs_unit_reduce instead of mxs_unit_skip",
                     rank_, index_);
  status = end_reducing(call.stream);
  if (status != MXS_OK) return status;
  if (groups_.empty()) {
    if (call.request_out) *call.request_out = 0;
    return MXS_OK;
  }
  status = take_gradient_slot(call.stream);
  if (status != MXS_OK) return status;
  status = zero(gradients(), planned().gradients.bytes, call.stream);
  if (status == MXS_OK) status = start_reduce(call);
  if (status != MXS_OK) return_gradient_slot(call.stream);
  return status;
}

// Local: what other ranks do is not known here.
void Unit::discard() {
  if (gradients_state_ != MXS_OPEN) return;
  for (UnitTensor &tensor : tensors_) tensor.opened = false;
  gradients_state_ = MXS_EMPTY;
  return_gradient_slot(stream_);
}

int Unit::first_missing() const {
  for (const UnitTensor &tensor : tensors_)
    if (!tensor.given && tensor.gradient_offset != UINT64_MAX && tensor.element_count) return tensor.tensor;
  return -1;
}

// What `stream` has written there is to be waited for by the next.
void Unit::return_gradient_slot(DeviceStream stream) {
  note_discard(stream);
  return_gradient_slot();
}

void Unit::return_gradient_slot() {
  if (gradient_slot_ >= 0) pool_->return_gradient_slot(gradient_slot_);
  gradient_slot_ = -1;
}

mxs_status Unit::start_group(GradientGroup *group, const mxs_call &call) {
  if (device_) return start_reduce_on_device(group, call);
  Operation *operation = nullptr;
  if (canaries_) watch_gradients(group);
  if (group->node) {
    const uint64_t target = replica_sum_ ? pool_->scratch_offset(gradient_slot_) : sums_offset_;
    group->node->prepare(pool_->gradient_slot_offset(gradient_slot_), target + group->sums_offset);
    operation = group->node.get();
  } else {
    std::byte *const target = replica_sum_ ? pool_->memory() + pool_->scratch_offset(gradient_slot_) : sums();
    group->messages->prepare(gradients(), target + group->sums_offset);
    operation = group->messages.get();
  }
  return comm_->queue.enqueue(operation, &group->request, call.priority);
}

// Enqueues the sums of all groups. From here on the slot belongs to them.
mxs_status Unit::start_reduce(const mxs_call &call) {
  for (GradientGroup &group : groups_) {
    const mxs_status status = start_group(&group, call);
    // With one of several groups started there is no way back.
    if (status != MXS_OK) return &group == &groups_.front() ? status : comm_->fail(status);
    count(MXS_REDUCE, group.bytes_out, group.bytes_in);
  }
  const mxs_status status = start_replica_sum(call.priority);
  if (status != MXS_OK) return comm_->fail(status);
  for (UnitTensor &tensor : tensors_) {
    tensor.given = tensor.given || tensor.opened;
    tensor.opened = false;
  }
  gradients_state_ = MXS_REDUCING;
  comm_->set_off();
  if (call.request_out) *call.request_out = replica_sum_     ? replica_request_
                                             : groups_.empty() ? 0
                                                               : groups_.back().request;
  return MXS_OK;
}

bool Unit::reduce_complete() const {
  for (const GradientGroup &group : groups_)
    if (!comm_->queue.complete(group.request)) return false;
  return !replica_sum_ || comm_->queue.complete(replica_request_);
}

// Before the next gradients: in CUDA memory `stream` waits for a reduce that is under way, and may then write into the
// same slot.
mxs_status Unit::end_reducing(DeviceStream stream) {
  if (gradients_state_ != MXS_REDUCING) return MXS_OK;
  if (!device_) return wait_reduce(0);
  const mxs_status status = order_after_reduce(stream);
  if (status == MXS_OK) gradients_state_ = MXS_EMPTY;
  return status;
}

mxs_status Unit::wait_reduce(const mxs_call &call) {
  return device_ && call.stream ? order_after_reduce(call.stream) : wait_reduce(call.timeout_ns);
}

mxs_status Unit::wait_reduce(uint64_t timeout_ns) {
  // On a device a reduce may be under way while gradients are open for the next.
  if (gradients_state_ != MXS_REDUCING && !device_) return MXS_OK;
  for (const GradientGroup &group : groups_) {
    const mxs_status status = comm_->wait(group.request, timeout_ns, MXS_REDUCE);
    if (status != MXS_OK) return status;
  }
  if (replica_sum_) {
    const mxs_status status = comm_->wait(replica_request_, timeout_ns, MXS_REDUCE);
    if (status != MXS_OK) return status;
  }
  if (gradients_state_ != MXS_REDUCING) return MXS_OK;
  gradients_state_ = MXS_EMPTY;
  return_gradient_slot();
  return MXS_OK;
}

}  // namespace mxs
