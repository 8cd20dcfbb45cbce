// SPDX-License-Identifier: Apache-2.0
// A unit's weights: gather, wait, release, and the slot rules.
//
//   by copy        gather takes a slot and starts an operation that fills it; the range shows the slot. A unit that has
//                  its own fills its file's holes
//   by reference   gather posts a counter; wait looks whether every owner has posted as many. An owner posts after its
//                  step or commit, in program order, so whoever sees the post sees the weights
//
// A unit's slot is the one that its range is mapped onto; at create that is unit mod slots. If another unit holds it,
// the first free one after it is taken and the range is mapped anew, which stays so: the slow path, counted.
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "unit/device_unit.hpp"
#include "unit/pool.hpp"
#include "unit/unit.hpp"

namespace mxs {

mxs_status Unit::gather(const mxs_call &call) {
  const mxs_status failed = comm_->check();
  if (failed != MXS_OK) return failed;
  uint64_t request = 0;
  if (weights_state_ == MXS_SHARDED) {
    mxs_status status = take_slot();
    if (status != MXS_OK) return status;
    if (debug_views_) protect(true);
    if (canaries_) canaries_->foreign.fill(range_);
    status = start_gather(call, &request);
    if (status != MXS_OK) {
      let_go();
      return status;
    }
    gather_request_ = request;
    weights_state_ = MXS_GATHERING;
  } else if (weights_state_ == MXS_PINNED) {
    weights_state_ = MXS_WHOLE;
  } else if (weights_state_ == MXS_GATHERING) {
    request = gather_request_;
  }
  holders_++;
  if (call.request_out) *call.request_out = request;
  return MXS_OK;
}

mxs_status Unit::take_slot() {
  if (!takes_slot_) return device_ ? device_->show(slot_) : MXS_OK;
  const int slot = pool_->free_slot(slot_);
  if (slot != slot_ && device_ && !device_->can_hide() && slot >= 0)
    return set_error(MXS_OVER_BUDGET,
                     "rank %d, unit %d: its slot, %d, is held by a unit that is gathered or pinned, and without mapped "
                     "memory the unit can't have another; release that one, or create the units with more slots. "
                     "Nothing was sent",
                     rank_, index_, slot_);
  if (slot < 0)
    return set_error(MXS_OVER_BUDGET,
                     "rank %d, unit %d: all %d slots are held by units that are gathered or pinned; release one, or "
                     "create the units with more slots. Nothing was sent",
                     rank_, index_, pool_->options.slots);
  if (slot != slot_ || (device_ && device_->shown() != slot)) {
    const bool moves = slot != slot_;
    const mxs_status status = map_slot(slot);
    // Part of the range may show one slot and part another: nothing that follows could be trusted. On a device it
    // shows none then, and the next gather maps it.
    if (status != MXS_OK) return device_ ? status : comm_->fail(status);
    if (moves) comm_->slot_remaps.fetch_add(1, std::memory_order_relaxed);
  }
  pool_->take_slot(slot, this);
  return MXS_OK;
}

// The range keeps its address; the pages behind the others' part of it change.
mxs_status Unit::map_slot(int slot) {
  if (device_) {
    mxs_status status = wait_for_device();
    if (status == MXS_OK) status = device_->show(slot);
    if (status == MXS_OK) slot_ = slot;
    return status;
  }
  for (const Extent &extent : other_extents_) {
    const mxs_status status = map_over(range_ + extent.offset, pool_->descriptor(),
                                       pool_->slot_offset(slot) + extent.offset, extent.bytes, true);
    if (status != MXS_OK) return status;
  }
  slot_ = slot;
  return MXS_OK;
}

mxs_status Unit::start_gather(const mxs_call &call, uint64_t *request) {
  mxs_status status = MXS_OK;
  if (device_) {
    status = start_gather_on_device(call, request);
  } else if (by_reference_) {
    note_reference();
    SharedCounter &mine = pool_->gathers(comm_->local_place(), index_);
    gathers_ = mine.value.load(std::memory_order_relaxed) + 1;
    mine.value.store(gathers_, std::memory_order_release);
    if (comm_->domain) comm_->domain->post();
  } else if (node_gather_) {
    if (canaries_) gather_watch_.begin();
    node_gather_->prepare(0, own_slot_ ? 0 : pool_->slot_offset(slot_));
    status = comm_->queue.enqueue(node_gather_.get(), request, call.priority);
  } else if (message_gather_) {
    if (canaries_) gather_watch_.begin();
    message_gather_->prepare(nullptr, range_);
    status = comm_->queue.enqueue(message_gather_.get(), request, call.priority);
  }
  if (status != MXS_OK) return status;
  count(MXS_GATHER, gather_bytes_out_, gather_bytes_in_);
  if (*request) comm_->set_off();
  return MXS_OK;
}

// What it has in common with other ranks' gathers, should one of them be amiss.
void Unit::note_reference() {
  Comm::References &all = comm_->references;
  reference_ = all.count.load(std::memory_order_relaxed) + 1;
  reference_at_ = comm_->queue.last();
  reference_agreements_ = comm_->agreements_come_to();
  all.units[reference_ % Comm::References::kept].store(index_, std::memory_order_relaxed);
  all.count.store(reference_, std::memory_order_release);
}

// A local rank that owns bytes and has not begun this gather yet, -1 if none.
int Unit::missing_owner() const {
  for (const int place : owner_places_)
    if (pool_->gathers(place, index_).value.load(std::memory_order_acquire) < gathers_) return place;
  return -1;
}

mxs_status Unit::wait_gather(const mxs_call &call) {
  return device_ && call.stream ? device_->order_after_gather(call.stream) : wait_gather(call.timeout_ns);
}

// Peers may need this rank's part in operations that are in flight, so it makes progress while it waits.
mxs_status Unit::wait_gather(uint64_t timeout_ns) {
  if (!by_reference_) return gather_request_ ? comm_->wait(gather_request_, timeout_ns, MXS_GATHER) : MXS_OK;
  if (missing_owner() < 0) return MXS_OK;
  const Domain &domain = *comm_->domain;
  const Comm::Inside inside(*comm_);
  Comm::Wait turn = comm_->begin_wait(timeout_ns);
  Comm::References &told = comm_->references;
  told.at.store(reference_at_, std::memory_order_relaxed);
  told.agreements.store(reference_agreements_, std::memory_order_relaxed);
  told.unit.store(index_, std::memory_order_relaxed);
  told.number.store(reference_, std::memory_order_release);
  turn.unit = index_;
  mxs_status status = MXS_OK;
  while (status == MXS_OK) {
    comm_->look(&turn);
    int owner = missing_owner();
    if (owner < 0) break;
    status = comm_->progress();
    owner = missing_owner();
    if (owner < 0 || status != MXS_OK) break;
    status = comm_->pause(&turn, domain.ranks()[static_cast<size_t>(owner)], "gather by reference");
  }
  told.number.store(0, std::memory_order_release);
  comm_->counter(MXS_GATHER).wait_ns.fetch_add(now_ns() - turn.begin_ns, std::memory_order_relaxed);
  return status;
}

mxs_status Unit::wait(const mxs_call &call) {
  const mxs_status failed = comm_->check();
  if (failed != MXS_OK) return failed;
  if (holders_ == 0)
    return set_error(MXS_NOT_GATHERED, "rank %d, unit %d: no gather is open; call mxs_unit_gather first", rank_,
                     index_);
  // Each stream that waits is to wait, also behind one that did so before.
  if (weights_state_ == MXS_WHOLE && !device_) return MXS_OK;
  const mxs_status status = wait_gather(call);
  if (status != MXS_OK) return status;
  stream_ = call.stream;
  weights_state_ = MXS_WHOLE;
  return MXS_OK;
}

mxs_status Unit::tensor(int tensor, mxs_view *view) {
  UnitTensor *found = nullptr;
  const mxs_status status = find_tensor(tensor, &found);
  if (status != MXS_OK) return status;
  if (holders_ == 0 || weights_state_ != MXS_WHOLE)
    return set_error(MXS_NOT_GATHERED, "rank %d, unit %d is not whole: %s", rank_, index_,
                     holders_ == 0 ? "call mxs_unit_gather and mxs_unit_wait" : "call mxs_unit_wait");
  const PlannedTensor &planned = plan().tensors[static_cast<size_t>(found->tensor)];
  fill_view(planned.shape, planned.dtype, range_ + found->weight_offset, found->element_count, found->tensor, view);
  return MXS_OK;
}

// AUTO: units from the back, as many as there are slots beyond the two that the others take turns in. A range in the
// caller's memory and one with an own slot need none of these, so keeping them costs nothing.
bool Unit::pins(int mode) const {
  if (mode != MXS_AUTO) return mode == MXS_PIN;
  if (by_reference_) return false;
  if (!takes_slot_) return true;
  return index_ >= static_cast<int>(plan().units.size()) - (pool_->options.slots - 2);
}

mxs_status Unit::release(int mode, const mxs_call &call) {
  const mxs_status failed = comm_->check();
  if (failed != MXS_OK) return failed;
  if (holders_ == 0) {
    if (weights_state_ != MXS_PINNED || mode != MXS_FREE)
      return set_error(MXS_NOT_GATHERED, "rank %d, unit %d: one release too many; each gather is paired with one",
                       rank_, index_);
    let_go();
    return MXS_OK;
  }
  if (holders_ == 1) {
    // Released without a wait: peers still write into the slot, so it can't go to the next unit yet.
    if (weights_state_ == MXS_GATHERING && (!by_reference_ || pins(mode))) {
      const mxs_status status = wait_gather(call);
      if (status != MXS_OK) return status;
      weights_state_ = MXS_WHOLE;
    }
  }
  if (holders_ == 1) {
    const mxs_status looked = look_at_weights("mxs_unit_release");
    if (looked != MXS_OK) return looked;
  }
  const mxs_status noted = note_release(call.stream);
  if (noted != MXS_OK) return noted;
  if (holders_ == 1) {
    if (pins(mode))
      weights_state_ = MXS_PINNED;
    else
      let_go();
  }
  holders_--;
  return MXS_OK;
}

void Unit::let_go() {
  if (takes_slot_) pool_->return_slot(slot_);
  weights_state_ = MXS_SHARDED;
  gather_request_ = 0;
  if (debug_views_) protect(false);
}

// MXS_DEBUG_VIEWS=1: a read through a view that was released faults, instead of showing another unit's bytes.
void Unit::protect(bool readable) {
  if (device_) {
    if (!readable && wait_for_device() == MXS_OK) device_->hide();
    return;
  }
  const int access = !readable ? PROT_NONE : by_reference_ ? PROT_READ : PROT_READ | PROT_WRITE;
  for (const Extent &extent : other_extents_) mprotect(range_ + extent.offset, extent.bytes, access);
}

}  // namespace mxs
