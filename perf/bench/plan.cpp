// SPDX-License-Identifier: Apache-2.0
// plan: how long it takes to place a model's tensors on so many ranks, and how even the loads become.
//
// A plan is a pure function, so one process measures it; under mxs run every rank would do the same.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "bench/commands.hpp"
#include "bench/model.hpp"
#include "bench/report.hpp"

namespace bench {

namespace {

struct Load {
  double worst = 0, mean = 0;
  void add(double value, int rank_count) {
    worst = std::max(worst, value);
    mean += value / rank_count;
  }
  double skew() const { return mean > 0 ? worst / mean : 0; }
};

rusage usage_so_far() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

// Of this process so far, with the model and one plan at a time.
double memory_max_mib() { return static_cast<double>(usage_so_far().ru_maxrss) / 1024; }

// One thread plans, so this is what its time would be on a machine that does nothing else.
double cpu_ms() {
  const rusage usage = usage_so_far();
  const auto ms = [](const timeval &time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) * 1e-3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

std::string topology_words(int ranks) {
  return ranks % 8 == 0 ? fmt::format("nodes:{} ranks:8", ranks / 8) : fmt::format("ranks:{}", ranks);
}

void measure(const Options &options, const Model &model, int ranks, JsonFile *json) {
  const mxs::topology topology = mxs::make_topology(topology_words(ranks).c_str());
  std::vector<double> times_ms, cpu_times_ms;
  mxs::plan plan;
  for (int turn = -options.warmups; turn < options.iterations; turn++) {
    plan.reset();  // one at a time, for the memory that is told
    const double start = now_us(), cpu_start = cpu_ms();
    plan = mxs::make_plan(model.tensors, topology);
    if (turn < 0) continue;
    times_ms.push_back((now_us() - start) * 1e-3);
    cpu_times_ms.push_back(cpu_ms() - cpu_start);
  }
  const double memory_mib = memory_max_mib();
  Load bytes, flops, matrices;
  for (int rank = 0; rank < ranks; rank++) {
    mxs_rank_load load = MXS_RANK_LOAD_INIT;
    mxs::check(mxs_plan_rank(plan.get(), rank, &load));
    bytes.add(static_cast<double>(load.owned_bytes), ranks);
    flops.add(load.step_flops, ranks);
    matrices.add(load.matrix_count, ranks);
  }
  const double cpu = median(cpu_times_ms);
  const double least = *std::min_element(times_ms.begin(), times_ms.end()), middle = median(times_ms),
               most = *std::max_element(times_ms.begin(), times_ms.end());
  fmt::print("{:>9} {:>9} {:>10.3f} {:>10.3f} {:>10.3f} | {:>10.2f} {:>10.2f} {:>6.2f} | {:>10.3f} {:>10.3f} "
             "{:>6.2f} | {:>8} {:>12.0f}\n",
             model.tensors.size(), ranks, middle, least, cpu, bytes.worst / (1 << 20), bytes.mean / (1 << 20),
             bytes.skew(), flops.worst * 1e-9, flops.mean * 1e-9, flops.skew(), matrices.worst, memory_mib);
  json->write_line(
      fmt::format("{{\"operation\": \"plan\", \"tensors\": {}, \"units\": {}, \"elements\": {}, \"ranks\": {}, "
                  "\"time_us\": {{\"min\": {:.3f}, \"median\": {:.3f}, \"max\": {:.3f}}}, "
                  "\"cpu_us\": {:.3f}, \"owned_bytes\": {{\"max\": {:.0f}, \"mean\": {:.1f}}}, "
                  "\"step_flops\": {{\"max\": {:.0f}, \"mean\": {:.1f}}}, \"matrices_max\": {}, "
                  "\"memory_max_mib\": {:.1f}}}",
                  model.tensors.size(), model.unit_count, model.element_count, ranks, least * 1e3, middle * 1e3,
                  most * 1e3, cpu * 1e3, bytes.worst, bytes.mean, flops.worst, flops.mean, matrices.worst, memory_mib));
}

}  // namespace

int plan(const Options &options) {
  const Model model = make_model(options);
  JsonFile json(options.json);
  fmt::print("# plan: {} units of {}: {} tensors, {} elements; medians of {} after {}\n#\n", model.unit_count,
             options.shapes, model.tensors.size(), model.element_count, options.iterations, options.warmups);
  fmt::print("# {:>8} {:>8} {:>32} | {:^28} | {:^28} | {:>8} {:>12}\n", "tensors", "ranks", "time (ms)", "owned (MiB)",
             "step (Gflop)", "matrices", "memory (MiB)");
  fmt::print("# {:>7} {:>9} {:>10} {:>10} {:>10} | {:>10} {:>10} {:>6} | {:>10} {:>10} {:>6} | {:>8} {:>12}\n", "", "",
             "median", "least", "cpu", "worst", "mean", "w/m", "worst", "mean", "w/m", "worst", "process max");
  for (const int ranks : options.plan_ranks) measure(options, model, ranks, &json);
  return 0;
}

}  // namespace bench
