// SPDX-License-Identifier: Apache-2.0
// A subset of matrix.cpp with ranks as processes: over shm, over ucx, and in memory that they share.
#include <cstdio>

#include "cases.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/transports.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

// `scale`: elements per segment. Large enough, chunks do not fit into one slot or eager message.
std::string run_all(int rank, int rank_count, mxs_comm *comm, uint64_t scale) {
  std::string complaint;
  for (const TestLayout &layout : test_layouts(rank_count, 4, scale))
    for (const char *algorithm : {"flat", "chain", "spread", static_cast<const char *>(nullptr)}) {
      Case each;
      each.layout = &layout;
      each.algorithm = algorithm;
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
      each.packed = true;
      each.chunk_bytes = 4096;
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
      each.packed = false;
      each.kind = MXS_REDUCE;
      each.dtype = MXS_BF16;
      each.flags = MXS_ACCUMULATE;
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
      each.dtype = MXS_F32;
      each.chunk_bytes = 0;
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
      each.flags = MXS_ACCUMULATE | MXS_RANK_ORDER;
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
      each.flags = MXS_RANK_ORDER;
      each.dtype = MXS_F16;
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
    }
  const TestLayout small = small_segments(rank_count);
  for (const Case &each : cases_of_several_ranges(small))
    if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
  TestLayout from("one owner", 1), to("the last", 1);
  from.add(0, 4 * scale);
  to.add(rank_count - 1, 3 * scale);
  to.add(0, scale);
  return complaint.empty() ? reshard_once(rank, rank_count, comm, from, to, 0) : complaint;
}

bool over(const char *transport, int rank_count, uint64_t scale) {
  ProcessOptions options;
  options.transport = transport;
  options.environment = {"UCX_TLS=tcp,self"};  // what is between nodes when there is no better
  return good(run_processes(
      rank_count, [&](int rank, mxs_comm *comm) { return run_all(rank, rank_count, comm, scale); }, options));
}

// Algorithms that look at nodes.
std::string run_on_nodes(int rank, int rank_count, mxs_comm *comm) {
  std::string complaint;
  for (const TestLayout &layout : test_layouts(rank_count, 4, 3001))
    for (const char *algorithm : {"chain", "circulant", "two-level-flat", "two-level-chain", "two-level-circulant"}) {
      Case each;
      each.layout = &layout;
      each.algorithm = algorithm;
      each.chunk_bytes = 1024;
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
      each.packed = true;
      each.chunk_bytes = 0;
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
      each.packed = false;
      each.kind = MXS_REDUCE;
      each.dtype = MXS_BF16;
      each.flags = MXS_ACCUMULATE;
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
      each.dtype = MXS_F32;
      each.chunk_bytes = 1024;
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
    }
  return complaint;
}

// Made up: ucx between them, shm inside each.
bool on_nodes(const std::vector<int> &nodes) {
  ProcessOptions options;
  options.environment = {"UCX_TLS=tcp,self"};
  options.nodes = nodes;
  const int rank_count = static_cast<int>(nodes.size());
  return good(run_processes(
      rank_count, [&](int rank, mxs_comm *comm) { return run_on_nodes(rank, rank_count, comm); }, options));
}

// By load and store.
std::string run_shared(int rank, int rank_count, mxs_comm *comm) {
  std::string complaint;
  for (const TestLayout &layout : test_layouts(rank_count, 4, 90000)) {
    void *source = nullptr, *target = nullptr;
    if (mxs_comm_allocate(comm, layout.bytes + 4096, MXS_HOST, &source) != MXS_OK) return error_of("allocate");
    if (mxs_comm_allocate(comm, layout.bytes * 2 + 4096, MXS_HOST, &target) != MXS_OK) return error_of("allocate");
    for (const int32_t kind : {MXS_GATHER, MXS_REDUCE}) {
      Case each;
      each.layout = &layout;
      each.kind = kind;
      each.dtype = MXS_BF16;
      each.packed = kind == MXS_GATHER;
      each.source = static_cast<std::byte *>(source);
      each.target = static_cast<std::byte *>(target);
      if (complaint.empty()) complaint = run_case(rank, rank_count, comm, each);
    }
    mxs_comm_free(comm, source);
    mxs_comm_free(comm, target);
  }
  return complaint;
}

bool in_shared_memory(int rank_count) {
  return good(run_processes(rank_count, [&](int rank, mxs_comm *comm) { return run_shared(rank, rank_count, comm); }));
}

// No memory is shared here: rank 2 learns from the tag of rank 0's message that it is in another collective. It says so
// to the others; whether they still wait for anybody then is up to their parts.
bool kinds_differ_over_ucx() {
  ProcessOptions options;
  options.transport = "ucx";
  options.environment = {"UCX_TLS=tcp,self"};
  options.comm_timeout_seconds = 60;
  return good(run_processes(3, [](int rank, mxs_comm *comm) -> std::string {
    TestLayout layout("two owners", 1);
    layout.add(0, 4096);
    layout.add(2, 8192);
    Case each;
    each.layout = &layout;
    each.algorithm = "flat";
    OwnedCollective gather, reduce;
    std::vector<std::byte> source(layout.bytes), target(layout.bytes);
    if (make(&gather, comm, each, 3) != MXS_OK) return error_of("gather");
    each.kind = MXS_REDUCE;
    if (make(&reduce, comm, each, 3) != MXS_OK) return error_of("reduce");
    mxs_collective *mine = rank == 0 ? gather.value : reduce.value;
    mxs_collective_start(mine, rank == 0 ? nullptr : source.data(), target.data(), nullptr);
    const mxs_status status = mxs_collective_wait(mine, nullptr);
    const std::string sentence = status == MXS_OK ? "" : mxs_last_error();
    if (status == MXS_TIMED_OUT) return "it timed out: " + sentence;
    if (rank != 2) return "";
    const bool said = sentence.find("rank 2 is in a reduce") != std::string::npos &&
                      sentence.find("rank 0 sent it a message of a gather") != std::string::npos;
    return status == MXS_MISMATCH && said ? "" : "it says: " + sentence;
  }, options));
}

void processes_over_shm(void **) {
  assert_true(over("shm", 2, 301));
  assert_true(over("shm", 4, 301));
  assert_true(over("shm", 3, 50000));
}
void processes_over_ucx(void **) {
  if (!has_transport("ucx")) return not_run("no ucx here");
  assert_true(over("ucx", 2, 301));
  assert_true(over("ucx", 4, 301));
  assert_true(over("ucx", 3, 50000));
}
void processes_on_several_nodes(void **) {
  if (!has_transport("ucx")) return not_run("no ucx here");
  assert_true(on_nodes({0, 0, 1, 1}));
  assert_true(on_nodes({0, 1, 0, 1, 1}));
  assert_true(on_nodes({0, 1, 1, 1}));
}
void ranks_that_disagree_over_ucx(void **) {
  if (has_transport("ucx")) assert_true(kinds_differ_over_ucx());
}
void processes_in_shared_memory(void **) {
  assert_true(in_shared_memory(2));
  assert_true(in_shared_memory(4));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(processes_over_shm),
      cmocka_unit_test(processes_over_ucx),
      cmocka_unit_test(processes_on_several_nodes),
      cmocka_unit_test(ranks_that_disagree_over_ucx),
      cmocka_unit_test(processes_in_shared_memory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
