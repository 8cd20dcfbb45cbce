// SPDX-License-Identifier: Apache-2.0
// mxs-perf-wait: what a gather by reference costs once the owners have posted. No byte moves.
//
//   mxs run -n 4 -- mxs-perf-wait [unit_mib [rounds]]
//
// Each rank owns one matrix of the unit. A round: gather (which posts), a barrier so that all have posted, then the
// time of wait and of the first view; the slowest rank's median, 90 % and 99 % are printed, in nanoseconds. The clock
// itself is in them, about 20 ns.
#include <matrixshard/matrixshard.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

void must(mxs_status status) {
  if (status >= 0) return;
  std::fprintf(stderr, "%s: %s\n", mxs_status_name(status), mxs_last_error());
  std::exit(1);
}

struct Job {
  mxs_comm *comm = nullptr;
  mxs_topology *topology = nullptr;
  mxs_plan *plan = nullptr;
  mxs_unit *unit = nullptr;
  int32_t rank = 0, rank_count = 1;
};

void make_unit(Job *job, long unit_mib) {
  must(mxs_comm_create(&job->comm, nullptr));
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  must(mxs_comm_query(job->comm, &info));
  job->rank = info.rank;
  job->rank_count = info.rank_count;
  must(mxs_comm_topology(job->comm, &job->topology));
  std::vector<std::string> names;
  for (int32_t rank = 0; rank < info.rank_count; ++rank) names.push_back("matrix " + std::to_string(rank));
  std::vector<mxs_tensor> tensors;
  for (int32_t rank = 0; rank < info.rank_count; ++rank) {
    mxs_tensor tensor = MXS_TENSOR_INIT;
    tensor.name = names[rank].c_str();
    tensor.dimension_count = 2;
    tensor.shape[0] = std::max(1L, unit_mib * 256 / info.rank_count);  // rows of 4 KiB
    tensor.shape[1] = 1024;
    tensor.fixed_owner = MXS_FIXED_OWNER(rank);
    tensors.push_back(tensor);
  }
  must(mxs_plan_create(&job->plan, tensors.data(), tensors.size(), job->topology, nullptr));
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.gather = MXS_GATHER_BY_REFERENCE;
  must(mxs_unit_create(&job->unit, job->comm, job->plan, 0, &options));
}

std::vector<double> measure(const Job &job, int rounds) {
  std::vector<double> times_ns;
  for (int round = 0; round < rounds; ++round) {
    must(mxs_unit_gather(job.unit, nullptr));
    must(mxs_comm_barrier(job.comm, nullptr));
    mxs_view view = MXS_VIEW_INIT;
    const auto begin = std::chrono::steady_clock::now();
    must(mxs_unit_wait(job.unit, nullptr));
    must(mxs_unit_tensor(job.unit, 0, &view));
    const auto end = std::chrono::steady_clock::now();
    times_ns.push_back(std::chrono::duration<double, std::nano>(end - begin).count());
    must(mxs_unit_release(job.unit, MXS_FREE, nullptr));
  }
  std::sort(times_ns.begin(), times_ns.end());
  return times_ns;
}

// The largest over ranks of a value: each rank puts its own in its place of a sum.
double slowest(const Job &job, double value) {
  std::vector<double> values(static_cast<size_t>(job.rank_count), 0.0);
  values[static_cast<size_t>(job.rank)] = value;
  must(mxs_comm_sum(job.comm, values.data(), values.size(), nullptr));
  return *std::max_element(values.begin(), values.end());
}

}  // namespace

int main(int argument_count, char **arguments) {
  const long unit_mib = argument_count > 1 ? std::atol(arguments[1]) : 32;
  const int rounds = argument_count > 2 ? std::atoi(arguments[2]) : 10'000;
  if (unit_mib < 1 || unit_mib > 4096 || rounds < 1 || rounds > 10'000'000) {
    std::fprintf(stderr, "usage: mxs run -n 4 -- mxs-perf-wait [unit_mib 1..4096 [rounds 1..10000000]]\n");
    return 2;
  }
  Job job;
  make_unit(&job, unit_mib);
  mxs_comm_stats before = MXS_COMM_STATS_INIT, after = MXS_COMM_STATS_INIT;
  must(mxs_comm_query_stats(job.comm, &before));
  const std::vector<double> times_ns = measure(job, rounds);
  must(mxs_comm_query_stats(job.comm, &after));
  const uint64_t moved = after.counters[MXS_GATHER][MXS_PHASE_OTHER].bytes_in -
                         before.counters[MXS_GATHER][MXS_PHASE_OTHER].bytes_in;
  const auto at = [&](double part) {
    return slowest(job, times_ns[static_cast<size_t>(part * static_cast<double>(times_ns.size() - 1))]);
  };
  const double median = at(0.5), most = at(0.9), nearly_all = at(0.99);
  const double bytes = slowest(job, static_cast<double>(moved));
  if (job.rank == 0)
    std::printf("%d ranks, unit of %ld MiB, %d rounds: wait + view %.0f ns median, %.0f ns 90 %%, %.0f ns 99 %%, "
                "%.0f bytes moved (the slowest rank's)\n",
                job.rank_count, unit_mib, rounds, median, most, nearly_all, bytes);
  must(mxs_unit_destroy(&job.unit));
  mxs_plan_destroy(&job.plan);
  mxs_topology_destroy(&job.topology);
  must(mxs_comm_destroy(&job.comm));
  return 0;
}
