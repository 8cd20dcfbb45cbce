// SPDX-License-Identifier: Apache-2.0
// mxs-perf-trace: what a trace costs.
//
//   mxs run -n 4 -- mxs-perf-trace [folder [rounds]]     (4 ranks, /dev/shm/mxs-perf-trace, 15)
//
// Two comms of the same ranks, one with a ring in the folder and one without, take turns: in each round a million calls
// of mxs_comm_phase, which is one event and nothing else; barriers; gathers of 4 KiB and of 64 MiB inside the node.
// Told are medians over rounds, of rank 0. A gather in which a rank waits is two events, its operation and its wait,
// and the ends of both.
#include <matrixshard/matrixshard.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

void must(mxs_status status) {
  if (status >= 0) return;
  std::fprintf(stderr, "%s: %s\n", mxs_status_name(status), mxs_last_error());
  std::exit(1);
}

struct Gather {
  mxs_layout *layout = nullptr;
  mxs_collective *collective = nullptr;
  void *target = nullptr;
};

struct Side {
  mxs_comm *comm = nullptr;
  Gather small, large;
};

Gather make_gather(mxs_comm *comm, int32_t rank_count, uint64_t bytes) {
  Gather made;
  must(mxs_layout_create_even(&made.layout, bytes, 1, rank_count));
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = MXS_GATHER;
  options.layout = made.layout;
  must(mxs_collective_create(&made.collective, comm, &options));
  must(mxs_comm_allocate(comm, bytes, MXS_HOST, &made.target));
  return made;
}

Side make_side(int32_t *rank) {
  Side side;
  must(mxs_comm_create(&side.comm, nullptr));
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  must(mxs_comm_query(side.comm, &info));
  *rank = info.rank;
  side.small = make_gather(side.comm, info.rank_count, 4096);
  side.large = make_gather(side.comm, info.rank_count, uint64_t{64} << 20);
  return side;
}

void destroy(Side *side) {
  for (Gather *gather : {&side->small, &side->large}) {
    must(mxs_collective_destroy(&gather->collective));
    must(mxs_comm_free(side->comm, gather->target));
    mxs_layout_destroy(&gather->layout);
  }
  must(mxs_comm_destroy(&side->comm));
}

void gather_once(const Gather &gather) {
  must(mxs_collective_start(gather.collective, nullptr, gather.target, nullptr));
  must(mxs_collective_wait(gather.collective, nullptr));
}

// Nanoseconds of one call.
double time_of(const Side &side, int turns, const std::function<void(const Side &side)> &call) {
  must(mxs_comm_barrier(side.comm, nullptr));
  const auto begin = std::chrono::steady_clock::now();
  for (int turn = 0; turn < turns; ++turn) call(side);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / turns;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Part {
  const char *name;
  int turns;
  std::function<void(const Side &side)> call;
};

}  // namespace

int main(int count, char **words) {
  const std::string folder = count > 1 ? words[1] : "/dev/shm/mxs-perf-trace";
  const int rounds = count > 2 ? std::max(1, std::atoi(words[2])) : 15;
  int32_t rank = 0;
  Side plain = make_side(&rank);
  setenv("MXS_RING", folder.c_str(), 1);
  Side traced = make_side(&rank);
  const std::vector<Part> parts = {
      {"event", 1'000'000, [](const Side &side) { must(mxs_comm_phase(side.comm, MXS_PHASE_OTHER)); }},
      {"barrier", 2000, [](const Side &side) { must(mxs_comm_barrier(side.comm, nullptr)); }},
      {"gather of 4 KiB", 2000, [](const Side &side) { gather_once(side.small); }},
      {"gather of 64 MiB", 3, [](const Side &side) { gather_once(side.large); }},
  };
  for (const Part &part : parts) {
    std::vector<double> without, with;
    for (int round = 0; round < rounds; ++round) {
      without.push_back(time_of(plain, part.turns, part.call));
      with.push_back(time_of(traced, part.turns, part.call));
    }
    if (rank == 0)
      std::printf("%-16s  without a trace %10.1f ns, with a ring %10.1f ns\n", part.name, median(without),
                  median(with));
  }
  destroy(&traced);
  destroy(&plain);
  return 0;
}
