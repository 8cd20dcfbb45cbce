// SPDX-License-Identifier: Apache-2.0
// Which tensors, groups of gradients and owned pieces does a unit have, and where do they begin?
#include <algorithm>
#include <cassert>

#include "base/dtype.hpp"
#include "unit/builder.hpp"
#include "unit/device_unit.hpp"

namespace mxs {

namespace {

// Where a rank's packed bytes of one piece begin.
uint64_t packed_offset(const Layout &layout, int rank, uint64_t offset) {
  uint64_t packed = 0;
  for (const Segment &segment : layout.segments) {
    if (segment.owner != rank) continue;
    if (offset >= segment.offset && offset < segment.offset + segment.bytes) return packed + offset - segment.offset;
    packed += segment.bytes;
  }
  assert(false && "the offset is in one of the rank's segments");
  return 0;
}

}  // namespace

void UnitBuilder::list_tensors() {
  for (const int tensor : planned().tensors) {
    const PlannedTensor &described = plan().tensors[static_cast<size_t>(tensor)];
    if (described.tied_to >= 0) continue;
    UnitTensor entry;
    entry.tensor = tensor;
    entry.element_count = described.element_count;
    if (described.placement_count) {
      const Placement &first = plan().placements[described.placement_index];
      entry.weight_offset = first.weight_offset;
      entry.gradient_offset = first.gradient_offset;
    }
    unit_->tensors_.push_back(entry);
  }
  std::sort(unit_->tensors_.begin(), unit_->tensors_.end(),
            [](const UnitTensor &a, const UnitTensor &b) { return a.tensor < b.tensor; });
}

// Neighbours with one owner and one dtype make one segment. Each group's sums follow the one before.
void UnitBuilder::list_groups() {
  std::vector<GradientGroup> &groups = unit_->groups_;
  size_t last_group = SIZE_MAX;
  for (const uint64_t placement : planned().placements) {
    const Placement &piece = plan().placements[placement];
    if (piece.gradient_offset == UINT64_MAX || piece.element_count == 0) continue;
    const mxs_dtype dtype = plan().tensors[static_cast<size_t>(piece.tensor)].gradient_dtype;
    const uint64_t bytes = piece.element_count * dtype_bytes(dtype);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto &known) { return known.dtype == dtype; });
    if (group == groups.end()) {
      group = groups.emplace(groups.end());
      group->dtype = dtype;
      group->layout.rank_count = comm_.rank_count;
      group->layout.alignment = 64;
    }
    std::vector<Segment> &segments = group->layout.segments;
    const auto number = static_cast<size_t>(group - groups.begin());
    if (number == last_group && segments.back().owner == piece.owner &&
        segments.back().offset + segments.back().bytes == piece.gradient_offset)
      segments.back().bytes += bytes;
    else
      segments.push_back({piece.owner, piece.gradient_offset, bytes});
    group->layout.bytes = piece.gradient_offset + bytes;
    last_group = number;
  }
  for (GradientGroup &group : groups) {
    group.sums_offset = unit_->sums_bytes_;
    unit_->sums_bytes_ += group.layout.owned_bytes(comm_.rank) / dtype_bytes(group.dtype) * sizeof(float);
  }
}

// After range, sums and masters are there: the addresses of what this rank owns.
void UnitBuilder::list_owned() {
  DeviceUnit *const device = unit_->device_.get();
  std::byte *master = device ? device->masters() : unit_->masters_.data();
  for (const uint64_t placement : planned().placements) {
    const Placement &piece = plan().placements[placement];
    if (piece.owner != comm_.rank || piece.element_count == 0) continue;
    const PlannedTensor &tensor = plan().tensors[static_cast<size_t>(piece.tensor)];
    OwnedPlacement owned;
    owned.placement = placement;
    owned.tensor = piece.tensor;
    owned.dtype = tensor.dtype;
    owned.master_dtype = tensor.master_dtype;
    owned.element_count = piece.element_count;
    owned.weights = device ? device->own(piece.weight_offset) : unit_->range_ + piece.weight_offset;
    if (const uint64_t bytes = master_bytes(tensor, piece.element_count)) {
      owned.master = master;
      master += bytes;
    }
    for (const GradientGroup &group : unit_->groups_) {
      if (piece.gradient_offset == UINT64_MAX || group.dtype != tensor.gradient_dtype) continue;
      const uint64_t elements =
          packed_offset(group.layout, comm_.rank, piece.gradient_offset) / dtype_bytes(group.dtype);
      owned.gradient = reinterpret_cast<float *>(unit_->sums() + group.sums_offset) + elements;
    }
    unit_->owned_.push_back(owned);
  }
}

}  // namespace mxs
