// SPDX-License-Identifier: Apache-2.0
// Domain: the ranks that load from and store to each other's memory: processes of a node, or threads of a process.
//
// Local ranks are numbered 0 ... local_count - 1, in rank order. Files pass by SCM_RIGHTS between processes and as
// they are between threads; everything after that is the same for both.
//
// One event word serves all waits of a domain: post() after any change that others may wait for; wait_until() spins,
// yields when ranks exceed cores, then sleeps on a futex in slices of 50 ms, and between slices looks whether a peer
// has died (pidfd), the comm was aborted, or the deadline has passed.
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
// reset: both words carry the sequence in their high half, and whoever comes first for a new one starts it.
struct alignas(128) SharedWork {
  std::atomic<uint64_t> claimed;   // (sequence << 32) | chunks claimed
  alignas(128) std::atomic<uint64_t> finished;  // (sequence << 32) | chunks finished
};

class Domain {
 public:
  static constexpr int operation_window = 64;  // shared operations in flight

  virtual ~Domain() = default;

  int local_rank() const { return local_rank_; }
  int local_count() const { return local_count_; }
  const std::vector<int> &ranks() const { return ranks_; }  // by local rank
  bool same_process() const { return same_process_; }

  // Every local rank makes a file of `bytes` (each its own number, 0 allowed) and maps all others'. Collective over
  // the local ranks, in the same order on all. Nothing is touched yet.
  virtual mxs_status share(uint64_t bytes, const char *name, SharedRegion *region) = 0;

  // Shared counters, a block of counter_count per rank, zero at first: counter(r, i) is written by local rank r only.
  static constexpr int counter_count = 16;
  SharedCounter &counter(int local_rank, int index) const;
  // Parameters that local rank r publishes for an operation before it enters it; see node_collective.
  std::atomic<uint64_t> &parameter(int local_rank, uint64_t sequence, int index) const;  // index < 4
  SharedWork &work(uint64_t sequence) const;

  // Takes the next chunk of an operation; returns its index, or count when all are taken.
  uint32_t claim(uint64_t sequence, uint32_t count);
  void finish(uint64_t sequence);                                // one chunk is done; posts after the last
  bool finished(uint64_t sequence, uint32_t count) const;

  void post();  // after a release store: wakes who waits

  // Returns MXS_OK once ready() is true. `waits_for` tells, for the sentence of a failure, which rank is missing
  // (or -1) and is called only then.
  template <class Ready, class WaitsFor>
  mxs_status wait_until(Ready &&ready, uint64_t deadline_ns, WaitsFor &&waits_for);

  // One slice of waiting: spins and yields on the event word, then sleeps at most `at_most_ns`. For mixed waits.
  void pause(uint64_t seen, uint64_t at_most_ns);
  uint64_t event() const;  // take before testing the condition, pass to pause

  // MXS_PEER_FAILED with the rank's number if a local process has died, else MXS_OK. Cheap.
  virtual mxs_status check_peers() = 0;

 protected:
  int local_rank_ = 0, local_count_ = 1;
  bool same_process_ = false;
  std::vector<int> ranks_;
  SharedRegion control_;
};

// ranks: of this rank's node, ascending, this one included; all call at once. Bootstrap is used for handshakes (all
// ranks of the comm take part, those with no local peers as well). Processes are proved to be local by mapping each
// other's control region and reading a word there.
mxs_status create_domain(std::unique_ptr<Domain> *domain, Bootstrap &bootstrap, const std::vector<int> &ranks,
                         uint64_t session, uint64_t timeout_ns);

}  // namespace mxs
