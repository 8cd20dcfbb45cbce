// SPDX-License-Identifier: Apache-2.0
// Comms of processes: found by torchrun's variables, joined by shm or ucx; ranks that die, stop, fork.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "matrixshard/collective.h"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/transports.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using mxs::test::error_of;
using mxs::test::expect;
using mxs::test::good;
using mxs::test::ProcessOptions;
using mxs::test::has_transport;
using mxs::test::run_processes;
using mxs::test::run_processes_bare;
using mxs::test::world_sizes;

namespace {

std::string sums(int rank, mxs_comm *comm, const char *transport) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return error_of("query");
  if (info.rank != rank) return "rank is wrong";
  if (std::strcmp(info.bootstrap, "torchrun") != 0) return "bootstrap is wrong";
  if (std::strcmp(info.transports, info.rank_count == 1 ? "none" : transport) != 0)
    return std::string("transports is ") + info.transports;
  for (int turn = 0; turn < 100; ++turn) {
    double values[3] = {1.0 * rank, 2.0 * turn, 0.5};
    if (mxs_comm_sum(comm, values, 3, nullptr) != MXS_OK) return error_of("sum");
    const int count = info.rank_count;
    if (values[0] != count * (count - 1) / 2.0 || values[1] != 2.0 * turn * count || values[2] != 0.5 * count)
      return "a sum is wrong";
    if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  }
  void *memory = nullptr;
  if (mxs_comm_allocate(comm, 5000, MXS_HOST, &memory) != MXS_OK) return error_of("allocate");
  std::memset(memory, rank, 5000);
  if (mxs_comm_free(comm, memory) != MXS_OK) return error_of("free");
  return "";
}

bool sums_over(const char *asked, const char *expected, const std::vector<int> &worlds) {
  for (const int rank_count : worlds) {
    ProcessOptions options;
    options.transport = asked;
    if (!good(run_processes(rank_count, [=](int rank, mxs_comm *comm) { return sums(rank, comm, expected); }, options)))
      return false;
  }
  return true;
}

void processes_of_a_node_are_joined_by_shm(void **) { assert_true(sums_over(nullptr, "shm", world_sizes)); }

void ucx_joins_them_when_asked(void **) {
  if (has_transport("ucx")) assert_true(sums_over("ucx", "ucx", {1, 2, 3, 4}));
}

// Two nodes by name, on one machine: between them ucx, inside shm.
bool two_nodes() {
  return good(run_processes_bare(4, [](int rank) -> std::string {
    setenv("MXS_NODE", rank < 2 ? "a" : "b", 1);
    mxs_comm *comm = nullptr;
    if (mxs_comm_create(&comm, nullptr) != MXS_OK) return error_of("create");
    mxs_comm_info info = MXS_COMM_INFO_INIT;
    mxs_comm_query(comm, &info);
    std::string complaint = sums(rank, comm, "shm ucx");
    if (info.node != rank / 2 || info.node_count != 2 || info.local_rank != rank % 2 || info.local_rank_count != 2)
      complaint = "place is wrong";
    if (mxs_comm_destroy(&comm) != MXS_OK) complaint = error_of("destroy");
    return complaint;
  }));
}

void nodes_are_joined_by_ucx(void **) {
  if (has_transport("ucx")) assert_true(two_nodes());
}

std::string create_fails(mxs_status status, const std::vector<std::string> &words) {
  mxs_comm *comm = nullptr;
  const std::string complaint = expect(mxs_comm_create(&comm, nullptr), status, words);
  return comm ? "there is a comm" : complaint;
}

bool bad_environments() {
  ProcessOptions options;
  options.environment = {"MXS_TRANSPORT=loopback"};
  std::string complaint = run_processes_bare(
      2, [](int) { return create_fails(MXS_INVALID_ARGUMENT, {"loopback", "two processes"}); }, options);
  options.environment = {"MXS_TRANSPORT=pigeon"};
  if (complaint.empty())
    complaint = run_processes_bare(2, [](int) { return create_fails(MXS_ENVIRONMENT, {"MXS_TRANSPORT", "pigeon"}); },
                                   options);
  options.environment = {"MXS_TIMEOUT=soon"};
  if (complaint.empty())
    complaint = run_processes_bare(2, [](int) { return create_fails(MXS_ENVIRONMENT, {"MXS_TIMEOUT", "soon"}); },
                                   options);
  options.environment = {"RANK="};
  if (complaint.empty())
    complaint = run_processes_bare(2, [](int) { return create_fails(MXS_ENVIRONMENT, {"RANK is not set"}); }, options);
  options.environment = {"WORLD_SIZE=0"};
  if (complaint.empty())
    complaint = run_processes_bare(1, [](int) { return create_fails(MXS_ENVIRONMENT, {"WORLD_SIZE"}); }, options);
  options.environment = {};
  if (complaint.empty())  // each asks for another
    complaint = run_processes_bare(
        2,
        [](int rank) {
          if (rank == 1) setenv("MXS_TRANSPORT", "shm", 1);
          return create_fails(MXS_MISMATCH, {"rank 1", "shm"});
        },
        options);
  options.environment = {"MXS_TIMEOUT=1"};
  if (complaint.empty())  // rank 1 never comes
    complaint = run_processes_bare(
        3,
        [](int rank) -> std::string {
          return rank == 1 ? std::string() : create_fails(MXS_TIMED_OUT, {"rank 1 of 3"});
        },
        options);
  return good(complaint);
}

