// SPDX-License-Identifier: Apache-2.0
// Does a process run? For readers of rings and for ranks that wait for it, which know it by its id, its start and its
// machine.
#pragma once

#include <cstdint>
#include <string>

namespace mxs {

struct KnownProcess {
  uint64_t machine = 0;  // a hash of boot and PID namespace; 0: not to be told
  uint64_t start = 0;    // in clock ticks after boot; the id may be another process's by now
  int64_t id = 0;
};
KnownProcess this_process();
std::string host_name();

struct ProcessState {
  int alive = -1;        // 1: it runs; 0: it has ended; -1: not to be told from here
  bool stopped = false;  // by a signal, or by a debugger
};
ProcessState look_at_process(const KnownProcess &process);

}  // namespace mxs
