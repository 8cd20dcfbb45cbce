// SPDX-License-Identifier: Apache-2.0
// mxs-perf: how fast the collectives, the step and the planner are here, in the manner of nccl-tests.
//
//   mxs run -n 4 -- mxs-perf gather -b 1M -e 256M -f 2 --layout k:2 --compare all
//
// It uses the public interface only. docs/measuring.md says what every figure is.
#include <cstdio>
#include <exception>

#include "bench/commands.hpp"
#include "cli/standard_streams.hpp"
#include "matrixshard/matrixshard.hpp"

namespace {

int run(const bench::Options &options) {
  switch (options.command) {
    case bench::Command::latency: return bench::latency(options);
    case bench::Command::idle: return bench::idle(options);
    case bench::Command::step: return options.local ? bench::step_local(options) : bench::step(options);
    case bench::Command::plan: return bench::plan(options);
    case bench::Command::tune: return bench::tune(options);
    case bench::Command::checkpoint: return bench::checkpoint(options);
    default: return bench::sweep(options);
  }
}

// A failure has nothing to save: it is said, and the comm's end tells the other ranks.
int perform(int count, char **words) {
  bench::Options options;
  int status = 0;
  if (!bench::read_options(count, words, &options, &status)) return status;
  try {
    return run(options);
  } catch (const mxs::error &error) {
    std::fprintf(stderr, "mxs-perf: %s: %s\n", mxs_status_name(error.status()), error.what());
    return error.status() == MXS_INVALID_ARGUMENT || error.status() == MXS_NOT_FOUND ? 2 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "mxs-perf: %s\n", error.what());
    return 1;
  }
}

}  // namespace

int main(int count, char **words) {
  mxs_cli::occupy_standard_streams();
  return mxs_cli::status_after_output("mxs-perf", perform(count, words));
}
