// SPDX-License-Identifier: Apache-2.0
// What the parts of a unit share: finding tensors, views, counts; and what can be asked of it.
#include "unit/unit.hpp"

#include <algorithm>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "collective/comm.hpp"
#include "plan/memory.hpp"
#include "unit/device_unit.hpp"
#include "unit/pool.hpp"
#include "unit/replicas.hpp"

namespace mxs {

Unit::Unit() = default;

bool Unit::first_replica() const { return !replicas_ || replicas_->rank == 0; }

const Plan &Unit::plan() const { return pool_->plan; }

const PlannedUnit &Unit::planned() const { return plan().units[static_cast<size_t>(index_)]; }

std::byte *Unit::sums() const {
  if (device_) return device_->sums();
  return region_.at(comm_->local_place()) + sums_offset_;
}

mxs_status Unit::find_tensor(int tensor, UnitTensor **found) {
  const std::vector<PlannedTensor> &described = plan().tensors;
  if (tensor < 0 || static_cast<size_t>(tensor) >= described.size())
    return set_error(MXS_NOT_FOUND, "tensor is %d, but the plan has %zu", tensor, described.size());
  int resolved = tensor;
  while (described[static_cast<size_t>(resolved)].tied_to >= 0)
    resolved = described[static_cast<size_t>(resolved)].tied_to;
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), resolved,
                                   [](const UnitTensor &entry, int number) { return entry.tensor < number; });
  if (it == tensors_.end() || it->tensor != resolved)
    return set_error(MXS_NOT_FOUND, "tensor %d, %.200s, is in unit %d, not in unit %d", tensor,
                     described[static_cast<size_t>(tensor)].name.c_str(),
                     described[static_cast<size_t>(resolved)].unit, index_);
  *found = &*it;
  return MXS_OK;
}

// Row-major and contiguous. An empty piece has no address.
void Unit::fill_view(const std::vector<int64_t> &shape, mxs_dtype dtype, void *data, uint64_t elements, int tensor,
                     mxs_view *view) const {
  mxs_view filled = MXS_VIEW_INIT;
  filled.dtype = dtype;
  filled.memory = device_ ? MXS_CUDA : MXS_HOST;
  filled.dimension_count = static_cast<int32_t>(shape.size());
  filled.data = elements ? data : nullptr;
  filled.bytes = elements * dtype_bytes(dtype);
  int64_t stride = 1;
  for (size_t dimension = shape.size(); dimension-- > 0;) {
    filled.shape[dimension] = shape[dimension];
    filled.strides[dimension] = stride;
    stride *= shape[dimension];
  }
  filled.generation = generation_;
  filled.unit = index_;
  filled.tensor = tensor;
  *view = filled;
}

void Unit::count(int kind, uint64_t bytes_out, uint64_t bytes_in) {
  Comm::Counter &counter = comm_->counter(kind);
  counter.calls.fetch_add(1, std::memory_order_relaxed);
  counter.bytes_out.fetch_add(bytes_out, std::memory_order_relaxed);
  counter.bytes_in.fetch_add(bytes_in, std::memory_order_relaxed);
}

mxs_unit_info Unit::info() const {
  mxs_unit_info result = MXS_UNIT_INFO_INIT;
  result.unit = index_;
  result.weights_state = weights_state_;
  result.gradients_state = gradients_state_ == MXS_REDUCING && reduce_complete() ? MXS_EMPTY : gradients_state_;
  result.holders = holders_;
  result.gather = by_reference_ ? MXS_GATHER_BY_REFERENCE : MXS_GATHER_BY_COPY;
  result.generation = generation_;
  result.address = range_;
  result.bytes = planned().weights.bytes;
  result.gather_algorithm = gather_algorithm_;
  result.reduce_algorithm = reduce_algorithm_;
  if (device_) {
    result.pages = device_->copies() ? "copied" : "mapped";
    return result;
  }
  // Large pages if most of what this rank has of unit and pool lies on them.
  const uint64_t touched = touched_bytes_ + pool_->touched_bytes(), huge = huge_bytes_ + pool_->huge_bytes();
  result.pages = touched && huge >= touched - huge ? "2 MiB" : "4 KiB";
  return result;
}

// Counted from what was mapped, not from the plan's prediction; a test compares the two.
mxs_memory Unit::memory() const {
  mxs_memory memory = MXS_MEMORY_INIT;
  memory.weights = planned().weights.owned_bytes(rank_);
  memory.masters = masters_bytes_;
  memory.gradients = sums_bytes_;
  memory.own_slots = own_slot_bytes_;
  memory.slack = touched_bytes_ - memory.masters - memory.gradients - memory.own_slots;
  if (!own_extents_.empty()) memory.slack -= memory.weights;
  memory.rest = memory.weights + memory.masters + memory.gradients + memory.slack;
  memory.gradient_slots = pool_->gradient_slots_bytes();
  memory.slots = pool_->touched_bytes() - memory.gradient_slots;
  memory.peak = memory.rest + memory.slots + memory.gradient_slots + memory.own_slots;
  return memory;
}

}  // namespace mxs
