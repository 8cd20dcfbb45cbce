// SPDX-License-Identifier: Apache-2.0
// idle: the last rank comes late to a gather; how much cpu time do the others spend until it is complete?
//
// Shown is cpu time over wall time of the busiest waiting rank, over all threads of its process, in percent of a core.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "bench/commands.hpp"
#include "bench/job.hpp"
#include "bench/report.hpp"

namespace bench {

int idle(const Options &options) {
  Ranks ranks(options);
  if (ranks.count() < 2)
    throw mxs::error(MXS_INVALID_ARGUMENT, "idle wants at least 2 ranks: one that is late and one that waits");
  JsonFile json(ranks.is_first() ? options.json : "");
  const auto job = make_gather(ranks, options, options.bytes_first);
  ranks.print_header(fmt::format("the last rank is {} ms late for a gather of {} bytes, {} memory, {} times; {}",
                                 options.late_ms, job->bytes(), options.heap ? "heap" : "mapped", options.iterations,
                                 options.spin ? "callers spin" : "callers wait"));
  const auto gather = job->make("");
  job->prepare(Form::in_place, 1);
  const bool is_late = ranks.rank() == ranks.count() - 1;
  std::vector<double> parts, walls;
  for (int turn = -options.warmups; turn < options.iterations; turn++) {
    ranks.barrier();
    if (is_late) std::this_thread::sleep_for(std::chrono::milliseconds(options.late_ms));
    const double cpu = cpu_us(), wall = now_us();
    gather->run(Form::in_place);
    const double cpu_used = cpu_us() - cpu, passed = now_us() - wall;
    if (turn < 0) continue;
    parts.push_back(is_late ? 0 : 100 * cpu_used / passed);
    walls.push_back(is_late ? 0 : passed * 1e-3);
  }
  const double part = ranks.largest(median(parts)), wall_ms = ranks.largest(median(walls));
  const double wrong = ranks.largest(static_cast<double>(job->count_wrong(Form::in_place, 1)));
  if (!ranks.is_first()) return ranks.end(wrong > 0);
  fmt::print("{}: waits of {:.1f} ms took {:.2f} % of a core on the busiest rank; {} wrong\n", gather->name(), wall_ms,
             part, wrong);
  json.write_line(fmt::format("{{\"operation\": \"idle\", \"bytes\": {}, \"ranks\": {}, \"nodes\": {}, \"memory\": {}, "
                              "\"algorithm\": {}, \"spin\": {}, \"late_ms\": {}, \"wall_ms\": {:.3f}, "
                              "\"cpu_percent\": {:.3f}, \"wrong\": {}}}",
                              job->bytes(), ranks.count(), ranks.info().node_count,
                              quoted(options.heap ? "heap" : "mapped"), quoted(gather->name()), options.spin,
                              options.late_ms, wall_ms, part, wrong));
  return ranks.end(wrong > 0);
}

}  // namespace bench
