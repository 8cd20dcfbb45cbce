// SPDX-License-Identifier: Apache-2.0
// A unit's verbs in CUDA memory: they put work on streams, and let streams wait for each other.
//
// A call with a stream never waits for the device, but where DeviceOperation::start does.
#include <cstring>

#include "base/status.hpp"
#include "collective/comm.hpp"
#include "collective/device_comm.hpp"
#include "device/kernels.hpp"
#include "matrixshard/collective.h"
#include "unit/device_unit.hpp"
#include "unit/pool.hpp"
#include "unit/unit.hpp"

namespace mxs {

Device *Unit::device() const { return device_ ? &device_->device() : nullptr; }

mxs_status Unit::zero(void *target, uint64_t bytes, DeviceStream stream) {
  if (bytes == 0) return MXS_OK;
  if (device_) return device_->device().zero(target, bytes, stream);
  std::memset(target, 0, bytes);
  return MXS_OK;
}

// ---- weights ----

mxs_status Unit::start_gather_on_device(const mxs_call &call, uint64_t *request) {
  DeviceOperation *const gather = device_->gather();
  if (!gather) return MXS_OK;
  DeviceSlots &slots = device_->slots();
  DeviceUnit *const last_reader = takes_slot_ ? slots.last_reader(slot_) : device_.get();
  mxs_status status = device_->prepare_gather(call.stream, last_reader);
  if (status == MXS_OK) status = gather->start(nullptr, range_, call.stream, request);
  if (status != MXS_OK) return status;
  last_request_ = *request;
  device_->gather_has_begun();
  if (takes_slot_) slots.set_reader(slot_, device_.get());
  return MXS_OK;
}

mxs_status Unit::note_release(DeviceStream stream) {
  if (!device_) return MXS_OK;
  const mxs_status status = device_->release(stream);
  return status == MXS_OK && !stream ? device_->device().synchronize(nullptr) : status;
}

// The caller waits, until nothing on the device reads or writes range and shard.
mxs_status Unit::wait_for_device() {
  mxs_status status = last_request_ ? comm_->wait(last_request_, 0, MXS_GATHER) : MXS_OK;
  if (status == MXS_OK) status = device_->wait_for_readers();
  return status == MXS_OK ? device_->wait_for_writers() : status;
}

// Before the end. A reduce may be under way, for which only streams wait. After a failure the
// operations have been ended, and only the streams are waited for.
mxs_status Unit::leave_device() {
  mxs_status status = MXS_OK;
  for (const GradientGroup &group : groups_)
    if (status == MXS_OK && group.request && !comm_->failed()) status = comm_->wait(group.request, 0, MXS_REDUCE);
  if (!comm_->failed()) status = status == MXS_OK ? wait_for_device() : status;
  else status = device_->device().synchronize(device_->slots().comm().stream());
  return status == MXS_OK ? device_->wait_for_readers() : status;
}

// Not in a step: the caller has just written masters, and waits for the weights.
mxs_status Unit::round_masters(const OwnedPlacement &owned) {
  mxs_status status = wait_for_device();
  if (status != MXS_OK || !owned.master) return status;
  Device &device = device_->device();
  status = device.kernels().narrow(owned.weights, owned.dtype, static_cast<const float *>(owned.master),
                                   owned.element_count, nullptr);
  return status == MXS_OK ? device.synchronize(nullptr) : status;
}

// ---- gradients ----

// On stream_. Memory of the host is the caller's again on return.
mxs_status Unit::copy_gradient(void *target, const mxs_view &view) {
  if (!device_) {
    std::memmove(target, view.data, view.bytes);
    return MXS_OK;
  }
  Device &device = device_->device();
  PointerInfo pointer;
  mxs_status status = MXS_OK;
  if (const DeviceLibrary *library = loaded_device_library()) status = library->pointer(view.data, &pointer);
  if (status == MXS_OK) status = device.copy(target, view.data, view.bytes, stream_);
  return status == MXS_OK && pointer.kind != PointerKind::device ? device.synchronize(stream_) : status;
}

mxs_status Unit::start_reduce_on_device(GradientGroup *group, const mxs_call &call) {
  const mxs_status status = device_->prepare_reduce();
  if (status != MXS_OK) return status;
  return group->on_device->start(gradients(), sums() + group->sums_offset, call.stream, &group->request);
}

mxs_status Unit::order_after_reduce(DeviceStream stream) {
  for (GradientGroup &group : groups_) {
    const mxs_status status = group.request ? group.on_device->wait_stream(stream) : MXS_OK;
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

// holder: nullptr, or a unit whose reduce reads the slot.
mxs_status Unit::hand_over_gradient_slot(int slot, Unit *holder, DeviceStream stream) {
  StreamPoint &discarded = device_->slots().discarded(slot);
  mxs_status status = discarded.hold_back(stream);
  if (status == MXS_OK && holder) status = holder->order_after_reduce(stream);
  if (status != MXS_OK) return status;
  discarded.clear();
  if (holder) holder->gradient_slot_ = -1;
  return MXS_OK;
}

// The slot goes back while `stream` may still write into it. A failure shows in the next call on the stream.
void Unit::note_discard(DeviceStream stream) {
  if (device_ && gradient_slot_ >= 0) device_->slots().discarded(gradient_slot_).record(stream);
}

mxs_status Unit::wait_for_sums() {
  const mxs_status status = wait_reduce(0);
  return status == MXS_OK ? device_->wait_for_writers() : status;
}

// ---- the step ----

// What is outside a capture can't be waited for inside it, nor the other way round: a graph's launches are ordered by
// their stream.
mxs_status Unit::wait_reduce_stream(DeviceStream stream) {
  mxs_status status = comm_->check();
  bool captured = false;
  if (status == MXS_OK) status = device_->device().is_capturing(stream, &captured);
  return status == MXS_OK && !captured ? order_after_reduce(stream) : status;
}

mxs_status Unit::end_views_stream(DeviceStream stream) {
  end_views();
  bool captured = false;
  const mxs_status status = device_->device().is_capturing(stream, &captured);
  return status == MXS_OK && !captured ? device_->order_after_readers(stream) : status;
}

mxs_status Unit::finish_step(bool changed, DeviceStream stream) {
  const mxs_status status = clear_sums(stream);
  if (changed) generation_++;
  return status;
}

mxs_status Unit::clear_sums(DeviceStream stream) {
  mxs_status status = zero(sums(), sums_bytes_, stream);
  for (UnitTensor &tensor : tensors_) tensor.given = false;
  bool captured = false;
  if (status == MXS_OK) status = device_->device().is_capturing(stream, &captured);
  return status == MXS_OK && !captured ? device_->written(stream) : status;
}

}  // namespace mxs
