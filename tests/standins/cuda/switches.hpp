/* SPDX-License-Identifier: Apache-2.0 */
// The stand-in's switches: environment variables, read at cuInit; mxs_standin_set_switch() changes them later on.
//
//   MXS_STANDIN_DEVICES=n                1. 0: cuInit finds no device. CUDA_VISIBLE_DEVICES picks among them
//   MXS_STANDIN_DRIVER_VERSION=n         13000. Functions that came later are not in cuGetProcAddress
//   MXS_STANDIN_MEMORY=bytes             of each device, 4 GiB. What goes beyond is CUDA_ERROR_OUT_OF_MEMORY
//   MXS_STANDIN_FAIL_ALLOCATION_AFTER=n  the first n calls of cuMemAlloc, cuMemCreate and cuMemHostAlloc from now on
//                                        succeed, all that follow are out of memory
//   MXS_STANDIN_FAIL_JOB_AFTER=n         n more jobs succeed, then one fails: a sticky CUDA_ERROR_ECC_UNCORRECTABLE
//   MXS_STANDIN_NO_VMM=1                 devices without virtual memory management
//   MXS_STANDIN_NO_WAIT_VALUE=1          devices without cuStreamWaitValue32
//   MXS_STANDIN_COMPUTE=n                90: compute capability 9.0. Below 80 no image has code for it
//   MXS_STANDIN_PCI=address,address      of the devices in turn; default 0000:81:00.0, 0000:82:00.0, ...
//   MXS_STANDIN_SLOW=microseconds        each job sleeps first, so that what isn't ordered by events comes out wrong.
//   MXS_STANDIN_SLOW_STREAMS=which       odd, even: only the streams with such a number (0: the default stream; then in
//                                        the order of their creation), so that either of two streams is the late one
//   MXS_STANDIN_SLOW_SEED=n              each job sleeps 0 to 2 times as long, drawn by this seed
//   MXS_STANDIN_DROP_WAIT=n              n more waits of streams for events are made, the next one is left out: what a
//                                        program looks like that has forgotten it. Not in captures
//   MXS_STANDIN_MISSING=symbol,symbol    functions, with or without _v2, that this driver has not: cuGetProcAddress
//                                        doesn't find them. An exported symbol can't be hidden from dlsym: such a call
//                                        fails with CUDA_ERROR_NOT_SUPPORTED
//   MXS_STANDIN_KERNELS=path             library of the kernels' twins, NAME_on_cpu
//   MXS_STANDIN_GUARD=0                  leaves device memory open to the host. Default: it is readable only while a
//                                        copy or a kernel runs, so that host code that reads it crashes as with a GPU
//   MXS_STANDIN_TRACE=file               one line for each call and each job is appended
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace standin {

struct Switches {
  int device_count = 1;
  int driver_version = 13000;
  uint64_t memory_bytes = uint64_t{4} << 30;
  int64_t allocations_left = -1;  // negative: no limit
  int64_t jobs_left = -1;
  int64_t waits_left = -1;
  bool has_vmm = true;
  bool has_wait_value = true;
  int compute = 90;
  std::vector<std::string> pci_addresses;
  uint64_t slow_microseconds = 0;
  bool slows_odd = true, slows_even = true;
  bool has_seed = false;
  uint64_t seed = 0;
  std::set<std::string> missing;
  std::string kernels_path;
  bool guards = true;
};

// False: there is no such switch. nullptr: its default.
bool set_switch(Switches *switches, const char *name, const char *value);
Switches switches_of_environment();

}  // namespace standin
