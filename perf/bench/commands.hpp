// SPDX-License-Identifier: Apache-2.0
// The commands of mxs-perf. Each returns the exit status: 0, or 1 if data were wrong; failures are thrown.
#pragma once

#include "bench/options.hpp"

namespace bench {

int sweep(const Options &options);  // gather, reduce, allreduce
int latency(const Options &options);
int idle(const Options &options);
int step(const Options &options);
int step_local(const Options &options);  // step --local
int plan(const Options &options);
int tune(const Options &options);
int checkpoint(const Options &options);

}  // namespace bench
