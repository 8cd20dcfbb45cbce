// SPDX-License-Identifier: Apache-2.0
// Does a process run? For readers of rings, which know it by its id, its start and its machine.
#pragma once

#include <cstdint>
#include <string>

namespace mxs {

uint64_t this_machine();  // a hash of boot and PID namespace; 0: not to be told
uint64_t process_start(int process);  // in clock ticks after boot; 0: there is no such process
std::string host_name();

struct ProcessState {
  int alive = -1;        // 1: it runs; 0: it has ended; -1: not to be told from here
  bool stopped = false;  // by a signal, or by a debugger
};
ProcessState look_at_process(uint64_t machine, int process, uint64_t start);

}  // namespace mxs
