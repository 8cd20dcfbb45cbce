// SPDX-License-Identifier: Apache-2.0
// What this process is: has it been forked, on which node does it live.
#pragma once

#include <cstdint>

namespace mxs {

// Grows by one in each forked child. A load, where getpid would be a system call on every call of the library.
uint64_t process_generation();

uint64_t random_number();

// Equal for threads of one process, different for any two processes.
uint64_t process_label();

// Equal for processes of one boot, network namespace and IPC namespace, or of one MXS_NODE. A guess, to be proved:
// the boot id alone is equal in all containers of a host.
uint64_t node_label();
// The same on processes that reach each other at 127.0.0.1.
uint64_t network_label();

// Cores that this process may use, at least 1.
int usable_core_count();

}  // namespace mxs
