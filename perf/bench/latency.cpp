// SPDX-License-Identifier: Apache-2.0
// latency: a gather of a few bytes, start after start without a barrier.
//
// In the even layout every rank has bytes that the others need, so that no rank can run ahead: each gather includes
// the way of the slowest rank's bytes to all others. The clock is read once per gather, about 20 ns, and is in it.
#include <fmt/format.h>

#include "bench/commands.hpp"
#include "bench/job.hpp"
#include "bench/report.hpp"

namespace bench {

namespace {

std::vector<double> measure(Contender &gather, const Options &options) {
  std::vector<double> times_us(static_cast<size_t>(options.iterations));
  for (int turn = 0; turn < options.warmups; turn++) gather.run(Form::in_place);
  double before = now_us();
  for (double &time_us : times_us) {
    gather.run(Form::in_place);
    const double after = now_us();
    time_us = after - before;
    before = after;
  }
  return times_us;
}

}  // namespace

int latency(const Options &options) {
  Ranks ranks(options);
  JsonFile json(ranks.is_first() ? options.json : "");
  const auto job = make_gather(ranks, options, options.bytes_first);
  ranks.print_header(fmt::format("gathers of {} bytes, one after the other, {} after {}; {}{}", job->bytes(),
                                 options.iterations, options.warmups, options.spin ? "callers spin" : "callers wait",
                                 options.pin ? ", each rank on a core" : ""));
  const auto gather = job->make(options.algorithm);
  job->prepare(Form::in_place, 1);
  ranks.barrier();
  const std::vector<double> times_us = measure(*gather, options);
  const double middle = ranks.largest(percentile(times_us, 0.5)), most = ranks.largest(percentile(times_us, 0.9)),
               nearly_all = ranks.largest(percentile(times_us, 0.99));
  const double wrong = ranks.largest(static_cast<double>(job->count_wrong(Form::in_place, 1)));
  if (!ranks.is_first()) return ranks.end(wrong > 0);
  fmt::print("{}: median {:.3f} us, 90 % {:.3f} us, 99 % {:.3f} us (each the slowest rank's); {} wrong\n",
             gather->name(), middle, most, nearly_all, wrong);
  json.write_line(fmt::format("{{\"operation\": \"latency\", \"bytes\": {}, \"layout\": {}, \"ranks\": {}, "
                              "\"nodes\": {}, "
                              "\"algorithm\": {}, \"spin\": {}, \"pin\": {}, \"time_us\": {{\"median\": {:.4f}, "
                              "\"p90\": {:.4f}, \"p99\": {:.4f}}}, \"wrong\": {}}}",
                              job->bytes(), quoted(options.layout), ranks.count(), ranks.info().node_count,
                              quoted(gather->name()), options.spin, options.pin, middle, most, nearly_all, wrong));
  return ranks.end(wrong > 0);
}

}  // namespace bench
