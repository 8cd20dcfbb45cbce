// SPDX-License-Identifier: Apache-2.0
#include "unit/canaries.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "plan/memory.hpp"
#include "unit/builder.hpp"
#include "unit/pool.hpp"
#include "unit/unit.hpp"

namespace mxs {

namespace {

std::byte canary_at(uint64_t offset) { return static_cast<std::byte>(0xa7 ^ (offset * 29 & 0xff)); }

}  // namespace

void Canaries::add(uint64_t end, uint64_t next, int tensor) {
  const uint64_t page_end = align_up(end, static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  const uint64_t last = std::min(next, page_end);
  if (end < last) gaps_.push_back({end, last - end, tensor});
}

void Canaries::fill(std::byte *base) const {
  for (const Gap &gap : gaps_)
    for (uint64_t offset = gap.offset; offset < gap.offset + gap.bytes; ++offset) base[offset] = canary_at(offset);
}

const Canaries::Gap *Canaries::find_damaged(const std::byte *base, uint64_t *at) const {
  for (const Gap &gap : gaps_)
    for (uint64_t offset = gap.offset; offset < gap.offset + gap.bytes; ++offset)
      if (base[offset] != canary_at(offset)) {
        *at = offset;
        return &gap;
      }
  return nullptr;
}

// Placements are in the order of their offsets, empty ones left out.
void UnitBuilder::make_canaries() {
  if (!comm_.debug_buffers || on_device()) return;
  unit_->canaries_ = std::make_unique<UnitCanaries>();
  UnitCanaries &made = *unit_->canaries_;
  struct End {
    uint64_t begin, end;
    int tensor, owner;
  };
  std::vector<End> weights, gradients;
  int last_owned = -1;
  for (const uint64_t number : planned().placements) {
    const Placement &piece = plan().placements[number];
    const PlannedTensor &tensor = plan().tensors[static_cast<size_t>(piece.tensor)];
    if (piece.element_count == 0) continue;
    if (piece.owner == comm_.rank) last_owned = piece.tensor;
    weights.push_back({piece.weight_offset, piece.weight_offset + piece.element_count * dtype_bytes(tensor.dtype),
                       piece.tensor, piece.owner});
    if (piece.gradient_offset != UINT64_MAX)
      gradients.push_back({piece.gradient_offset,
                           piece.gradient_offset + piece.element_count * dtype_bytes(tensor.gradient_dtype),
                           piece.tensor, piece.owner});
  }
  const auto by_place = [](const End &a, const End &b) { return a.begin < b.begin; };
  std::sort(weights.begin(), weights.end(), by_place);
  std::sort(gradients.begin(), gradients.end(), by_place);
  // A range in the caller's buffer ends where the caller says; by reference others' pages can't be written to.
  for (size_t i = 0; i < weights.size() && !options_.buffer; ++i) {
    const bool is_own = weights[i].owner == comm_.rank;
    if (!is_own && unit_->by_reference_) continue;
    const uint64_t next = i + 1 < weights.size() ? weights[i + 1].begin : UINT64_MAX;
    (is_own ? made.own : made.foreign).add(weights[i].end, next, weights[i].tensor);
  }
  const uint64_t slot_bytes = pool_sizes(plan()).gradient_slot;
  for (size_t i = 0; i < gradients.size(); ++i)
    made.gradients.add(gradients[i].end, i + 1 < gradients.size() ? gradients[i + 1].begin : slot_bytes,
                       gradients[i].tensor);
  if (unit_->sums_bytes_) made.sums.add(unit_->sums_bytes_, UINT64_MAX, last_owned);
  if (unit_->masters_bytes_) made.masters.add(unit_->masters_bytes_, UINT64_MAX, last_owned);
  made.own.fill(unit_->range_);
  if (unit_->sums_bytes_) made.sums.fill(unit_->sums());
  made.masters.fill(unit_->masters_.data());
}

// The canaries are filled anew, so that one fault is told once; and nothing was sent, so that the call can be made
// again: the tensors themselves are as they were.
mxs_status Unit::complain_of(const Canaries &canaries, std::byte *base, const char *place, const char *what) const {
  uint64_t at = 0;
  const Canaries::Gap *const gap = base ? canaries.find_damaged(base, &at) : nullptr;
  if (!gap) return MXS_OK;
  const uint64_t beyond = at - gap->offset;
  canaries.fill(base);
  return set_error(MXS_INVALID_ARGUMENT,
                   "rank %d, unit %d: somebody wrote past the end of tensor %.200s, byte %llu behind it in %s (found "
                   "by MXS_DEBUG_BUFFERS in %s). Nothing was sent; the same call again goes on",
                   rank_, index_, plan().tensors[static_cast<size_t>(gap->tensor)].name.c_str(),
                   static_cast<unsigned long long>(beyond), place, what);
}

mxs_status Unit::look_at_shards(const char *what) const {
  if (!canaries_) return MXS_OK;
  mxs_status status = complain_of(canaries_->own, range_, "this rank's own pages of the unit", what);
  if (status == MXS_OK && sums_bytes_) status = complain_of(canaries_->sums, sums(), "the gradients' sums", what);
  if (status == MXS_OK) status = complain_of(canaries_->masters, masters_.data(), "the masters", what);
  return status;
}

mxs_status Unit::look_at_weights(const char *what) const {
  if (!canaries_) return MXS_OK;
  const mxs_status status = complain_of(canaries_->own, range_, "this rank's own pages of the unit", what);
  return status == MXS_OK ? complain_of(canaries_->foreign, range_, "the unit's range", what) : status;
}

mxs_status Unit::look_at_gradients(const char *what) const {
  return canaries_ ? complain_of(canaries_->gradients, gradients(), "a gradient slot", what) : MXS_OK;
}

// ---- what an operation reads ----

void Unit::watch_operations() {
  if (!comm_->debug_buffers || device_) return;
  for (const OwnedPlacement &owned : owned_)
    gather_watch_.add(owned.weights, owned.element_count * dtype_bytes(owned.dtype), owned.tensor);
  const auto end_of_gather = [this] {
    return complain_of_change(gather_watch_, "weights", "gather", "other ranks may have got either");
  };
  if (node_gather_) node_gather_->set_end(end_of_gather);
  if (message_gather_) message_gather_->set_end(end_of_gather);
  for (size_t group = 0; group < groups_.size(); ++group) {
    const auto end_of_reduce = [this, group] {
      return complain_of_change(groups_[group].watch, "gradient", "reduce", "the sums may have got either");
    };
    if (groups_[group].node) groups_[group].node->set_end(end_of_reduce);
    if (groups_[group].messages) groups_[group].messages->set_end(end_of_reduce);
  }
}

void Unit::watch_gradients(GradientGroup *group) {
  group->watch.clear();
  for (const UnitTensor &tensor : tensors_) {
    const mxs_dtype dtype = plan().tensors[static_cast<size_t>(tensor.tensor)].gradient_dtype;
    if (tensor.gradient_offset != UINT64_MAX && dtype == group->dtype)
      group->watch.add(gradients() + tensor.gradient_offset, tensor.element_count * dtype_bytes(dtype), tensor.tensor);
  }
  group->watch.begin();
}

// Bytes that others have already may be wrong, so it is a failure of the comm.
mxs_status Unit::complain_of_change(const BufferWatch &watch, const char *what, const char *operation,
                                    const char *result) const {
  const int tensor = watch.changed();
  if (tensor < 0) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT,
                   "rank %d, unit %d: somebody wrote to the %s of tensor %.200s while the %s that reads it was in "
                   "flight; %s (found by MXS_DEBUG_BUFFERS)",
                   rank_, index_, what, plan().tensors[static_cast<size_t>(tensor)].name.c_str(), operation, result);
}

}  // namespace mxs
