// SPDX-License-Identifier: Apache-2.0
// Domain: the ranks that load from and store to each other's memory: processes of a node, or threads of a process.
//
// Local ranks are numbered 0 ... local_count - 1, in rank order. Files pass by SCM_RIGHTS between processes and as
// they are between threads; everything after that is the same for both.
//
// One event word serves all waits of a domain: post() after any change that others may wait for; wait_until() spins,
// yields when ranks exceed cores or two were seen on one core, then sleeps on a futex in slices of 50 ms, and between
// slices looks whether a peer has died (pidfd), the comm was aborted, or the deadline has passed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "matrixshard/status.h"
#include "memory/region.hpp"

namespace mxs {

class Bootstrap;

// One rank's file, mapped linearly by every local rank.
struct SharedRegion {
  std::vector<Mapping> mappings;  // by local rank, mine included; writable
  std::vector<File> files;        // by local rank: for map_over at fixed addresses
  std::byte *at(int local_rank) const { return mappings[local_rank].data(); }
};

// A counter that one rank writes and others wait for: a cache line pair of its own.
struct alignas(128) SharedCounter {
  std::atomic<uint64_t> value;
};

// A record of one operation in which local ranks share the work. Slot sequence % operation_window of a ring, never
// reset: both words carry the sequence in their upper 40 bits and a count in the lower 24, and whoever comes first for
// a new sequence starts it. A rank that is behind finds a later sequence there, which says that its own is long done:
// nobody takes a slot again before the operation that had it is complete everywhere.
struct alignas(128) SharedWork {
  std::atomic<uint64_t> claimed;
  alignas(128) std::atomic<uint64_t> finished;
};

struct DomainControl;  // the first page of each rank's file; see control.hpp

class Domain {
 public:
  static constexpr int operation_window = 64;  // shared operations in flight
  static constexpr uint32_t chunk_count_max = (1u << 24) - 1;

  virtual ~Domain() = default;

  int local_rank() const { return local_rank_; }
  int local_count() const { return local_count_; }
  const std::vector<int> &ranks() const { return ranks_; }  // by local rank
  int local_rank_of(int rank) const;                        // -1: not in this domain

  // Every local rank makes a file of `bytes` (each its own number, 0 allowed) and maps all others'. Collective over
  // the local ranks, in the same order on all: `name` must be equal. Nothing is touched yet. If one rank has no
  // memory, all get the error, which names it.
  virtual mxs_status share(uint64_t bytes, const char *name, SharedRegion *region) = 0;

  // Shared counters, a block of counter_count per rank, zero at first: counter(r, i) is written by local rank r only.
  static constexpr int counter_count = 16;
  SharedCounter &counter(int local_rank, int index) const;
  // Parameters that local rank r publishes for an operation before it enters it; see node_collective.
  static constexpr int parameter_count = 8;
  std::atomic<uint64_t> &parameter(int local_rank, uint64_t sequence, int index) const;  // index < parameter_count
  SharedWork &work(uint64_t sequence) const;

  // Takes the next chunk of an operation; returns its index, or count when all are taken. count <= chunk_count_max.
  uint32_t claim(uint64_t sequence, uint32_t count);
  void finish(uint64_t sequence, uint32_t count);                // one of `count` chunks is done; posts after the last
  bool finished(uint64_t sequence, uint32_t count) const;

  void post();   // after a release store: wakes who waits
  void nudge();  // changes the event word, so that nobody falls asleep on what it was; wakes nobody who sleeps

  // Returns MXS_OK once ready() is true. `waits_for` tells which comm rank is missing (or -1), for the sentence of a
  // failure and to notice that it has left; called once per slice at most.
  template <class Ready, class WaitsFor>
  mxs_status wait_until(Ready &&ready, uint64_t deadline_ns, WaitsFor &&waits_for) {
    for (int spin = 0; spin < spin_count_; spin++) {
      if (ready()) return MXS_OK;
      relax();
    }
    while (true) {
      const uint64_t seen = event();
      if (ready()) return MXS_OK;
      pause(seen, slice_ns);
      if (ready()) return MXS_OK;
      const mxs_status status = check_wait(deadline_ns, waits_for());
      if (status != MXS_OK) return ready() ? MXS_OK : status;
    }
  }

  // One slice of waiting: spins and yields on the event word, then sleeps at most `at_most_ns`. For mixed waits.
  static constexpr uint64_t slice_ns = 50'000'000;
  void pause(uint64_t seen, uint64_t at_most_ns);
  uint64_t event() const;  // take before testing the condition, pass to pause

  // MXS_PEER_FAILED with the rank's number if a local process has died or announced a failure, else MXS_OK. Cheap (one
  // poll of pidfds). A rank that has left in good order (its Domain was destroyed) is a failure only if it is `needed`
  // (a comm rank; -1: none), and from the second call on that finds it gone: what it gave just before may have come
  // after the caller looked, who looks once more in between.
  virtual mxs_status check_peers(int needed = -1) = 0;

  // Tells the other local ranks that this one has failed, and why: their check_peers return MXS_PEER_FAILED with that
  // sentence. The first reason stays. From any thread.
  void announce_failure(const char *reason);
  // Makes this rank's waits return MXS_ABORTED. From any thread.
  void interrupt();

 protected:
  DomainControl &control(int local_rank) const;
  mxs_status check_wait(uint64_t deadline_ns, int waits_for);
  static void relax();
  void note_core();                // which core this rank is on
  bool shares_its_core() const;    // another rank was last seen on the same one
  // All ranks are here: chooses how long to spin, by ranks and cores.
  void settle();

  int local_rank_ = 0, local_count_ = 1;
  int spin_count_ = 50;
  bool crowded_ = true;  // more ranks than cores: whoever spins keeps the awaited one from running
  bool same_process_ = false;
  std::atomic<bool> interrupted_{false}, announced_{false};
  std::vector<int> ranks_;
  SharedRegion control_;
};

// ranks: of this rank's node, ascending, this one included; all call at once. Bootstrap is used for handshakes (all
// ranks of the comm take part, those with no local peers as well). Processes are proved to be local by mapping each
// other's control region and reading a word there. A failure on one rank is one on all, with the same sentence.
mxs_status create_domain(std::unique_ptr<Domain> *domain, Bootstrap &bootstrap, const std::vector<int> &ranks,
                         uint64_t session, uint64_t timeout_ns);

}  // namespace mxs
