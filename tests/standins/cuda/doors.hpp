/* SPDX-License-Identifier: Apache-2.0 */
// Functions of the stand-in libcuda.so.1 that no driver has; found by dlsym. A real driver has none of them, by which a
// program sees where it is.
#pragma once

#include "driver_api.hpp"

#pragma GCC visibility push(default)
extern "C" {

// A switch of switches.hpp from now on; nullptr: its default. Not 0: there is no such switch.
int mxs_standin_set_switch(const char *name, const char *value);

// 1: [pointer, pointer + bytes) is device memory that kernels can reach.
int mxs_standin_is_device(const void *pointer, size_t bytes, int *device);

}  // extern "C"
#pragma GCC visibility pop
