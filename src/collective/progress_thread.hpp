// SPDX-License-Identifier: Apache-2.0
// Progress thread: carries a comm's operations on while callers compute.
//
//   nothing in flight            asleep until a start rings
//   a caller waits in a call     asleep: that one makes progress itself. Rung by the last that leaves
//   else                         makes progress as a wait does: busy for a moment, then asleep until a link has more
//
// It never holds the comm's progress while it sleeps. A ring is a system call only if the thread is asleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "matrixshard/status.h"
#include "memory/region.hpp"

namespace mxs {

class Comm;

class ProgressThread {
 public:
  explicit ProgressThread(Comm &comm) : comm_(comm) {}
  ~ProgressThread();  // joins it

  // cores: where it is to run; empty, or none that this process may use: anywhere.
  mxs_status start(const std::vector<int> &cores);
  // What the thread sleeps over may have changed. Any thread.
  void ring();

  // The thread itself: sleeps until it is rung, or the file (-1: none) is readable; at most so long (UINT64_MAX: for
  // ever). idle: not at all if there is work.
  void rest(int file, uint64_t at_most_ns, bool idle);
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

 private:
  void run(const std::vector<int> &cores);

  Comm &comm_;
  File bell_;  // an eventfd
  std::atomic<bool> asleep_{false}, stopped_{false};
  std::thread thread_;
};

}  // namespace mxs
