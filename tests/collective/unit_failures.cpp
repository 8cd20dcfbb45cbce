// SPDX-License-Identifier: Apache-2.0
// What units do when ranks part ways: another order of calls, an owner that never comes, a rank that is killed, a fork.
// Nothing hangs, everybody is told, and everything can be destroyed. And what the statistics say when all goes well.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>

#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

mxs_unit_options options_of(int gather, const char *algorithm) {
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.gather = gather;
  options.algorithm = algorithm;
  return options;
}

// Everything of a failed comm goes without a word, whatever was held.
std::string destroy_all(Units &units) {
  for (mxs_unit *&unit : units.units) {
    const mxs_status status = mxs_unit_destroy(&unit);
    if (status != MXS_OK) return failure("mxs_unit_destroy after a failure", status);
  }
  return "";
}

// Rank 0 gathers unit 0, the others unit 1: all ranks get an error, at least one of them the one that explains it.
std::string gathers_in_another_order(mxs_comm *comm, const char *algorithm, std::atomic<int> *mismatches) {
  Units units;
  const mxs_unit_options options = options_of(MXS_GATHER_BY_COPY, algorithm);
  const std::string complaint = units.make(comm, plain_model(2), &options);
  if (!complaint.empty()) return complaint;
  mxs_unit *unit = units.units[units.rank == 0 ? 0 : 1];
  mxs_status status = mxs_unit_gather(unit, nullptr);
  if (status == MXS_OK) status = mxs_unit_wait(unit, nullptr);
  if (status == MXS_OK) status = mxs_comm_barrier(comm, nullptr);
  if (status == MXS_OK) return "ranks that gather different units aren't told";
  if (status == MXS_MISMATCH) (*mismatches)++;
  // From now on every call says the same.
  if (mxs_unit_gather(unit, nullptr) == MXS_OK) return "a failed comm goes on";
  return destroy_all(units);
}

std::string another_order() {
  for (const char *algorithm : {static_cast<const char *>(nullptr), "flat"}) {
    std::atomic<int> mismatches{0};
    WorldOptions options;
    options.comm_timeout_seconds = 20;
    const std::string complaint = run_world(
        3, [&](int, mxs_comm *comm) { return gathers_in_another_order(comm, algorithm, &mismatches); }, options);
    if (!complaint.empty()) return complaint;
    if (mismatches == 0) return "no rank says that it is a mismatch";
  }
  return "";
}

