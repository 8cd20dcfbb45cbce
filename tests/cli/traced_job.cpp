// SPDX-License-Identifier: Apache-2.0
// A rank of a job, for inspect.py: traced_job HOW WHERE. HOW: "run" to a good end, or rank 2 is to "stop" or "kill"
// itself before the WHERE that comes after some good ones: "gather", "barrier" or "sum".
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "matrixshard/matrixshard.h"

namespace {

constexpr uint64_t bytes = 1 << 20;

struct Job {
  mxs_comm *comm = nullptr;
  mxs_layout *layout = nullptr;
  mxs_collective *gather = nullptr;
  void *target = nullptr;

  mxs_status create();
  mxs_status go(const std::string &where);
  ~Job() {
    mxs_collective_destroy(&gather);
    if (target) mxs_comm_free(comm, target);
    mxs_layout_destroy(&layout);
    mxs_comm_destroy(&comm);
  }
};

mxs_status Job::create() {
  mxs_status status = mxs_comm_create(&comm, nullptr);
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (status == MXS_OK) status = mxs_comm_query(comm, &info);
  if (status == MXS_OK) status = mxs_layout_create_even(&layout, bytes, 1, info.rank_count);
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = MXS_GATHER;
  options.layout = layout;
  if (status == MXS_OK) status = mxs_collective_create(&gather, comm, &options);
  return status == MXS_OK ? mxs_comm_allocate(comm, bytes, MXS_HOST, &target) : status;
}

mxs_status Job::go(const std::string &where) {
  if (where == "barrier") return mxs_comm_barrier(comm, nullptr);
  double value = 1;
  if (where == "sum") return mxs_comm_sum(comm, &value, 1, nullptr);
  const mxs_status status = mxs_collective_start(gather, nullptr, target, nullptr);
  return status == MXS_OK ? mxs_collective_wait(gather, nullptr) : status;
}

mxs_status run(const std::string &how, const std::string &where) {
  Job job;
  mxs_status status = job.create();
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (status == MXS_OK) status = mxs_comm_query(job.comm, &info);
  for (int turn = 0; turn < 20 && status == MXS_OK; ++turn) status = job.go(where);
  if (status == MXS_OK && info.rank == 2 && how != "run") kill(getpid(), how == "stop" ? SIGSTOP : SIGKILL);
  if (status == MXS_OK) status = job.go(where);
  if (status != MXS_OK) std::fprintf(stderr, "%s\n", mxs_last_error());
  return status;
}

}  // namespace

int main(int count, char **words) { return count == 3 && run(words[1], words[2]) == MXS_OK ? 0 : 1; }