void nonsense_in_the_environment_is_named(void **) { assert_true(bad_environments()); }

// Made one after the other or at once, they meet on one port.
std::string many_comms(int rank) {
  std::vector<std::string> complaints(4);
  std::vector<std::thread> threads;
  for (std::string &complaint : complaints)
    threads.emplace_back([&complaint, rank] {
      mxs_comm *comm = nullptr;
      if (mxs_comm_create(&comm, nullptr) != MXS_OK) {
        complaint = error_of("create");
        return;
      }
      complaint = sums(rank, comm, "shm");
      if (mxs_comm_destroy(&comm) != MXS_OK) complaint = error_of("destroy");
    });
  for (std::thread &thread : threads) thread.join();
  for (const std::string &complaint : complaints)
    if (!complaint.empty()) return complaint;
  return "";
}

// All do the same, so that it doesn't matter which thread of one rank meets which of another.
void comms_from_several_threads_meet_on_one_port(void **) { assert_true(good(run_processes_bare(3, many_comms))); }

// ---- ranks that are lost ----

std::string waits_for_the_dead(int rank, mxs_comm *comm) {
  for (int turn = 0; turn < 3; ++turn)
    if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  if (rank == 1) raise(SIGKILL);
  std::string complaint = expect(mxs_comm_barrier(comm, nullptr), MXS_PEER_FAILED, {"rank 1"});
  if (complaint.empty()) complaint = expect(mxs_comm_barrier(comm, nullptr), MXS_PEER_FAILED, {"rank 1"});
  return complaint;
}

bool death_is_seen(const char *transport) {
  ProcessOptions options;
  options.transport = transport;
  options.may_die = 1;
  return good(run_processes(4, waits_for_the_dead, options));
}

void a_killed_rank_is_named_on_all_over_shm(void **) { assert_true(death_is_seen(nullptr)); }

void a_killed_rank_is_named_on_all_over_ucx(void **) {
  if (has_transport("ucx")) assert_true(death_is_seen("ucx"));
}

std::string waits_for_the_stopped(int rank, mxs_comm *comm) {
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  if (rank == 2) {
    raise(SIGSTOP);  // the parent ends it
    return "";
  }
  mxs_call call = MXS_CALL_INIT;
  call.timeout_ns = 500'000'000;
  return expect(mxs_comm_barrier(comm, &call), MXS_TIMED_OUT, {"rank 2"});
}

bool stop_is_seen() {
  ProcessOptions options;
  options.may_die = 2;
  options.meanwhile = [](const std::vector<pid_t> &processes) {
    int result = 0;
    for (const int survivor : {0, 1}) {
      siginfo_t information{};
      waitid(P_PID, static_cast<id_t>(processes[static_cast<size_t>(survivor)]), &information, WEXITED | WNOWAIT);
    }
    kill(processes[2], SIGKILL);
    (void)result;
  };
  return good(run_processes(3, waits_for_the_stopped, options));
}

void a_stopped_rank_is_named_at_the_deadline(void **) { assert_true(stop_is_seen()); }

std::string aborts(int rank, mxs_comm *comm) {
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  if (rank == 2 && mxs_comm_abort(comm, "loss is NaN") != MXS_OK) return error_of("abort");
  const std::string found = expect(mxs_comm_barrier(comm, nullptr), MXS_ABORTED, {"loss is NaN"});
  // In the text of a complaint "aborted" counts as an echo.
  return found;
}

void an_abort_reaches_all_processes(void **) { assert_true(good(run_processes(3, aborts))); }