// By reference: rank 1 waits for an owner that never calls gather, and does nothing else either.
std::string waits_for_nobody(mxs_comm *comm, std::atomic<bool> *given_up) {
  Units units;
  const mxs_unit_options options = options_of(MXS_GATHER_BY_REFERENCE, nullptr);
  std::string complaint = units.make(comm, plain_model(1), &options);
  if (!complaint.empty()) return complaint;
  mxs_call call = MXS_CALL_INIT;
  call.timeout_ns = 500'000'000;
  if (units.rank == 0) {
    while (!given_up->load()) usleep(10'000);
    return destroy_all(units);
  }
  complaint = want(MXS_OK, mxs_unit_gather(units.units[0], nullptr), "gather");
  if (complaint.empty()) complaint = want(MXS_TIMED_OUT, mxs_unit_wait(units.units[0], &call), "wait");
  if (complaint.empty() && std::string(mxs_last_error()).find("rank 0") == std::string::npos)
    complaint = std::string("the sentence doesn't name rank 0: ") + mxs_last_error();
  given_up->store(true);
  return complaint.empty() ? destroy_all(units) : complaint;
}

// The owner has gone on to a barrier instead: that can't come right, and is told long before the deadline.
std::string waits_for_one_who_went_on(mxs_comm *comm) {
  Units units;
  const mxs_unit_options options = options_of(MXS_GATHER_BY_REFERENCE, nullptr);
  std::string complaint = units.make(comm, plain_model(1), &options);
  if (!complaint.empty()) return complaint;
  if (units.rank == 0) {
    complaint = want(MXS_MISMATCH, mxs_comm_barrier(comm, nullptr), "a barrier alone");
  } else {
    complaint = want(MXS_OK, mxs_unit_gather(units.units[0], nullptr), "gather");
    if (complaint.empty()) complaint = want(MXS_MISMATCH, mxs_unit_wait(units.units[0], nullptr), "wait");
  }
  return complaint.empty() ? destroy_all(units) : complaint;
}

std::string an_owner_that_never_comes() {
  std::atomic<bool> given_up{false};
  const std::string complaint =
      run_world(2, [&](int, mxs_comm *comm) { return waits_for_nobody(comm, &given_up); });
  return complaint.empty() ? run_world(2, [](int, mxs_comm *comm) { return waits_for_one_who_went_on(comm); })
                           : complaint;
}

// Rank 1 dies between gather and reduce; the others hear of it in their next wait.
std::string outlives_a_peer(int rank, mxs_comm *comm, const mxs_unit_options &options) {
  Units units;
  std::string complaint = units.make(comm, plain_model(2), &options);
  if (complaint.empty()) complaint = units.fill(1);
  if (complaint.empty()) complaint = units.gather_and_check(0, 1);
  if (!complaint.empty()) return complaint;
  if (rank == 1) kill(getpid(), SIGKILL);
  complaint = units.write_gradients(0, 0, MXS_WRITE);
  if (!complaint.empty()) return complaint;
  mxs_status status = mxs_unit_gather(units.units[1], nullptr);
  if (status == MXS_OK) status = mxs_unit_wait(units.units[1], nullptr);
  if (status == MXS_OK) status = mxs_unit_reduce(units.units[0], nullptr);
  if (status == MXS_OK) status = mxs_unit_wait_reduce(units.units[0], nullptr);
  if (status == MXS_OK) return "nobody notices that rank 1 is gone";
  if (status != MXS_PEER_FAILED) return failure("the death of rank 1", status);
  return destroy_all(units);
}

std::string a_peer_that_dies() {
  ProcessOptions process_options;
  process_options.may_die = 1;
  for (const mxs_unit_options &options :
       {options_of(MXS_GATHER_BY_COPY, nullptr), options_of(MXS_GATHER_BY_REFERENCE, nullptr),
        options_of(MXS_GATHER_BY_COPY, "flat")}) {
    const std::string complaint = run_processes(
        3, [&](int rank, mxs_comm *comm) { return outlives_a_peer(rank, comm, options); }, process_options);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

// In a forked child every call is refused, and the parent's unit works on.
std::string forks(mxs_comm *comm) {
  Units units;
  std::string complaint = units.make(comm, plain_model(1));
  if (complaint.empty()) complaint = units.fill(1);
  if (!complaint.empty()) return complaint;
  mxs_optimizer *optimizer = nullptr;
  complaint = want(MXS_OK, mxs_optimizer_create(&optimizer, units.units.data(), units.units.size(), nullptr), "create");
  if (!complaint.empty()) return complaint;
  const pid_t child = fork();
  if (child == 0) {
    mxs_optimizer *handle = optimizer;
    mxs_state_info state = MXS_STATE_INFO_INIT;
    mxs_view view = MXS_VIEW_INIT;
    mxs_unit *unit = units.units[0];
    const bool refused = mxs_unit_gather(unit, nullptr) == MXS_FORKED && mxs_unit_reduce(unit, nullptr) == MXS_FORKED &&
                         mxs_unit_gradient(unit, 0, MXS_WRITE, &view) == MXS_FORKED &&
                         mxs_unit_tensor(unit, 0, &view) == MXS_FORKED &&
                         mxs_unit_shard(unit, 0, &view) == MXS_FORKED && mxs_unit_commit(unit, &view) == MXS_FORKED &&
                         mxs_unit_destroy(&unit) == MXS_FORKED &&
                         mxs_optimizer_state(optimizer, 0, &state) == MXS_FORKED &&
                         mxs_optimizer_clear(optimizer) == MXS_FORKED &&
                         mxs_optimizer_destroy(&handle) == MXS_FORKED && handle == optimizer;
    _exit(refused ? 0 : 1);
  }
  int result = 0;
  waitpid(child, &result, 0);
  complaint = want(MXS_OK, mxs_optimizer_destroy(&optimizer), "mxs_optimizer_destroy");
  if (!complaint.empty()) return complaint;
  if (!WIFEXITED(result) || WEXITSTATUS(result) != 0) return "a forked child's calls aren't refused";
  return units.gather_and_check(0, 1);
}

// Bytes that went, by kind and phase: over all ranks as many came in as went out, and no more than must.
std::string counts_bytes(mxs_comm *comm, int gather, const char *algorithm) {
  Units units;
  const mxs_unit_options options = options_of(gather, algorithm);
  std::string complaint = units.make(comm, plain_model(2), &options);
  if (complaint.empty()) complaint = units.fill(1);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_comm_phase(comm, MXS_PHASE_FORWARD), "phase");
  for (int unit = 0; unit < 2 && complaint.empty(); unit++) complaint = units.gather_and_check(unit, 1);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_comm_phase(comm, MXS_PHASE_BACKWARD), "phase");
  for (int unit = 0; unit < 2 && complaint.empty(); unit++) {
    complaint = units.write_gradients(unit, 0, MXS_WRITE);
    mxs_unit *its = units.units[static_cast<size_t>(unit)];
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_reduce(its, nullptr), "reduce");
    if (complaint.empty()) complaint = want(MXS_OK, mxs_unit_wait_reduce(its, nullptr), "wait_reduce");
  }
  if (!complaint.empty()) return complaint;
  uint64_t foreign = 0;
  for (const PlannedUnit &unit : units.inner().units)
    for (const Segment &segment : unit.weights.segments)
      if (segment.owner != units.rank) foreign += segment.bytes;
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs_comm_query_stats(comm, &stats);
  const mxs_counter &gathers = stats.counters[MXS_GATHER][MXS_PHASE_FORWARD];
  const mxs_counter &reduces = stats.counters[MXS_REDUCE][MXS_PHASE_BACKWARD];
  const bool by_reference = gather == MXS_GATHER_BY_REFERENCE;
  if (gathers.calls != 2 || reduces.calls != 2) return "calls are miscounted";
  if (gathers.bytes_in != (by_reference ? 0 : foreign))
    return std::to_string(gathers.bytes_in) + " bytes came in, not " + std::to_string(foreign);
  double sums[4] = {static_cast<double>(gathers.bytes_out), static_cast<double>(gathers.bytes_in),
                    static_cast<double>(reduces.bytes_out), static_cast<double>(reduces.bytes_in)};
  complaint = want(MXS_OK, mxs_comm_sum(comm, sums, 4, nullptr), "mxs_comm_sum");
  if (complaint.empty() && (sums[0] != sums[1] || sums[2] != sums[3])) complaint = "bytes went out that came nowhere";
  if (complaint.empty() && units.rank_count > 1 && sums[2] == 0) complaint = "a reduce counts no bytes";
  return complaint;
}

