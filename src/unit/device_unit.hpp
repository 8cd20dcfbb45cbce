// SPDX-License-Identifier: Apache-2.0
// DeviceUnit: what a unit in CUDA memory has beside its states (unit.hpp): its memory, and what orders the work on it.
//
//   mapped   range   |-- mine --|------ others' ------|-- mine --|     reserved once
//            onto     own block   the slot's blocks     own block
//   copied   the range is the slot itself; mine lie elsewhere and are copied into it at each gather
//   in place the range is memory of the unit's own (own_slot without maps) or the caller's (a buffer), mine inside it
//
// Everything is put on streams. Of what the unit's own operations don't order by themselves, a point in a stream is
// kept:
//
//   released   by those who read the range; the next gather into the slot waits for it, also that of another unit
//   written    by a step, into weights and sums; the next gather and reduce wait for it
//
// They wait on the comm's stream, where collectives run in the order of their starts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/device_collective.hpp"
#include "device/device.hpp"
#include "layout/layout.hpp"
#include "matrixshard/types.h"
#include "plan/page_ranges.hpp"
#include "plan/plan.hpp"
#include "unit/device_slots.hpp"
#include "unit/stream_point.hpp"

namespace mxs {

// Granules of the range of a layout that hold bytes of a rank, and those of all others. Borders of owners lie on
// granules.
PageRanges granules_of(const Layout &layout, int rank, uint64_t granule_bytes);
PageRanges granules_of_others(const Layout &layout, int rank, uint64_t granule_bytes);
// Where those of others begin and end, in all units; ascending.
std::vector<uint64_t> borders_of(const Plan &plan, int rank, uint64_t granule_bytes);
// Do all borders between owners lie on granules?
bool lies_on_granules(const Layout &layout, uint64_t granule_bytes);

class DeviceUnit {
 public:
  struct Options {
    const Layout *weights = nullptr;
    int rank = 0, slot = 0;
    bool own_slot = false, takes_slot = false;
    void *buffer = nullptr;
    uint64_t masters_bytes = 0, sums_bytes = 0;
  };

  explicit DeviceUnit(DeviceSlots &its_slots) : slots_(its_slots) {}
  ~DeviceUnit() { slots_.forget(this); }
  // Local: memory, maps, events; zero.
  mxs_status make(const Options &options);
  mxs_status make_gather(Comm &comm, const Layout &weights, uint64_t identity, int unit);

  Device &device() const { return slots_.device(); }
  DeviceSlots &slots() const { return slots_; }
  DeviceOperation *gather() const { return gather_.get(); }

  // ---- memory ----
  std::byte *range() const { return range_; }
  uint64_t range_bytes() const { return range_bytes_; }
  // Where this rank keeps a byte of its own of the range.
  std::byte *own(uint64_t offset) const;
  std::byte *masters() const { return masters_.data(); }
  std::byte *sums() const { return sums_.data(); }
  bool copies() const { return copies_; }               // own segments, at each gather
  uint64_t bytes() const { return bytes_; }             // of the unit alone, own slot included
  uint64_t own_slot_bytes() const { return own_slot_bytes_; }

  // Others' part of the range shows a slot; where it shows another, everything that reads it must be over. A failure
  // leaves it showing none.
  mxs_status show(int slot);
  // MXS_DEBUG_VIEWS: shows none. Likewise.
  mxs_status hide();
  int shown() const { return shown_; }  // -1: none
  bool can_hide() const { return range_map_ != nullptr; }

  // ---- order ----
  // Before the gather is started: the comm's stream waits for what may still read the slot, and what the step wrote;
  // and gets this rank's bytes where they are copied.
  mxs_status prepare_gather(DeviceStream stream, DeviceUnit *last_reader);
  void gather_has_begun() {
    gathered_ = true;
    released_this_time_ = false;
  }
  mxs_status order_after_gather(DeviceStream stream);
  mxs_status release(DeviceStream stream);
  mxs_status prepare_reduce() { return written_.hold_back(comm_stream()); }
  // Before something writes weights: reads by gathers and readers of the range.
  mxs_status order_after_readers(DeviceStream stream);
  mxs_status written(DeviceStream stream) { return written_.record(stream); }
  // On the host, once the gather is complete: nobody on this device reads or writes the range or the shard any more.
  mxs_status wait_for_readers();
  mxs_status wait_for_writers() { return slots_.wait_for(&written_); }

 private:
  struct OwnPlace {
    uint64_t offset, bytes, place;  // of the range, and within weights_
  };
  DeviceStream comm_stream() const;
  mxs_status make_maps(const Options &options);
  mxs_status make_blocks(const PageRanges &granules, std::vector<std::unique_ptr<DeviceBlock>> *blocks);
  mxs_status make_copied(const Options &options);
  mxs_status zero_all(const Options &options);

  DeviceSlots &slots_;  // of the pool
  std::byte *range_ = nullptr;
  uint64_t range_bytes_ = 0, bytes_ = 0, own_slot_bytes_ = 0;
  std::vector<std::unique_ptr<DeviceBlock>> own_blocks_, own_slot_blocks_;  // one for each run of granules
  std::unique_ptr<DeviceRange> range_map_;  // before its blocks' end
  PageRanges own_granules_, other_granules_, maps_;
  int shown_ = -1;
  bool copies_ = false;
  DeviceMemory weights_, masters_, sums_;
  std::vector<OwnPlace> own_places_;

  std::unique_ptr<DeviceOperation> gather_;
  bool gathered_ = false;  // ever
  StreamPoint released_, written_, begun_;
  DeviceStream released_by_ = nullptr;
  bool released_this_time_ = false;
};

}  // namespace mxs
