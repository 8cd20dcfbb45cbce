/* SPDX-License-Identifier: Apache-2.0 */
// cuda.h as the one who implements it sees it: its macros name the versions (cuMemAlloc is cuMemAlloc_v2).
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop
