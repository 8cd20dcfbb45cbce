// SPDX-License-Identifier: Apache-2.0
// One rank of a job that perf/cluster runs; cluster.py reads what it prints.
//
//   test_cluster_ranks collect                    every layout, gathered and reduced, with all its values compared
//   test_cluster_ranks gather BYTES OWNERS NAME   once, by the algorithm of that name
//   test_cluster_ranks lanes                      joins, and prints what the library logs meanwhile
//   test_cluster_ranks on SECONDS                 gathers and reduces until something fails: status 7. Each may take
//                                                 so long
//   test_cluster_ranks shrink SECONDS             the same; then the living go on, and collect. Status 7: this rank may
//                                                 not
//   test_cluster_ranks leave                      rank 0 waits in a barrier; the others come 1 s later, and leave
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collective/cases.hpp"
#include "matrixshard/comm.h"

using namespace mxs::test;

namespace {

constexpr int status_failed = 7;  // the comm failed, as the test wants it
constexpr int turns_max = 100'000;

std::string collect(mxs_comm *comm, const mxs_comm_info &info) {
  for (const TestLayout &layout : test_layouts(info.rank_count, 4, 5001))
    for (const int32_t kind : {MXS_GATHER, MXS_REDUCE})
      for (const int32_t flags : {0, kind == MXS_REDUCE ? MXS_RANK_ORDER : 0}) {
        Case each;
        each.layout = &layout;
        each.kind = kind;
        each.flags = flags;
        const std::string complaint = run_case(info.rank, info.rank_count, comm, each);
        if (!complaint.empty()) return complaint;
      }
  return "";
}

TestLayout layout_of(uint64_t bytes, int owners, int rank_count) {
  TestLayout layout("owners", 1);
  for (int i = 0; i < owners; ++i) layout.add(i * rank_count / owners, bytes / static_cast<uint64_t>(owners) / 4 * 4);
  return layout;
}

std::string gather(mxs_comm *comm, const mxs_comm_info &info, uint64_t bytes, int owners, const char *algorithm) {
  const TestLayout layout = layout_of(bytes, owners, info.rank_count);
  Case each;
  each.layout = &layout;
  each.algorithm = algorithm;
  OwnedCollective collective;
  if (make(&collective, comm, each, info.rank_count) != MXS_OK) return error_of("create");
  return gather_once(info.rank, collective.value, each, 1);
}

// Joining may take its time on a busy machine; an operation may not.
std::string go_on(mxs_comm *comm, const mxs_comm_info &info, uint64_t seconds) {
  const TestLayout layout = layout_of(uint64_t{1} << 20, 2, info.rank_count);
  OwnedCollective collectives[2];
  for (const int32_t kind : {MXS_GATHER, MXS_REDUCE}) {
    Case each;
    each.layout = &layout;
    each.kind = kind;
    if (make(&collectives[kind], comm, each, info.rank_count) != MXS_OK) return error_of("create");
  }
  std::vector<float> whole(layout.bytes / sizeof(float)), sums(whole.size());
  mxs_call call = MXS_CALL_INIT;
  call.timeout_ns = seconds * 1'000'000'000u;
  for (int turn = 0; turn < turns_max; ++turn) {
    mxs_collective *collective = collectives[turn % 2].value;
    void *const target = turn % 2 == MXS_GATHER ? whole.data() : sums.data();
    if (mxs_collective_start(collective, turn % 2 == MXS_GATHER ? nullptr : whole.data(), target, &call) != MXS_OK)
      return error_of("start");
    if (mxs_collective_wait(collective, &call) != MXS_OK) return error_of("wait");
    if (turn > 0 || info.rank > 0) continue;
    std::printf("it runs\n");
    std::fflush(stdout);
  }
  return "";
}

std::string leave(mxs_comm *comm, const mxs_comm_info &info) {
  for (int turn = 0; turn < 10; ++turn)  // until every link is made
    if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("an early barrier");
  if (info.rank == 0) {
    std::printf("it runs\n");
    std::fflush(stdout);
  } else {
    sleep(1);
  }
  return mxs_comm_barrier(comm, nullptr) == MXS_OK ? "" : error_of("barrier");
}

// After a failure; takes the failed comm away.
std::string go_on_with_the_living(mxs_comm **comm, uint64_t seconds) {
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.timeout_ns = seconds * 1'000'000'000u;
  mxs_comm *living = nullptr;
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_shrink(&living, *comm, &options) != MXS_OK) return error_of("shrink");
  mxs_comm_destroy(comm);
  *comm = living;
  if (mxs_comm_query(living, &info) != MXS_OK) return error_of("query");
  std::string who;
  for (int rank = 0; rank < info.rank_count; ++rank) {
    int32_t origin = -1;
    if (mxs_comm_origin(living, rank, &origin) != MXS_OK) return error_of("origin");
    who.append(" ").append(std::to_string(origin));
  }
  const std::string complaint = collect(living, info);
  if (complaint.empty()) std::printf("went on with%s\n", who.c_str());
  return complaint;
}

// Request 0 was never begun, which a comm that lives says.
bool has_failed(mxs_comm *comm) {
  if (!comm) return false;
  const mxs_status status = mxs_comm_test(comm, 0);
  return status != MXS_OK && status != MXS_INVALID_ARGUMENT;
}

}  // namespace

int main(int count, char **words) {
  const std::string task = count > 1 ? words[1] : "";
  if (task == "lanes")
    mxs_set_log([](void *, int32_t, const char *line) { std::printf("%s\n", line); }, nullptr, MXS_LOG_INFO);
  mxs_comm *comm = nullptr;
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  std::string complaint;
  if (mxs_comm_create(&comm, nullptr) != MXS_OK || mxs_comm_query(comm, &info) != MXS_OK) {
    complaint = error_of("joining");
  } else {
    std::printf("rank %d of %d, node %d of %d, by %s\n", info.rank, info.rank_count, info.node, info.node_count,
                info.transports);
    if (task == "lanes") complaint = "";
    else if (task == "collect") complaint = collect(comm, info);
    else if (task == "gather" && count == 5)
      complaint = gather(comm, info, std::strtoull(words[2], nullptr, 10), std::atoi(words[3]), words[4]);
    else if (task == "leave") complaint = leave(comm, info);
    else if (task == "on" && count == 3) complaint = go_on(comm, info, std::strtoull(words[2], nullptr, 10));
    else if (task == "shrink" && count == 3) complaint = go_on(comm, info, std::strtoull(words[2], nullptr, 10));
    else complaint = "no such task";
  }
  if (task == "shrink" && has_failed(comm)) complaint = go_on_with_the_living(&comm, 4);
  const bool failed = has_failed(comm);
  if (!complaint.empty()) {
    std::printf("%s\n", complaint.c_str());
    if (comm && !failed) mxs_comm_abort(comm, complaint.c_str());
  }
  if (mxs_comm_destroy(&comm) != MXS_OK && complaint.empty()) {
    complaint = error_of("destroy");
    std::printf("%s\n", complaint.c_str());
  }
  return complaint.empty() ? 0 : failed ? status_failed : 1;
}
