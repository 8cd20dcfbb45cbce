// SPDX-License-Identifier: Apache-2.0
// Who is in which slot, and which collective must be over before the next may enter?
#include "slots.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace train {
namespace {

std::vector<char *> cut(void *memory, size_t count, uint64_t bytes) {
  std::vector<char *> slots;
  for (size_t slot = 0; slot < count; ++slot) slots.push_back(static_cast<char *>(memory) + slot * bytes);
  return slots;
}

}  // namespace

CollectiveOwner make_collective(mxs_comm *comm, int kind, const mxs_layout *layout, const mxs_layout *target_layout,
                                mxs_dtype dtype, int flags) {
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = kind;
  options.layout = layout;
  options.target_layout = target_layout;
  options.dtype = dtype;
  options.flags = kind == MXS_RESHARD ? flags : flags | MXS_MAPPED_MEMORY;  // Ledger::take_shared
  mxs_collective *made = nullptr;
  check(mxs_collective_create(&made, comm, &options), "mxs_collective_create");
  return CollectiveOwner(made);
}

LayoutOwner make_layout(const std::vector<Extent> &extents, int rank_count) {
  std::vector<mxs_segment> segments;
  uint64_t offset = 0;
  for (const Extent &extent : extents) {
    mxs_segment segment = MXS_SEGMENT_INIT;
    segment.owner = extent.owner;
    segment.offset = offset;
    segment.bytes = extent.bytes;
    offset += extent.bytes;
    segments.push_back(segment);
  }
  mxs_layout *made = nullptr;
  check(mxs_layout_create(&made, segments.data(), segments.size(), rank_count, 1), "mxs_layout_create");
  return LayoutOwner(made);
}

int gradient_slot_count(const Model &model) { return model.shape.tied ? 3 : 2; }

uint64_t slot_bytes(const std::vector<LayoutOwner> &unit_layouts) {
  uint64_t most = 0;
  for (const LayoutOwner &layout : unit_layouts) most = std::max(most, mxs_layout_bytes(layout.get()));
  return (most + 63) / 64 * 64;
}

GradientSlots::GradientSlots(const Model &model, mxs_comm *comm, Ledger *ledger,
                             const std::vector<LayoutOwner> &unit_layouts, bool rank_order)
    : slot_of_unit_(unit_layouts.size(), -1) {
  const size_t count = static_cast<size_t>(gradient_slot_count(model));
  const uint64_t bytes = slot_bytes(unit_layouts);
  slots_ = cut(ledger->take_shared(Use::gradient_slots, count * bytes, count * bytes), count, bytes);
  unit_in_flight_.assign(count, -1);
  const int flags = MXS_ACCUMULATE | (rank_order ? MXS_RANK_ORDER : 0);
  for (const LayoutOwner &layout : unit_layouts)
    reduces_.push_back(
        make_collective(comm, MXS_REDUCE, layout.get(), nullptr, model.shape.gradient_dtype, flags));
}

void GradientSlots::wait(int slot) {
  if (unit_in_flight_[slot] < 0) return;
  check(mxs_collective_wait(reduces_[unit_in_flight_[slot]].get(), nullptr), "reduce of a unit's gradients");
  unit_in_flight_[slot] = -1;
}

char *GradientSlots::open(int unit) {
  int &slot = slot_of_unit_[unit];
  if (slot >= 0) return slots_[slot];
  const auto open_here = [&](size_t s) {
    return std::count(slot_of_unit_.begin(), slot_of_unit_.end(), static_cast<int>(s)) > 0;
  };
  for (size_t tried = 0; tried < slots_.size(); ++tried, ++next_) {
    const size_t candidate = next_ % slots_.size();
    if (open_here(candidate)) continue;
    slot = static_cast<int>(candidate);
    ++next_;
    wait(slot);
    return slots_[slot];
  }
  throw std::logic_error("all gradient slots are open");
}

void GradientSlots::reduce(int unit, float *target) {
  const int slot = slot_of_unit_.at(unit);
  check(mxs_collective_start(reduces_[unit].get(), slots_.at(slot), target, nullptr), "reduce of a unit's gradients");
  unit_in_flight_[slot] = unit;
  slot_of_unit_[unit] = -1;
}

void GradientSlots::finish() {
  for (size_t slot = 0; slot < slots_.size(); ++slot) wait(static_cast<int>(slot));
}

WeightSlots::WeightSlots(mxs_comm *comm, Ledger *ledger, const std::vector<LayoutOwner> &unit_layouts)
    : slot_of_unit_(unit_layouts.size(), -1), parts_(unit_layouts.size()) {
  const uint64_t bytes = slot_bytes(unit_layouts);
  slots_ = cut(ledger->take_shared(Use::slots, weight_slot_count * bytes, weight_slot_count * bytes),
               weight_slot_count, bytes);
  const int rank = rank_of(comm);
  for (size_t unit = 0; unit < unit_layouts.size(); ++unit) {
    const mxs_layout *layout = unit_layouts[unit].get();
    for (uint64_t s = 0; s < mxs_layout_segment_count(layout); ++s) {
      mxs_segment segment = MXS_SEGMENT_INIT;
      check(mxs_layout_segment(layout, s, &segment), "mxs_layout_segment");
      if (segment.owner == rank) parts_[unit].push_back({segment.offset, segment.bytes});
    }
    gathers_.push_back(make_collective(comm, MXS_GATHER, layout, nullptr, 0, 0));
  }
}

void WeightSlots::gather(int unit, const char *part) {
  for (int slot = 0; slot < weight_slot_count && slot_of_unit_[unit] < 0; ++slot)
    if (std::count(slot_of_unit_.begin(), slot_of_unit_.end(), slot) == 0) slot_of_unit_[unit] = slot;
  if (slot_of_unit_[unit] < 0) throw std::logic_error("all weight slots are held");
  char *slot = slots_[slot_of_unit_[unit]];
  for (const Part &piece : parts_[unit]) {
    std::memcpy(slot + piece.offset, part, piece.bytes);
    part += piece.bytes;
  }
  check(mxs_collective_start(gathers_[unit].get(), nullptr, slot, nullptr), "gather of a unit's weights");
}

void WeightSlots::wait(int unit) {
  check(mxs_collective_wait(gathers_[unit].get(), nullptr), "gather of a unit's weights");
}

}  // namespace train
