// SPDX-License-Identifier: Apache-2.0
// The owner's pieces: views of masters and sums, commit, and the optimizer's side of a unit.
#include <algorithm>
#include <cstring>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "kernels/kernels.hpp"
#include "unit/pool.hpp"
#include "unit/unit.hpp"

namespace mxs {

namespace {

void *master_of(const OwnedPlacement &owned) { return owned.master ? owned.master : owned.weights; }

}  // namespace

mxs_status Unit::find_owned(uint64_t placement, const OwnedPlacement **found) const {
  const std::vector<Placement> &placements = plan().placements;
  if (placement >= placements.size())
    return set_error(MXS_INVALID_ARGUMENT, "placement is %llu, but the plan has %zu",
                     static_cast<unsigned long long>(placement), placements.size());
  if (placements[placement].unit != index_)
    return set_error(MXS_NOT_FOUND, "placement %llu (tensor %.200s) is in unit %d, not in unit %d",
                     static_cast<unsigned long long>(placement),
                     plan().tensors[static_cast<size_t>(placements[placement].tensor)].name.c_str(),
                     placements[placement].unit, index_);
  const auto same = [&](const OwnedPlacement &owned) { return owned.placement == placement; };
  const auto it = std::find_if(owned_.begin(), owned_.end(), same);
  *found = it == owned_.end() ? nullptr : &*it;
  return MXS_OK;
}

mxs_status Unit::check_not_held(const char *what) const {
  if (weights_state_ == MXS_SHARDED) return MXS_OK;
  return set_error(MXS_HELD, "rank %d, unit %d is %s; release it%s before %s", rank_, index_,
                   weights_state_ == MXS_PINNED ? "pinned" : "gathered",
                   weights_state_ == MXS_PINNED ? " with MXS_FREE" : "", what);
}

mxs_status Unit::shard(uint64_t placement, mxs_view *view) {
  const OwnedPlacement *owned = nullptr;
  mxs_status status = find_owned(placement, &owned);
  if (status != MXS_OK) return status;
  status = check_not_held("mxs_unit_shard");
  if (status == MXS_OK && device_) status = wait_for_device();
  if (status != MXS_OK) return status;
  const Placement &piece = plan().placements[placement];
  if (owned)
    fill_view(piece.shape, owned->master_dtype, master_of(*owned), owned->element_count, owned->tensor, view);
  else
    fill_view({}, plan().tensors[static_cast<size_t>(piece.tensor)].master_dtype, nullptr, 0, piece.tensor, view);
  return MXS_OK;
}

mxs_status Unit::commit(const mxs_view &view) {
  if (view.bytes == 0) return MXS_OK;
  if (view.unit != index_)
    return set_error(MXS_INVALID_ARGUMENT, "the view is of unit %d, but the call is on unit %d", view.unit, index_);
  const auto same = [&](const OwnedPlacement &owned) { return master_of(owned) == view.data; };
  const auto owned = std::find_if(owned_.begin(), owned_.end(), same);
  if (owned == owned_.end() || view.bytes != owned->element_count * dtype_bytes(owned->master_dtype))
    return set_error(MXS_INVALID_ARGUMENT, "the view is none that mxs_unit_shard gave for unit %d on rank %d", index_,
                     rank_);
  if (view.generation != generation_)
    return set_error(MXS_STALE_VIEW,
                     "rank %d, unit %d, tensor %.200s: the view is of generation %llu, but a step has made generation "
                     "%llu; call mxs_unit_shard again",
                     rank_, index_, plan().tensors[static_cast<size_t>(owned->tensor)].name.c_str(),
                     static_cast<unsigned long long>(view.generation), static_cast<unsigned long long>(generation_));
  const mxs_status status = check_not_held("mxs_unit_commit");
  if (status != MXS_OK) return status;
  ++changes_;
  if (device_) return round_masters(*owned);
  if (owned->master)
    kernels().narrow(owned->weights, owned->dtype, static_cast<const float *>(owned->master), owned->element_count);
  return MXS_OK;
}

mxs_status Unit::shard_gradient(uint64_t placement, mxs_view *view) {
  const OwnedPlacement *owned = nullptr;
  mxs_status status = find_owned(placement, &owned);
  if (status != MXS_OK) return status;
  status = comm_->check();
  if (status != MXS_OK) return status;
  status = device_ ? wait_for_sums() : wait_reduce(0);
  if (status != MXS_OK) return status;
  const Placement &piece = plan().placements[placement];
  if (owned && owned->gradient)
    fill_view(piece.shape, MXS_F32, owned->gradient, owned->element_count, owned->tensor, view);
  else
    fill_view({}, MXS_F32, nullptr, 0, piece.tensor, view);
  return MXS_OK;
}

mxs_status Unit::check_idle(const char *what) const {
  if (holders_ > 0)
    return set_error(MXS_HELD, "rank %d, unit %d is gathered (%d without their release); release it before %s", rank_,
                     index_, holders_, what);
  if (gradients_state_ == MXS_OPEN)
    return set_error(MXS_HELD,
                     "rank %d, unit %d has open gradients; call mxs_unit_reduce or mxs_unit_discard before %s", rank_,
                     index_, what);
  return look_at_shards(what);
}

void Unit::end_views() {
  if (weights_state_ == MXS_PINNED) let_go();
}

void Unit::finish_step(bool changed) {
  clear_sums();
  if (!changed) return;
  ++generation_;
  ++changes_;
}

void Unit::clear_sums() {
  if (sums_bytes_) std::memset(sums(), 0, sums_bytes_);
  for (UnitTensor &tensor : tensors_) tensor.given = false;
}

mxs_status Unit::attach() {
  if (attached_) return set_error(MXS_HELD, "unit %d is in an optimizer already; it can be in one only", index_);
  attached_ = true;
  return MXS_OK;
}

void Unit::detach() { attached_ = false; }

}  // namespace mxs
