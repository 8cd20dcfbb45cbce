// SPDX-License-Identifier: Apache-2.0
// Pool: what the units of one plan on one comm share: a copy of the plan, and slots that they take turns in.
//
//   one file per rank   | slot 0 | slot 1 | ... | gradient slot 0 | gradient slot 1 | ... | counters | scratch 0 | ...
//
// Scratch, one for each gradient slot, only with replicas: sums over the shard group on their way to other replicas.
//
// Slots begin at multiples of 2 MiB, so that a unit's range and its slot agree modulo 2 MiB and can share large pages;
// the room between them is a hole in the file and costs nothing. So does what no unit that takes slots has bytes in: a
// large unit with a slot of its own makes the others no larger.
//
// In CUDA memory the file is device memory of this rank alone: device_slots.hpp.
//
// Calls on a family come one at a time, and ranks call in the same order, so the books below need no lock and every
// rank makes the same choices.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "memory/domain.hpp"
#include "memory/region.hpp"
#include "plan/page_ranges.hpp"
#include "plan/plan.hpp"
#include "unit/device_slots.hpp"

namespace mxs {

class Comm;
class Unit;

struct PoolOptions {
  bool by_reference = false;
  int slots = 2, gradient_slots = 2;
  bool replicas = false;
  bool on_device = false;

  bool operator==(const PoolOptions &) const = default;
};

class Pool {
 public:
  Pool(const Plan &its_plan, const PoolOptions &its_options) : plan(its_plan), options(its_options) {}

  // Collective: takes the memory. Not touched yet.
  mxs_status open(Comm &comm);
  // Makes its own pages real, but no slots; local. Then, after every rank has: this rank's maps of its peers' pages.
  mxs_status touch_own();
  mxs_status touch_peers(const Comm &comm);
  // The same for the pages of slots that a unit's foreign bytes use, as far as units before it didn't use them.
  mxs_status touch_own_slots(int unit);
  mxs_status touch_peers_slots(const Comm &comm, int unit);

  // In CUDA memory instead of the above: there are no peers' pages. Local.
  mxs_status open(DeviceComm &comm, int rank, bool mapped);
  DeviceSlots *device_slots() const { return device_slots_.get(); }  // nullptr: host memory

  const Plan plan;
  const PoolOptions options;

  uint64_t slot_offset(int slot) const { return slot_stride_ * static_cast<uint64_t>(slot); }
  uint64_t gradient_slot_offset(int slot) const {
    return gradients_offset_ + gradient_stride_ * static_cast<uint64_t>(slot);
  }
  uint64_t scratch_offset(int gradient_slot) const {
    return scratch_offset_ + scratch_bytes_ * static_cast<uint64_t>(gradient_slot);
  }
  std::byte *gradient_slot(int slot) const {
    return device_slots_ ? device_slots_->gradient_slot(slot) : memory() + gradient_slot_offset(slot);
  }
  const SharedRegion &region() const { return region_; }
  std::byte *memory() const { return region_.at(place_); }
  int descriptor() const { return region_.files[static_cast<size_t>(place_)].get(); }
  uint64_t gradient_slots_bytes() const {
    return (gradient_slot_bytes_ + scratch_bytes_) * static_cast<uint64_t>(options.gradient_slots);
  }
  uint64_t touched_bytes() const;  // of this rank's file
  uint64_t huge_bytes() const { return huge_bytes_; }

  // By reference: how many times a local rank has begun to gather a unit. Written by that rank only.
  SharedCounter &gathers(int local_rank, int unit) const;

  // ---- weight slots ----
  // The slot that `unit` may have now: `preferred` if it is free, else the first free one after it. -1: all are held.
  int free_slot(int preferred) const;
  void take_slot(int slot, Unit *unit) { holders_[static_cast<size_t>(slot)] = unit; }
  void return_slot(int slot) { holders_[static_cast<size_t>(slot)] = nullptr; }

  // ---- gradient slots: held from the first opening until the reduce is complete here ----
  Unit *gradient_holder(int slot) const { return gradient_holders_[static_cast<size_t>(slot)]; }
  void take_gradient_slot(int slot, Unit *unit) { gradient_holders_[static_cast<size_t>(slot)] = unit; }
  void return_gradient_slot(int slot) { gradient_holders_[static_cast<size_t>(slot)] = nullptr; }

 private:
  std::vector<Extent> extents(int rank) const;
  mxs_status touch_slots(int place, int rank, int unit, uint64_t *huge_bytes);

  int rank_ = 0, place_ = 0;
  std::vector<PageRanges> slot_pages_;  // by local rank: touched in each slot
  uint64_t slot_stride_ = 0;
  uint64_t gradient_slot_bytes_ = 0, gradient_stride_ = 0, gradients_offset_ = 0;
  uint64_t counters_offset_ = 0, counter_bytes_ = 0;
  uint64_t scratch_offset_ = 0, scratch_bytes_ = 0;  // of this rank
  uint64_t huge_bytes_ = 0;
  SharedRegion region_;
  std::unique_ptr<DeviceSlots> device_slots_;
  std::vector<Unit *> holders_, gradient_holders_;
};

// The pool of this plan and these options, which is made with its first unit and gone with its last; nullptr if there
// is none.
std::shared_ptr<Pool> find_pool(Comm &comm, const Plan &plan, const PoolOptions &options);

}  // namespace mxs
