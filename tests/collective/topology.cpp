// SPDX-License-Identifier: Apache-2.0
// The topology that a comm comes to: found or told by MXS_TOPOLOGY, with rank 0's speeds, the same on all ranks; and
// what counts as one node.
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "cases.hpp"
#include "collective/process.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/transports.hpp"
#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

// Speeds of a topology, summed over ranks: equal numbers times ranks if all have the same.
std::string same_on_all(mxs_comm *comm, const mxs_topology *topology) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_speeds speeds = MXS_SPEEDS_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK || mxs_topology_speeds(topology, &speeds) != MXS_OK)
    return error_of("query");
  int64_t own[3] = {speeds.network_latency_ns, static_cast<int64_t>(speeds.network_bytes_per_second),
                    speeds.factor_count};
  for (int rank = 0; rank < info.rank_count; ++rank) {
    mxs_rank_info place = MXS_RANK_INFO_INIT;
    if (mxs_topology_rank(topology, rank, &place) != MXS_OK) return error_of("rank");
    own[2] = own[2] * 31 + place.node * 7 + place.rail * 3 + place.numa;
  }
  int64_t sum[3] = {own[0], own[1], own[2]};
  if (mxs_comm_sum_words(comm, sum, 3, nullptr) != MXS_OK) return error_of("sum");
  for (int i = 0; i < 3; ++i)
    if (sum[i] != own[i] * info.rank_count) return words("number %d differs over ranks", i);
  return "";
}

// With a gather and a reduce of every layout, so that bytes go by the routes.
std::string collect(int rank, mxs_comm *comm, int rank_count, int node_count) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return error_of("query");
  if (info.node_count != node_count) return words("%d nodes, not %d", info.node_count, node_count);
  const bool by_network = std::strstr(info.transports, "ucx") != nullptr;
  if (by_network != (node_count > 1)) return words("%d nodes are joined by %s", node_count, info.transports);
  mxs_topology *topology = nullptr;
  if (mxs_comm_topology(comm, &topology) != MXS_OK) return error_of("topology");
  std::string wrong = same_on_all(comm, topology);
  mxs_topology_destroy(&topology);
  if (!wrong.empty()) return wrong;
  for (const TestLayout &layout : test_layouts(rank_count, 4, 501))
    for (const int32_t kind : {MXS_GATHER, MXS_REDUCE}) {
      Case each;
      each.layout = &layout;
      each.kind = kind;
      wrong = run_case(rank, rank_count, comm, each);
      if (!wrong.empty()) return wrong;
    }
  return "";
}

std::string one_machine_plays_nodes() {
  const struct {
    const char *told;
    int rank_count, node_count;
  } table[] = {{"MXS_TOPOLOGY=nodes:2 ranks:2 nic:1 latency:5", 4, 2},
               {"MXS_TOPOLOGY=ranks:1+2", 3, 2},
               {"MXS_TOPOLOGY=nodes:2 ranks:1", 2, 2},
               {"MXS_TOPOLOGY=ranks:3 rails:2", 3, 1},
               {"MXS_NODE=one", 2, 1}};
  for (const auto &line : table) {
    if (line.node_count > 1 && !has_transport("ucx")) continue;
    ProcessOptions options;
    options.environment = {line.told};
    const std::string wrong = run_processes(line.rank_count, [&](int rank, mxs_comm *comm) {
      return collect(rank, comm, line.rank_count, line.node_count);
    }, options);
    if (!wrong.empty()) return std::string(line.told) + ": " + wrong;
  }
  return "";
}

// Every rank gets the status and a sentence with the word. `set` changes one rank's environment.
std::string all_fail(int rank_count, mxs_status status, const char *word, void (*set)(int rank)) {
  ProcessOptions options;
  options.timeout_seconds = 60;
  return run_processes_bare(rank_count, [&](int rank) -> std::string {
    set(rank);
    mxs_comm_options comm_options = MXS_COMM_OPTIONS_INIT;
    comm_options.timeout_ns = 30'000'000'000u;
    mxs_comm *comm = nullptr;
    return expect(mxs_comm_create(&comm, &comm_options), status, {word});
  }, options);
}

std::string impossible_topologies_fail_everywhere() {
  std::string wrong = all_fail(3, MXS_ENVIRONMENT, "world of 4 ranks, but there are 3", [](int) {
    setenv("MXS_TOPOLOGY", "nodes:2 ranks:2", 1);
  });
  if (wrong.empty())
    wrong = all_fail(2, MXS_ENVIRONMENT, "\"rnks:2\"", [](int) { setenv("MXS_TOPOLOGY", "rnks:2", 1); });
  if (wrong.empty())
    wrong = all_fail(2, MXS_ENVIRONMENT, "/no/such/file.json", [](int rank) {
      if (rank == 0) setenv("MXS_TOPOLOGY", "/no/such/file.json", 1);
    });
  if (wrong.empty())
    wrong = all_fail(3, MXS_MISMATCH, "MXS_TOPOLOGY of rank 2", [](int rank) {
      setenv("MXS_TOPOLOGY", rank == 2 ? "ranks:3 rails:2" : "ranks:3", 1);
    });
  if (wrong.empty())
    wrong = all_fail(2, MXS_SYSTEM, "/no/such/speeds", [](int) { setenv("MXS_SPEEDS", "/no/such/speeds", 1); });
  return wrong;
}

