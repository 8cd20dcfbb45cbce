// SPDX-License-Identifier: Apache-2.0
// Collectives in CUDA memory that can't end: a peer that dies or never comes, an asynchronous error of NCCL, an abort.
// Every survivor gets a status and a sentence, its streams go on, and its process lives.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "gpu/collective_matrix.hpp"
#include "gpu/gpu.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

TestLayout layout_of(int rank_count) {
  TestLayout layout("for failures", 64);
  for (int rank = 0; rank < rank_count; ++rank) layout.add(rank, uint64_t{1} << 20);
  return layout;
}

struct Setup {
  TestLayout layout;
  OwnedCollective gather;
  std::unique_ptr<FrameworkMemory> target;
  std::unique_ptr<FrameworkStream> stream;
};

std::string set_up(Setup *setup, int rank_count, mxs_comm *comm) {
  DeviceCase each;
  each.layout = &setup->layout;
  if (make(&setup->gather, comm, each, rank_count) != MXS_OK) return error_of("create");
  setup->target = std::make_unique<FrameworkMemory>(device_of_comm(comm), setup->layout.bytes);
  setup->stream = std::make_unique<FrameworkStream>(device_of_comm(comm));
  return "";
}

std::string once(Setup *setup) {
  if (mxs_collective_start(setup->gather.value, nullptr, setup->target->data(), nullptr) != MXS_OK)
    return error_of("first start");
  return mxs_collective_wait(setup->gather.value, nullptr) == MXS_OK ? "" : error_of("first wait");
}

// What the others find: by a wait, or by a stream and a later call. The stream goes on in any case.
std::string survives(Setup *setup, mxs_comm *comm, bool by_stream, const std::vector<mxs_status> &statuses) {
  mxs_call call = MXS_CALL_INIT;
  call.stream = by_stream ? setup->stream->handle() : nullptr;
  mxs_status status = mxs_collective_start(setup->gather.value, nullptr, setup->target->data(), &call);
  if (status == MXS_OK) status = mxs_collective_wait(setup->gather.value, &call);
  if (by_stream && status == MXS_OK) {
    if (!setup->stream->synchronize()) return "the stream doesn't go on";
    // The failure aborted what was in flight, which is why the stream went on.
    status = mxs_collective_wait(setup->gather.value, nullptr);
  }
  const std::string sentence = status == MXS_OK ? "" : mxs_last_error();
  for (const mxs_status wanted : statuses)
    if (status == wanted) {
      if (mxs_collective_start(setup->gather.value, nullptr, setup->target->data(), nullptr) == MXS_OK)
        return "a failed comm starts collectives";
      static_cast<void>(comm);
      return sentence.empty() ? "no sentence" : "";
    }
  return words("status is %s: %s", mxs_status_name(status), sentence.c_str());
}

bool peer_dies(const char *route, bool by_stream) {
  constexpr int rank_count = 3;
  ProcessOptions options;
  options.may_die = 1;
  options.comm_timeout_seconds = 30;
  if (route) options.environment = {std::string("MXS_ROUTE=") + route};
  return good(run_processes(rank_count, [&](int rank, mxs_comm *comm) -> std::string {
    Setup setup{layout_of(rank_count), {}, nullptr, nullptr};
    std::string wrong = set_up(&setup, rank_count, comm);
    if (wrong.empty()) wrong = once(&setup);
    if (!wrong.empty()) return wrong;
    if (rank == 1) raise(SIGKILL);
    return survives(&setup, comm, by_stream, {MXS_PEER_FAILED});
  }, options));
}

void a_peer_that_dies_is_found_by_a_wait(void **) { assert_true(peer_dies(nullptr, false)); }
void a_peer_that_dies_is_found_by_the_thread(void **) { assert_true(peer_dies(nullptr, true)); }
void a_peer_that_dies_in_messages_is_found(void **) {
  assert_true(peer_dies("messages", false));
  assert_true(peer_dies("messages", true));
}

// Nobody dies, but one never starts it.
bool peer_never_comes(const char *route, bool by_stream) {
  constexpr int rank_count = 2;
  ProcessOptions options;
  options.comm_timeout_seconds = 2;
  if (route) options.environment = {std::string("MXS_ROUTE=") + route};
  return good(run_processes(rank_count, [&](int rank, mxs_comm *comm) -> std::string {
    Setup setup{layout_of(rank_count), {}, nullptr, nullptr};
    std::string wrong = set_up(&setup, rank_count, comm);
    if (wrong.empty()) wrong = once(&setup);
    if (!wrong.empty()) return wrong;
    if (rank == 0) return survives(&setup, comm, by_stream, {MXS_TIMED_OUT});
    std::this_thread::sleep_for(std::chrono::seconds(4));
    return expect(mxs_comm_barrier(comm, nullptr), MXS_TIMED_OUT, {"rank 0"});
  }, options));
}

