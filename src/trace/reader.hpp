// SPDX-License-Identifier: Apache-2.0
// Rings as they are read: of ranks that live, have ended, or were killed in the midst of a store.
//
// A file is taken for what somebody may have damaged: everything is checked before it is used, every text made
// printable. What is no ring is MXS_DAMAGED, with the file's name; single records that make no sense are left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "matrixshard/status.h"
#include "matrixshard/trace.h"

namespace mxs {

constexpr uint64_t not_over = UINT64_MAX;

struct RingEvent {
  int kind = 0, phase = 0, peer = -1, unit = -1;
  uint8_t name = 0, algorithm = 0;  // of Ring::names
  uint64_t sequence = 0, begin_ns = 0, end_ns = 0, bytes_out = 0, bytes_in = 0;  // times on rank 0's clock
  bool open() const { return end_ns == not_over; }
};

struct Ring {
  std::string path, host, failure;
  uint64_t job = 0, comm = 0, machine = 0, process_start = 0;
  int rank = 0, rank_count = 1, process = 0;
  int64_t clock_offset_ns = 0;
  uint64_t clock_uncertainty_ns = 0;
  // Times on rank 0's clock; 0: never.
  uint64_t created_ns = 0, finished_ns = 0, failure_ns = 0, seen_ns = 0;
  uint64_t latest_ns = 0;       // of all that is in the ring: when it was written last
  uint64_t latest_unix_ns = 0;  // the same, in the world's time
  uint64_t last_operation = 0, last_complete = 0, last_agreement = 0;
  uint64_t lost_count = 0, torn_count = 0;
  mxs_status failure_status = MXS_OK;
  bool failure_own = false;
  std::vector<std::string> names;
  std::vector<RingEvent> events;  // by begin

  // As far as this machine can tell, when it was read.
  int alive = -1;
  bool stopped = false;
  bool finished() const { return finished_ns != 0; }
  bool failed() const { return failure_ns != 0; }
};

// From bytes, which may be anything and may change meanwhile. name: of the file, for sentences.
mxs_status read_ring(const std::byte *bytes, size_t size, const std::string &name, Ring *ring);

// One comm's rings.
struct Trace {
  int rank_count = 0;
  uint64_t read_ns = 0;  // when it was opened, on rank 0's clock; 0: that can't be told here
  std::map<int, Ring> rings;  // by rank
  struct Place {
    int rank;
    size_t index;
  };
  std::vector<Place> order;  // of all events, by begin

  void add(Ring ring);  // instead of an older one of its rank
  void sort();          // when all are there
  const RingEvent &event(const Place &place) const { return rings.at(place.rank).events[place.index]; }
  uint64_t end_ns() const;  // read_ns, or when anybody wrote last
};

mxs_status open_trace(Trace *trace, const std::vector<std::string> &paths);

}  // namespace mxs
