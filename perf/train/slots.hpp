// SPDX-License-Identifier: Apache-2.0
// Slots: memory that units take in turns, for the placements made of bare collectives. The same economy as the
// library's units: two weight slots and two gradient slots, each as large as the largest unit.
#pragma once

#include <cstdint>
#include <vector>

#include "check.hpp"
#include "ledger.hpp"
#include "model.hpp"

namespace train {

CollectiveOwner make_collective(mxs_comm *comm, int kind, const mxs_layout *layout, const mxs_layout *target_layout,
                                mxs_dtype dtype, int flags);

// A layout without gaps, and this rank's part of it.
struct Extent {
  int32_t owner;
  uint64_t bytes;
};
LayoutOwner make_layout(const std::vector<Extent> &extents, int rank_count);

// So many units are gathered at a time.
constexpr int weight_slot_count = 2;
// A tied head keeps unit 0 open from the head's backward to the embedding's.
int gradient_slot_count(const Model &model);

// The largest of the units' bytes, rounded to a cache line.
uint64_t slot_bytes(const std::vector<LayoutOwner> &unit_layouts);

// Gradients of one unit: opened, written, reduced into a packed fp32 target, while the next unit opens another slot.
class GradientSlots {
 public:
  GradientSlots(const Model &model, mxs_comm *comm, Ledger *ledger, const std::vector<LayoutOwner> &unit_layouts,
                bool rank_order);
  // The unit's buffer; takes a slot and waits for the reduce that still reads it, if it isn't open.
  char *open(int unit);
  void reduce(int unit, float *target);
  void finish();

 private:
  void wait(int slot);

  std::vector<char *> slots_;
  std::vector<int> unit_in_flight_;  // by slot; -1: none
  std::vector<int> slot_of_unit_;    // -1: not open
  std::vector<CollectiveOwner> reduces_;
  size_t next_ = 0;
};

// Weights of units that come whole from packed parts.
class WeightSlots {
 public:
  WeightSlots(mxs_comm *comm, Ledger *ledger, const std::vector<LayoutOwner> &unit_layouts);
  // Begins to bring a unit; `part` is this rank's packed part, which is laid into place first: so the gather can write
  // straight into all ranks' slots.
  void gather(int unit, const char *part);
  void wait(int unit);
  void release(int unit) { slot_of_unit_[unit] = -1; }
  const char *whole(int unit) const { return slots_[slot_of_unit_[unit]]; }

 private:
  struct Part {
    uint64_t offset, bytes;
  };
  std::vector<char *> slots_;
  std::vector<int> slot_of_unit_;
  std::vector<std::vector<Part>> parts_;
  std::vector<CollectiveOwner> gathers_;
};

}  // namespace train
