// SPDX-License-Identifier: Apache-2.0
// Comms over ucx: processes of this machine, all pairs forced onto it. The cases are those of the matrix over loopback.
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "cases.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

ProcessOptions over_ucx() {
  ProcessOptions options;
  options.transport = "ucx";
  return options;
}

std::string meets(int rank, mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return error_of("query");
  if (std::strcmp(info.transports, "ucx") != 0) return std::string("transports are ") + info.transports;
  for (int turn = 0; turn < 20; ++turn) {
    double values[2] = {rank + 0.25, static_cast<double>(turn)};
    if (mxs_comm_sum(comm, values, 2, nullptr) != MXS_OK) return error_of("sum");
    double expected = 0;
    for (int other = 0; other < info.rank_count; ++other) expected += other + 0.25;
    if (values[0] != expected || values[1] != turn * info.rank_count) return "a sum is wrong";
    if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  }
  return "";
}

// Every kind by every algorithm on all layouts: odd sizes, owners of nothing, one owner of all.
std::string collects(int rank, int rank_count, mxs_comm *comm) {
  for (const TestLayout &layout : test_layouts(rank_count, 4, 4001))
    for (const char *algorithm : {"flat", "chain", "spread", "circulant"})
      for (const int32_t kind : {MXS_GATHER, MXS_REDUCE}) {
        Case each;
        each.layout = &layout;
        each.kind = kind;
        each.algorithm = algorithm;
        each.chunk_bytes = 4096;
        const std::string complaint = run_case(rank, rank_count, comm, each);
        if (!complaint.empty()) return complaint;
      }
  return "";
}

// Chunks that wait for their receives, 3 MiB from one owner; then sums in rank order.
std::string collects_much(int rank, int rank_count, mxs_comm *comm) {
  TestLayout layout("3 MiB of the last rank", 1);
  layout.add(rank_count - 1, 3 << 20);
  for (const char *algorithm : {"flat", "chain", "spread", "circulant"}) {
    Case each;
    each.layout = &layout;
    each.algorithm = algorithm;
    const std::string complaint = run_case(rank, rank_count, comm, each);
    if (!complaint.empty()) return complaint;
  }
  Case ordered;
  ordered.layout = &layout;
  ordered.kind = MXS_REDUCE;
  ordered.dtype = MXS_BF16;
  ordered.flags = MXS_RANK_ORDER | MXS_ACCUMULATE;
  return run_case(rank, rank_count, comm, ordered);
}

// Rank 1 dies in the middle of a stream of barriers; all others must say so, by name.
bool a_killed_rank_ends_the_comm() {
  ProcessOptions options = over_ucx();
  options.may_die = 1;
  options.meanwhile = [](const std::vector<pid_t> &processes) {
    usleep(700'000);
    kill(processes[1], SIGKILL);
  };
  return good(run_processes(3, [](int, mxs_comm *comm) -> std::string {
    mxs_status status = MXS_OK;
    while (status == MXS_OK) status = mxs_comm_barrier(comm, nullptr);
    const std::string sentence = mxs_last_error();
    if (status != MXS_PEER_FAILED) return "status " + std::string(mxs_status_name(status)) + ": " + sentence;
    return sentence.find("rank 1") != std::string::npos ? "" : "doesn't name rank 1: " + sentence;
  }, options));
}

template <std::string (*collect)(int, int, mxs_comm *)>
bool in_world(int rank_count) {
  return good(run_processes(rank_count, [&](int rank, mxs_comm *comm) { return collect(rank, rank_count, comm); },
                            over_ucx()));
}

void ranks_meet(void **) { assert_true(good(run_processes(3, meets, over_ucx()))); }
void gathers_and_reduces_are_exact(void **) {
  assert_true(in_world<collects>(2));
  assert_true(in_world<collects>(4));
}
void large_buffers_of_one_owner_arrive(void **) { assert_true(in_world<collects_much>(3)); }
void a_dead_rank_is_named_on_all_others(void **) { assert_true(a_killed_rank_ends_the_comm()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ranks_meet),
      cmocka_unit_test(gathers_and_reduces_are_exact),
      cmocka_unit_test(large_buffers_of_one_owner_arrive),
      cmocka_unit_test(a_dead_rank_is_named_on_all_others),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
