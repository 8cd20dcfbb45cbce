// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/options.hpp"
#include "bench/report.hpp"

namespace bench {

// The element passes of a step beside memcpy and an in-place scale, one table for a number of threads.
void measure_passes(const Options &options, int threads, JsonFile *json);

}  // namespace bench