std::string rank_0s_picture_counts_for_all() {
  ProcessOptions options;
  char name[] = "/tmp/matrixshard-test-XXXXXX";
  const int file = mkstemp(name);
  if (file < 0) return "no file";
  close(file);
  std::ofstream(name) << "{\"matrixshard_speeds\": 1, \"network\": {\"latency_ns\": 1234, \"bytes_per_second\": 99},"
                         " \"factors\": {\"chain\": 1.5}}";
  const std::string speeds = name;
  const std::string wrong = run_processes_bare(3, [&](int rank) -> std::string {
    if (rank == 0) setenv("MXS_SPEEDS", speeds.c_str(), 1);
    if (rank == 0) setenv("MXS_TOPOLOGY", "ranks:3 rails:3 latency:9", 1);
    mxs_comm *comm = nullptr;
    if (mxs_comm_create(&comm, nullptr) != MXS_OK) return error_of("create");
    mxs_topology *topology = nullptr;
    mxs_speeds got = MXS_SPEEDS_INIT;
    mxs_rank_info info = MXS_RANK_INFO_INIT;
    std::string complaint;
    if (mxs_comm_topology(comm, &topology) != MXS_OK || mxs_topology_speeds(topology, &got) != MXS_OK ||
        mxs_topology_rank(topology, rank, &info) != MXS_OK)
      complaint = error_of("query");
    // What the words tell counts, what they leave out is that of the file.
    else if (got.network_latency_ns != 9000 || got.network_bytes_per_second != 99 || got.factor_count != 1 ||
             got.factors[0].per_mille != 1500 || info.rail != rank)
      complaint = words("latency %u, %llu bytes/s, rail %d", got.network_latency_ns,
                        static_cast<unsigned long long>(got.network_bytes_per_second), info.rail);
    mxs_topology_destroy(&topology);
    if (mxs_comm_barrier(comm, nullptr) != MXS_OK && complaint.empty()) complaint = error_of("barrier");
    if (mxs_comm_destroy(&comm) != MXS_OK && complaint.empty()) complaint = error_of("destroy");
    return complaint;
  }, options);
  unlink(name);
  return wrong;
}

// ---- what a node is ----

// The label in a child that has moved into new namespaces; 0: not allowed here.
uint64_t label_after(int namespaces, const char *name) {
  int ends[2];
  if (pipe(ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    uint64_t label = 0;
    if (name) setenv("MXS_NODE", name, 1);
    if (!namespaces || unshare(namespaces) == 0) label = mxs::node_label();
    _exit(write(ends[1], &label, sizeof label) == sizeof label ? 0 : 1);
  }
  uint64_t label = 0;
  if (read(ends[0], &label, sizeof label) != sizeof label) label = 0;
  close(ends[0]);
  close(ends[1]);
  waitpid(child, nullptr, 0);
  return label;
}

std::string a_node_is_boot_network_and_ipc() {
  const uint64_t here = label_after(0, nullptr);
  if (here == 0 || here != mxs::node_label()) return "two processes side by side have two labels";
  for (const int namespaces : {CLONE_NEWNET, CLONE_NEWIPC}) {
    const uint64_t there = label_after(namespaces, nullptr);
    if (there == here) return "another namespace has the same label";
    if (there != 0 && label_after(namespaces, "x") != label_after(0, "x")) return "MXS_NODE doesn't count";
  }
  return label_after(0, "x") != label_after(0, "y") && label_after(0, "x") != here ? "" : "names don't count";
}

std::string two_names_are_two_nodes() {
  if (!has_transport("ucx")) return "";
  return run_processes_bare(2, [&](int rank) -> std::string {
    setenv("MXS_NODE", rank == 0 ? "a" : "b", 1);
    mxs_comm *comm = nullptr;
    if (mxs_comm_create(&comm, nullptr) != MXS_OK) return error_of("two names");
    std::string wrong = collect(rank, comm, 2, 2);
    if (mxs_comm_destroy(&comm) != MXS_OK && wrong.empty()) wrong = error_of("destroy");
    return wrong;
  });
}

void one_machine_can_play_several_nodes(void **) { assert_true(good(one_machine_plays_nodes())); }
void what_is_told_wrongly_fails_on_all_ranks(void **) { assert_true(good(impossible_topologies_fail_everywhere())); }
void what_rank_0_was_told_counts_for_all(void **) { assert_true(good(rank_0s_picture_counts_for_all())); }
void a_node_is_one_boot_network_and_ipc(void **) { assert_true(good(a_node_is_boot_network_and_ipc())); }
void names_of_nodes_keep_ranks_apart(void **) { assert_true(good(two_names_are_two_nodes())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_node_is_one_boot_network_and_ipc),
      cmocka_unit_test(one_machine_can_play_several_nodes),
      cmocka_unit_test(what_rank_0_was_told_counts_for_all),
      cmocka_unit_test(what_is_told_wrongly_fails_on_all_ranks),
      cmocka_unit_test(names_of_nodes_keep_ranks_apart),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
