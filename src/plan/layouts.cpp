// SPDX-License-Identifier: Apache-2.0
// Where everything lies: the order of tensors in each unit, its two layouts, and the offsets of all pieces.
//
//   | owner 0: wide dtypes first, tails last | owner 1 ... | tensors of several owners, in the caller's order |
//
// Tensors of one owner lie together, so that the owner has one segment of them. Wide dtypes come first, so that no
// element straddles; tails come last, so that matrices begin at round addresses.
#include <algorithm>
#include <tuple>

#include "base/arithmetic.hpp"
#include "base/dtype.hpp"
#include "plan/stages.hpp"

namespace mxs {
namespace {

// Grows a layout piece by piece.
class LayoutBuilder {
 public:
  explicit LayoutBuilder(uint64_t alignment) : alignment_(alignment) {}

  // Where the piece lies. on_border: the first of several owners' pieces, whose inner borders count from here.
  uint64_t add(int owner, uint64_t bytes, uint64_t element_bytes, bool on_border) {
    if (bytes == 0) return end_;  // no bytes, no segment
    const bool same_owner = !segments_.empty() && segments_.back().owner == owner;
    const uint64_t start = align_up(end_, same_owner && !on_border ? element_bytes : alignment_);
    if (same_owner && (!on_border || start == end_))
      segments_.back().bytes = start + bytes - segments_.back().offset;
    else
      segments_.push_back({owner, start, bytes});
    end_ = start + bytes;
    return start;
  }

  mxs_status finish(int rank_count, Layout *layout) {
    return make_layout(std::move(segments_), rank_count, alignment_, layout);
  }

 private:
  uint64_t alignment_;
  uint64_t end_ = 0;
  std::vector<Segment> segments_;
};

// The one owner of all pieces, or -1.
int single_owner(const Plan &plan, const PlannedTensor &tensor) {
  const int owner = plan.placements[tensor.placement_index].owner;
  for (uint64_t index = 0; index < tensor.placement_count; ++index)
    if (plan.placements[tensor.placement_index + index].owner != owner) return -1;
  return owner;
}

// By which tensors of a unit are sorted: several owners last; owner; widest first; tails last; the caller's order.
using SortKey = std::tuple<bool, int, size_t, size_t, bool, int>;

SortKey sort_key(const Plan &plan, int index) {
  const PlannedTensor &tensor = plan.tensors[static_cast<size_t>(index)];
  const int owner = single_owner(plan, tensor);
  if (owner < 0) return {true, 0, 0, 0, false, index};
  return {false, owner, ~dtype_bytes(tensor.dtype), ~dtype_bytes(tensor.gradient_dtype), tensor.role == MXS_ROLE_TAIL,
          index};
}

void sort_tensors(const Plan &plan, std::vector<int> *tensors) {
  std::vector<SortKey> keys;
  keys.reserve(tensors->size());
  for (const int index : *tensors) keys.push_back(sort_key(plan, index));
  std::sort(keys.begin(), keys.end());
  for (size_t place = 0; place < keys.size(); ++place) (*tensors)[place] = std::get<5>(keys[place]);
}

void place_tensor(Plan *plan, int index, PlannedUnit *unit, LayoutBuilder *weights, LayoutBuilder *gradients) {
  const PlannedTensor &tensor = plan->tensors[static_cast<size_t>(index)];
  const uint64_t weight_width = dtype_bytes(tensor.dtype), gradient_width = dtype_bytes(tensor.gradient_dtype);
  bool on_border = single_owner(*plan, tensor) < 0;
  for (uint64_t number = 0; number < tensor.placement_count; ++number) {
    Placement &piece = plan->placements[tensor.placement_index + number];
    piece.weight_offset =
        weights->add(piece.owner, piece.element_count * weight_width, weight_width, on_border);
    if (!tensor.frozen())
      piece.gradient_offset =
          gradients->add(piece.owner, piece.element_count * gradient_width, gradient_width, on_border);
    on_border = on_border && piece.element_count == 0;
    unit->placements.push_back(tensor.placement_index + number);
  }
}

}  // namespace

mxs_status lay_out(Plan *plan) {
  for (size_t index = 0; index < plan->tensors.size(); ++index) {
    const PlannedTensor &tensor = plan->tensors[index];
    if (tensor.role != MXS_ROLE_TIED)
      plan->units[static_cast<size_t>(tensor.unit)].tensors.push_back(static_cast<int>(index));
  }
  for (PlannedUnit &unit : plan->units) {
    sort_tensors(*plan, &unit.tensors);
    LayoutBuilder weights(plan->alignment), gradients(gradient_alignment);
    for (const int index : unit.tensors) place_tensor(plan, index, &unit, &weights, &gradients);
    mxs_status status = weights.finish(plan->topology.rank_count(), &unit.weights);
    if (status == MXS_OK) status = gradients.finish(plan->topology.rank_count(), &unit.gradients);
    if (status != MXS_OK) return status;
  }
  return MXS_OK;
}

}  // namespace mxs
