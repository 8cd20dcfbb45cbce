// SPDX-License-Identifier: Apache-2.0
// plan: how long it takes to place a model's tensors on so many ranks, and how even the loads become.
//
// A plan is a pure function, so one process measures it; under mxs run every rank would do the same.
#include <fmt/format.h>

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

std::string topology_words(int ranks) {
  return ranks % 8 == 0 ? fmt::format("nodes:{} ranks:8", ranks / 8) : fmt::format("ranks:{}", ranks);
}

void measure(const Options &options, const Model &model, int ranks, JsonFile *json) {
  const mxs::topology topology = mxs::make_topology(topology_words(ranks).c_str());
  std::vector<double> times_ms;
  mxs::plan plan;
  for (int turn = -options.warmups; turn < options.iterations; turn++) {
    const double start = now_us();
    plan = mxs::make_plan(model.tensors, topology);
    if (turn >= 0) times_ms.push_back((now_us() - start) * 1e-3);
  }
  Load bytes, flops, matrices;
  for (int rank = 0; rank < ranks; rank++) {
    mxs_rank_load load = MXS_RANK_LOAD_INIT;
    mxs::check(mxs_plan_rank(plan.get(), rank, &load));
    bytes.add(static_cast<double>(load.owned_bytes), ranks);
    flops.add(load.step_flops, ranks);
    matrices.add(load.matrix_count, ranks);
  }
  const double least = *std::min_element(times_ms.begin(), times_ms.end()), middle = median(times_ms),
               most = *std::max_element(times_ms.begin(), times_ms.end());
  fmt::print("{:>9} {:>9} {:>10.3f} {:>10.3f} | {:>10.2f} {:>10.2f} {:>6.2f} | {:>10.3f} {:>10.3f} {:>6.2f} | {:>8}\n",
             model.tensors.size(), ranks, middle, least, bytes.worst / (1 << 20), bytes.mean / (1 << 20), bytes.skew(),
             flops.worst * 1e-9, flops.mean * 1e-9, flops.skew(), matrices.worst);
  json->write_line(
      fmt::format("{{\"operation\": \"plan\", \"tensors\": {}, \"units\": {}, \"elements\": {}, \"ranks\": {}, "
                  "\"time_us\": {{\"min\": {:.3f}, \"median\": {:.3f}, \"max\": {:.3f}}}, "
                  "\"owned_bytes\": {{\"max\": {:.0f}, \"mean\": {:.1f}}}, "
                  "\"step_flops\": {{\"max\": {:.0f}, \"mean\": {:.1f}}}, \"matrices_max\": {}}}",
                  model.tensors.size(), model.unit_count, model.element_count, ranks, least * 1e3, middle * 1e3,
                  most * 1e3, bytes.worst, bytes.mean, flops.worst, flops.mean, matrices.worst));
}

}  // namespace

int plan(const Options &options) {
  const Model model = make_model(options);
  JsonFile json(options.json);
  fmt::print("# plan: {} units of {}: {} tensors, {} elements; medians of {} after {}\n#\n", model.unit_count,
             options.shapes, model.tensors.size(), model.element_count, options.iterations, options.warmups);
  fmt::print("# {:>8} {:>8} {:>21} | {:^28} | {:^28} | {:>8}\n", "tensors", "ranks", "time (ms)", "owned (MiB)",
             "step (Gflop)", "matrices");
  fmt::print("# {:>7} {:>9} {:>10} {:>10} | {:>10} {:>10} {:>6} | {:>10} {:>10} {:>6} | {:>8}\n", "", "", "median",
             "least", "worst", "mean", "w/m", "worst", "mean", "w/m", "worst");
  for (const int ranks : options.plan_ranks) measure(options, model, ranks, &json);
  return 0;
}

}  // namespace bench
