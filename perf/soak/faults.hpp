// SPDX-License-Identifier: Apache-2.0
// Faults, exactly where they are wanted. A rank that is to be killed or stopped has a nurse: the process that it was
// forked from, which is told through a pipe, waits some microseconds and sends the signal, so that the rank is hit in
// the midst of whatever it does then.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "soak/options.hpp"

namespace soak {

// CLOCK_MONOTONIC, the same for all processes of the machine, also those in containers.
int64_t now_ns();

// One line of JSON for the driver: {"rank": 1, "event": "...", fields}. fields: `"name": value` in JSON, or "".
void tell(int rank, const std::string &event, const std::string &fields);
std::string json_text(const std::string &text);

// The end of the pipe to the nurse; -1: there is none.
class Nurse {
 public:
  // Forks. The parent never returns: it ends as the rank does, or with 0 if it has killed it.
  static Nurse attend(int rank);
  Nurse() = default;
  void order(const Fault &fault) const;

 private:
  int pipe_ = -1;
};

// What a process holds that it might forget to give back.
struct Holdings {
  std::vector<std::string> files;  // what descriptors point to
  int shared_maps = 0, threads = 0;
  uint64_t resident_bytes = 0;

  static Holdings count();
  // "": nothing more than before.
  std::string more_than(const Holdings &before) const;
};

}  // namespace soak