std::string counts_bytes_every_way() {
  for (const int rank_count : {1, 2, 4})
    for (const mxs_unit_options &options :
         {options_of(MXS_GATHER_BY_COPY, nullptr), options_of(MXS_GATHER_BY_REFERENCE, nullptr),
          options_of(MXS_GATHER_BY_COPY, "flat"), options_of(MXS_GATHER_BY_COPY, "chain")}) {
      const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) {
        return counts_bytes(comm, options.gather, options.algorithm);
      });
      if (!complaint.empty()) return complaint;
    }
  return "";
}

void ranks_in_another_order_are_told(void **) { assert_true(good(another_order())); }
void an_owner_that_never_comes_is_named(void **) { assert_true(good(an_owner_that_never_comes())); }
void the_death_of_a_peer_is_told(void **) { assert_true(good(a_peer_that_dies())); }
void a_forked_child_is_refused(void **) {
  assert_true(good(run_processes(2, [](int, mxs_comm *comm) { return forks(comm); })));
}
void bytes_are_counted_by_kind_and_phase(void **) { assert_true(good(counts_bytes_every_way())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ranks_in_another_order_are_told),  cmocka_unit_test(an_owner_that_never_comes_is_named),
      cmocka_unit_test(the_death_of_a_peer_is_told),      cmocka_unit_test(a_forked_child_is_refused),
      cmocka_unit_test(bytes_are_counted_by_kind_and_phase),
  };
  return cmocka_run_group_tests_name("unit failures", tests, nullptr, nullptr);
}
