// SPDX-License-Identifier: Apache-2.0
// A unit's end: refused while somebody holds it or bytes are on their way, unless the comm has failed.
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "unit/device_unit.hpp"
#include "unit/pool.hpp"
#include "unit/replicas.hpp"
#include "unit/unit.hpp"

namespace mxs {

Unit::~Unit() {
  comm_->children.fetch_sub(1);
  if (!replicas_) return;
  replicas_->children.fetch_sub(1);
  replicas_->untie_from(*comm_);
}

mxs_status destroy_unit(Unit **handle) {
  Unit *unit = *handle;
  if (!unit) return MXS_OK;
  Comm &comm = *unit->comm_;
  mxs_status status = comm.check();
  if (status == MXS_FORKED) return status;
  if (unit->attached_)
    return set_error(MXS_HELD, "unit %d is part of an optimizer; destroy that first", unit->index_);
  if (!comm.failed()) {
    status = unit->check_idle("mxs_unit_destroy");
    if (status != MXS_OK) return status;
    // In CUDA memory it is for a stream to wait for a reduce: its end is waited for below.
    if (unit->gradients_state_ == MXS_REDUCING && !unit->device_ && !unit->reduce_complete()) {
      status = comm.progress();
      if (status == MXS_OK && !unit->reduce_complete())
        return set_error(MXS_HELD, "rank %d, unit %d: a reduce is in flight; call mxs_unit_wait_reduce first",
                         unit->rank_, unit->index_);
    }
  }
  if (unit->device_) {
    status = unit->leave_device();
    if (status != MXS_OK && !comm.failed()) return status;
  }
  if (unit->takes_slot_ && unit->weights_state_ != MXS_SHARDED) unit->pool_->return_slot(unit->slot_);
  unit->return_gradient_slot();
  // What a failure left in flight must not be advanced any more, nor its scratch memory go while peers may read it.
  const auto bury = [&](auto &operation) {
    if (operation && operation->in_flight()) comm.queue.bury(std::move(operation));
  };
  bury(unit->node_gather_);
  bury(unit->message_gather_);
  for (GradientGroup &group : unit->groups_) {
    bury(group.node);
    bury(group.messages);
  }
  if (unit->replica_sum_) unit->replica_sum_->bury();
  bury(unit->replica_sum_);
  delete unit;
  *handle = nullptr;
  return MXS_OK;
}

}  // namespace mxs
