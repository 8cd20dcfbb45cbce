// SPDX-License-Identifier: Apache-2.0
// DeviceSlots: a pool's slots in CUDA memory.
//
//   mapped   a slot is blocks without an address of their own, for those granules of ranges that hold others' bytes in
//            some unit that takes slots; each such unit maps them at its own addresses. A block is mapped as a whole
//            (cuMemMap knows no offsets into one), so blocks are cut where some unit's ranges of others' bytes end
//   copied   a slot is a piece of device memory, which is the range of all units that take it. Units that are larger
//            than those before them get another, so that addresses stay
//
// Slots grow with each unit that takes them, at its create.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.hpp"
#include "plan/page_ranges.hpp"
#include "unit/stream_point.hpp"

namespace mxs {

class DeviceComm;
class DeviceUnit;

class DeviceSlots {
 public:
  // borders: of all units of the plan, ascending; where blocks are cut.
  DeviceSlots(DeviceComm &comm, bool mapped, std::vector<uint64_t> borders)
      : comm_(comm), mapped_(mapped), borders_(std::move(borders)) {}
  ~DeviceSlots();

  mxs_status make(int slot_count, int gradient_slot_count, uint64_t gradient_slot_bytes);
  // Local. pages: of others' bytes, in granules. range_bytes: of the unit.
  mxs_status grow(const PageRanges &pages, uint64_t range_bytes);

  DeviceComm &comm() const { return comm_; }
  Device &device() const;
  bool mapped() const { return mapped_; }
  uint64_t bytes() const { return bytes_; }  // of all slots, without gradient slots

  // Mapped: those parts of a slot that lie in a unit's `pages`, at their places in its range. *maps receives what was
  // mapped, also on failure.
  mxs_status map(int slot, const PageRanges &pages, DeviceRange *range, PageRanges *maps);
  // Copied: where a range of so many bytes is.
  std::byte *memory(int slot, uint64_t range_bytes) const;
  std::byte *gradient_slot(int slot) const { return gradient_slots_[static_cast<size_t>(slot)].memory.data(); }

  // The unit that was gathered into a slot last, whose readers may not be done.
  DeviceUnit *last_reader(int slot) const { return slots_[static_cast<size_t>(slot)].reader; }
  void set_reader(int slot, DeviceUnit *unit) { slots_[static_cast<size_t>(slot)].reader = unit; }
  void forget(const DeviceUnit *unit);
  // Of a gradient slot: what was written into it and then discarded.
  StreamPoint &discarded(int gradient_slot) { return gradient_slots_[static_cast<size_t>(gradient_slot)].discarded; }

  // Waits on the host until a point is over, which then holds nobody back any more.
  mxs_status wait_for(StreamPoint *point);
  // For zeroing at create.
  DeviceStream stream() const { return stream_; }

 private:
  struct Piece {
    PageRange range;
    std::unique_ptr<DeviceBlock> block;
  };
  struct Slot {
    std::vector<Piece> pieces;         // mapped
    std::vector<DeviceMemory> memory;  // copied, ascending
    DeviceUnit *reader = nullptr;
  };
  struct GradientSlot {
    DeviceMemory memory;
    StreamPoint discarded;
  };

  PageRanges cut(const PageRanges &pages) const;
  mxs_status grow_blocks(const PageRanges &fresh);
  mxs_status grow_memory(uint64_t range_bytes);

  DeviceComm &comm_;
  const bool mapped_;
  const std::vector<uint64_t> borders_;
  DeviceStream stream_ = nullptr;  // nobody else's
  std::vector<Slot> slots_;
  std::vector<GradientSlot> gradient_slots_;
  PageRanges pages_;  // mapped: of each slot
  uint64_t bytes_ = 0;
};

}  // namespace mxs
