// SPDX-License-Identifier: Apache-2.0
// Tracer: writes a rank's events into its ring (ring.hpp). One per comm and rank, made when MXS_TRACE or MXS_RING says
// so.
//
// An event costs a look at the clock and eleven stores: no system call, no lock, no allocation (docs/tracing.md has the
// figure). Any thread may write. A forked child, which has the file mapped as well, writes nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.hpp"
#include "matrixshard/comm.h"
#include "matrixshard/status.h"
#include "matrixshard/trace.h"
#include "trace/ring.hpp"

namespace mxs {

// What the environment asks for.
struct TraceSettings {
  std::string ring_folder, timeline_folder;  // empty: none
  uint64_t event_count = ring_events_chosen;
  bool on() const { return !ring_folder.empty(); }
};
mxs_status read_trace_settings(TraceSettings *settings);

// What a ring says of its rank.
struct TraceIdentity {
  uint64_t job = 0, comm = 0;
  int rank = 0, rank_count = 1;
  int64_t clock_offset_ns = 0;
  uint64_t clock_uncertainty_ns = 0;
};

// What is known of an event when it begins.
struct TraceEvent {
  int kind = MXS_EVENT_MARK;
  uint8_t name = 0, algorithm = 0;  // of Tracer::name
  int phase = 0, peer = -1, unit = -1;
  uint64_t sequence = 0, bytes_out = 0, bytes_in = 0;
  uint64_t begin_ns = 0;  // 0: now
};

class Tracer {
 public:
  // Makes the folder and the files. MXS_SYSTEM, with a sentence: they can't be made, or the disk is full: all of the
  // ring's room is taken here, so that no store into it can fail later.
  static mxs_status create(std::unique_ptr<Tracer> *tracer, const TraceSettings &settings,
                           const TraceIdentity &identity);
  ~Tracer();  // says that the comm was destroyed, and writes the timeline
  Tracer(const Tracer &) = delete;
  void discard();  // there never was a comm: its files go

  // ---- per event ----
  uint64_t begin(const TraceEvent &event) { return write(event, UINT64_MAX); }  // a ticket; 0: nothing is written
  void end(uint64_t ticket, uint64_t end_ns);
  void end(uint64_t ticket) {
    if (ticket) end(ticket, now_ns());
  }
  void wait_for(uint64_t ticket, int peer);  // another one than before
  void mark(const TraceEvent &event, uint64_t end_ns) { write(event, end_ns); }
  void mark(const char *text, uint64_t sequence, int phase);
  void note_start(uint64_t sequence) { store(&header_->last_operation, sequence); }
  void note_complete(uint64_t sequence) { store(&header_->last_complete, sequence); }
  void note_agreement(uint64_t sequence) { store(&header_->last_agreement, sequence); }
  void note_life(uint64_t now) { store(&header_->seen_ns, now); }
  void note_failure(mxs_status status, const char *sentence, bool own, int phase);  // once
  // The number of a name of at most 23 letters. A search among some dozen; a lock only where it is new.
  uint8_t name(const char *text);

  const std::string &ring_path() const { return ring_path_; }

 private:
  Tracer() = default;
  mxs_status make_file(const TraceSettings &settings, const TraceIdentity &identity);
  mxs_status map_file(int file, const std::string &path, uint64_t bytes);
  void fill_header(const TraceSettings &settings, const TraceIdentity &identity);
  uint64_t write(const TraceEvent &event, uint64_t end_ns);
  void write_timeline();
  bool ours() const;
  RingRecord &record(uint64_t number) const { return records_[number % capacity_]; }
  void store(uint64_t *word, uint64_t value) {
    if (ours()) std::atomic_ref(*word).store(value, std::memory_order_release);
  }

  RingHeader *header_ = nullptr;
  RingRecord *records_ = nullptr;
  uint64_t capacity_ = 1, mapped_bytes_ = 0;
  uint64_t generation_ = 0;
  std::mutex names_mutex_;
  std::string ring_path_, timeline_path_;
};

// A step's updates as an event. Nothing happens without a tracer.
class TracedStep {
 public:
  TracedStep(Tracer *tracer, uint64_t step_number) : tracer_(tracer) {
    if (!tracer_) return;
    TraceEvent event;
    event.kind = MXS_EVENT_STEP;
    event.name = tracer_->name("step");
    event.phase = MXS_PHASE_STEP;
    event.sequence = step_number;
    ticket_ = tracer_->begin(event);
  }
  TracedStep(const TracedStep &) = delete;
  ~TracedStep() {
    if (tracer_) tracer_->end(ticket_);
  }

 private:
  Tracer *const tracer_;
  uint64_t ticket_ = 0;
};

// A wait as an event: it begins with the first pause, so that what needs no waiting leaves nothing, and ends with its
// object. Nothing happens without a tracer.
class TracedWait {
 public:
  TracedWait() = default;
  TracedWait(TracedWait &&other) noexcept
      : tracer_(other.tracer_), ticket_(other.ticket_), peer_(other.peer_), own_(other.own_) {
    other.own_ = false;
  }
  TracedWait &operator=(TracedWait &&) = delete;
  ~TracedWait() {
    if (own_) tracer_->end(ticket_);
  }

  // It is part of an event that another will end. 0: it isn't.
  void join(uint64_t ticket) { ticket_ = ticket; }
  bool begun() const { return ticket_ != 0; }
  void begin(Tracer &tracer, const TraceEvent &event) {
    tracer_ = &tracer;
    ticket_ = tracer.begin(event);
    peer_ = event.peer;
    own_ = ticket_ != 0;
  }
  void go_on(Tracer &tracer, int peer) {
    if (peer == peer_) return;
    peer_ = peer;
    tracer.wait_for(ticket_, peer);
  }

 private:
  Tracer *tracer_ = nullptr;
  uint64_t ticket_ = 0;
  int peer_ = -1;
  bool own_ = false;
};

}  // namespace mxs
