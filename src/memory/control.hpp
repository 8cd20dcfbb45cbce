// SPDX-License-Identifier: Apache-2.0
// The control region of a rank: what it shows its local peers, and what all of them share (in local rank 0's).
//
// A new file is all zeros, which is every field's first value. Fields that different ranks write are 128 bytes apart
// (two lines: some CPUs prefetch in pairs).
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "memory/domain.hpp"

namespace mxs {

struct DomainControl {
  // Written by the rank that the region belongs to.
  alignas(128) std::atomic<uint64_t> proof;  // the number that the rank gave over the bootstrap
  std::atomic<uint32_t> left;                // its Domain was destroyed in good order
  std::atomic<uint32_t> failed;              // it has announced a failure, for this reason
  std::atomic<int32_t> core;                 // that it was last seen on, plus one; 0: not seen yet
  char reason[256];
  cpu_set_t cores;                           // that it may run on
  SharedCounter counters[Domain::counter_count];
  alignas(128) std::atomic<uint64_t> parameters[Domain::operation_window][Domain::parameter_count];
  // Used in local rank 0's region only, by everybody.
  alignas(128) std::atomic<uint32_t> event;    // counts posts; the futex word
  alignas(128) std::atomic<uint32_t> waiters;  // asleep or about to; a killed rank may leave it too high: harmless
  SharedWork works[Domain::operation_window];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace mxs