void deadlines_count_for_waits_and_for_streams(void **) {
  assert_true(peer_never_comes(nullptr, false));
  assert_true(peer_never_comes(nullptr, true));
  assert_true(peer_never_comes("messages", true));
}

// Streams that can't wait for a word in memory: starts wait instead.
void without_waits_for_words_starts_wait(void **) {
  if (!on_standin()) return not_run("a stand-in alone can be told to");
  ProcessOptions options;
  options.environment = {"MXS_STANDIN_NO_WAIT_VALUE=1", "MXS_ROUTE=messages"};
  assert_true(good(run_processes(2, [](int rank, mxs_comm *comm) -> std::string {
    const std::string complaint = whole_matrix(rank, 2, comm, true, 101, {"staged", "staged", "staged", "staged"});
    if (!complaint.empty()) return complaint;
    TestLayout layout("large", 64);
    for (int owner : {0, 1, 0}) layout.add(owner, uint64_t{7} << 20);
    DeviceCase each;
    each.layout = &layout;
    return run_case(rank, 2, comm, each);
  }, options)));
}

// ---- aborts ----

bool aborted(const char *route) {
  constexpr int rank_count = 2;
  if (route) setenv("MXS_ROUTE", route, 1);
  const std::string complaint = run_world(rank_count, [&](int rank, mxs_comm *comm) -> std::string {
    Setup setup{layout_of(rank_count), {}, nullptr, nullptr};
    std::string wrong = set_up(&setup, rank_count, comm);
    if (wrong.empty()) wrong = once(&setup);
    if (!wrong.empty()) return wrong;
    if (rank == 0) return survives(&setup, comm, true, {MXS_ABORTED});
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    mxs_comm_abort(comm, "for a test");
    return expect(mxs_comm_barrier(comm, nullptr), MXS_ABORTED, {"for a test"});
  });
  unsetenv("MXS_ROUTE");
  return good(complaint);
}

void an_abort_frees_streams(void **) {
  assert_true(aborted(nullptr));
  assert_true(aborted("messages"));
}

// ---- NCCL ----

bool nccl_fails() {
  constexpr int rank_count = 2;
  ProcessOptions options;
  options.comm_timeout_seconds = 30;
  options.environment = {"MXS_STANDIN_NCCL_ASYNC_ERROR_AFTER=2"};
  return good(run_processes(rank_count, [&](int, mxs_comm *comm) -> std::string {
    Setup setup{layout_of(rank_count), {}, nullptr, nullptr};
    std::string wrong = set_up(&setup, rank_count, comm);
    if (!wrong.empty()) return wrong;
    mxs_status status = MXS_OK;
    for (int turn = 0; turn < 10 && status == MXS_OK; ++turn) {
      status = mxs_collective_start(setup.gather.value, nullptr, setup.target->data(), nullptr);
      if (status == MXS_OK) status = mxs_collective_wait(setup.gather.value, nullptr);
    }
    if (status != MXS_DEVICE_FAILED && status != MXS_PEER_FAILED)
      return words("status is %s: %s", mxs_status_name(status), status == MXS_OK ? "" : mxs_last_error());
    return setup.stream->synchronize() ? "" : "the stream doesn't go on";
  }, options));
}

void an_asynchronous_error_of_nccl_fails_the_comm(void **) {
  if (!on_standin()) return not_run("a stand-in alone can be told to");
  assert_true(nccl_fails());
}

// ---- fork ----

std::string forked(mxs_comm *comm) {
  Setup setup{layout_of(1), {}, nullptr, nullptr};
  std::string wrong = set_up(&setup, 1, comm);
  if (wrong.empty()) wrong = once(&setup);
  if (!wrong.empty()) return wrong;
  const pid_t child = fork();
  if (child == 0) {
    const bool refused =
        mxs_collective_start(setup.gather.value, nullptr, setup.target->data(), nullptr) == MXS_FORKED &&
        mxs_collective_wait(setup.gather.value, nullptr) == MXS_FORKED &&
        mxs_collective_destroy(&setup.gather.value) == MXS_FORKED;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? once(&setup) : "the child was not refused";
}

void a_forked_child_is_refused(void **) {
  assert_true(good(run_processes(1, [](int, mxs_comm *comm) { return forked(comm); })));
}

}  // namespace

int main(int, char **arguments) {
  if (!gpu_is_there(arguments, 3)) return 0;
  setenv("MXS_SPEEDS", "none", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_peer_that_dies_is_found_by_a_wait),
      cmocka_unit_test(a_peer_that_dies_is_found_by_the_thread),
      cmocka_unit_test(a_peer_that_dies_in_messages_is_found),
      cmocka_unit_test(deadlines_count_for_waits_and_for_streams),
      cmocka_unit_test(an_asynchronous_error_of_nccl_fails_the_comm),
      cmocka_unit_test(a_forked_child_is_refused),
      cmocka_unit_test(without_waits_for_words_starts_wait),
      cmocka_unit_test(an_abort_frees_streams),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