// Rank 0 never waits: it tests a gather whose owner, rank 1, doesn't come, over links to which rank 2 says nothing. It
// has to hear of rank 2's abort all the same, though that one stays.
std::string aborts_before_one_who_tests(int rank, mxs_comm *comm) {
  uint64_t bytes = 4096;
  mxs_segment segment = MXS_SEGMENT_INIT;
  segment.owner = 1;
  segment.bytes = bytes;
  mxs_layout *layout = nullptr;
  mxs_collective *gather = nullptr;
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = MXS_GATHER;
  options.algorithm = "flat";
  std::vector<std::byte> whole(bytes);
  mxs_status status = mxs_layout_create(&layout, &segment, 1, 3, 1);
  options.layout = layout;
  if (status == MXS_OK) status = mxs_collective_create(&gather, comm, &options);
  mxs_layout_destroy(&layout);
  if (status != MXS_OK) return error_of("create");
  mxs_request request = 0;
  mxs_call call = MXS_CALL_INIT;
  call.request_out = &request;
  if (rank == 0) status = mxs_collective_start(gather, nullptr, whole.data(), &call);
  if (rank == 2) mxs_comm_abort(comm, "loss is NaN");
  if (rank == 0)
    while ((status = mxs_comm_test(comm, request)) == MXS_IN_PROGRESS) std::this_thread::yield();
  // The others stay until it has heard.
  const double seconds = rank == 0 ? 0 : 2;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const std::string sentence = mxs_last_error();
  mxs_collective_destroy(&gather);
  if (rank != 0) return "";
  return status == MXS_ABORTED && sentence.find("rank 2") != std::string::npos
             ? ""
             : std::string("the test says ") + mxs_status_name(status) + ": " + sentence;
}

void an_abort_is_heard_by_who_only_tests(void **) {
  if (!has_transport("ucx")) return mxs::test::not_run("no ucx here");
  ProcessOptions options;
  options.transport = "ucx";
  assert_true(good(run_processes(3, aborts_before_one_who_tests, options)));
}

// All give up right behind a barrier that kept them waiting: nobody may hear of that instead of the barrier's end.
std::string gives_up_behind_barriers(int rank, mxs_comm *comm) {
  for (int round = 0; round < 10; ++round) {
    mxs_comm *part = nullptr;
    if (mxs_comm_split(&part, comm, 0, 0, nullptr) != MXS_OK) return error_of("split");
    if (rank == round % 8) usleep(60'000);  // by then the others look at their peers whenever they wake up
    std::string complaint;
    if (mxs_comm_barrier(part, nullptr) != MXS_OK) complaint = error_of("barrier");
    mxs_comm_abort(part, "all is said");
    mxs_comm_destroy(&part);
    if (!complaint.empty()) return "round " + std::to_string(round) + ": " + complaint;
  }
  return "";
}

void a_barrier_to_which_all_have_come_ends_well(void **) {
  assert_true(good(run_processes(8, gives_up_behind_barriers)));
}

// ---- fork ----

std::string forks(int, mxs_comm *comm) {
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  const pid_t child = fork();
  if (child == 0) {
    mxs_comm *handle = comm;
    double value = 1;
    void *memory = nullptr;
    const bool refused = mxs_comm_barrier(comm, nullptr) == MXS_FORKED &&
                         mxs_comm_sum(comm, &value, 1, nullptr) == MXS_FORKED &&
                         mxs_comm_test(comm, 0) == MXS_FORKED && mxs_comm_abort(comm, "x") == MXS_FORKED &&
                         mxs_comm_allocate(comm, 1, MXS_HOST, &memory) == MXS_FORKED &&
                         mxs_comm_destroy(&handle) == MXS_FORKED && handle == comm;
    _exit(refused ? 0 : 1);
  }
  int result = 0;
  waitpid(child, &result, 0);
  if (result != 0) return "the child was not refused";
  return mxs_comm_barrier(comm, nullptr) == MXS_OK ? "" : error_of("barrier after the fork");
}

void a_forked_child_is_refused_and_its_parent_goes_on(void **) { assert_true(good(run_processes(2, forks))); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(processes_of_a_node_are_joined_by_shm),
      cmocka_unit_test(ucx_joins_them_when_asked),
      cmocka_unit_test(nodes_are_joined_by_ucx),
      cmocka_unit_test(nonsense_in_the_environment_is_named),
      cmocka_unit_test(comms_from_several_threads_meet_on_one_port),
      cmocka_unit_test(a_killed_rank_is_named_on_all_over_shm),
      cmocka_unit_test(a_killed_rank_is_named_on_all_over_ucx),
      cmocka_unit_test(a_stopped_rank_is_named_at_the_deadline),
      cmocka_unit_test(an_abort_reaches_all_processes),
      cmocka_unit_test(an_abort_is_heard_by_who_only_tests),
      cmocka_unit_test(a_barrier_to_which_all_have_come_ends_well),
      cmocka_unit_test(a_forked_child_is_refused_and_its_parent_goes_on),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
