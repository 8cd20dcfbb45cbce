// SPDX-License-Identifier: Apache-2.0
// Backups among processes, of which one is killed: at chosen places of a step and at drawn moments, over shm and, with
// nodes made up, over ucx, where keepers are on the other node. The others shrink the comm, plan with the plan before,
// recover, and go on with the bits of a run that nothing has happened to.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "matrixshard/matrixshard.h"
#include "support/backed_up.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/transports.hpp"
#include "support/cmocka_all.h"

namespace {

using mxs::test::BackedUpRank;
using mxs::test::has_transport;
using mxs::test::ProcessOptions;
using mxs::test::run_processes;
using mxs::test::Undisturbed;

constexpr int steps_in_all = 24, steps_before = 3;

const Undisturbed &undisturbed() {
  static Undisturbed run;
  if (run.after.empty()) {
    const std::string complaint = run.run(steps_in_all);
    if (!complaint.empty()) print_error("the run without a failure: %s\n", complaint.c_str());
  }
  return run;
}

std::string failure(const std::string &what) { return what + ": " + mxs_last_error(); }

enum class Moment { backward, before_step, after_agreeing, after_step, drawn };

struct Scene {
  int rank_count = 4, victim = 1;
  Moment moment = Moment::drawn;
  int delay_us = 0;        // drawn: after some rank's first step
  std::vector<int> nodes;  // empty: one
};

// The victim's steps end with it.
std::string die(BackedUpRank &rank, const Scene &scene) {
  if (scene.moment == Moment::drawn) {
    const std::string complaint = rank.steps_to(steps_in_all);
    if (!complaint.empty()) return complaint;
    for (;;) pause();
  }
  const std::string complaint = rank.steps_to(steps_before);
  if (!complaint.empty()) return complaint;
  mxs_verdict verdict = MXS_VERDICT_INIT;
  const mxs_step step = rank.values();
  if (scene.moment == Moment::backward) {
    mxs_view view = MXS_VIEW_INIT;
    if (mxs_unit_gradient(rank.units[2], 7, MXS_WRITE, &view) != MXS_OK) return failure("gradient");
  } else if (rank.backward(steps_before) != MXS_OK) {
    return failure("backward");
  }
  if (scene.moment == Moment::after_agreeing && mxs_optimizer_agree(rank.optimizer, &step, &verdict) != MXS_OK)
    return failure("agree");
  if (scene.moment == Moment::after_step && mxs_optimizer_step(rank.optimizer, &step, nullptr) != MXS_OK)
    return failure("step");
  raise(SIGKILL);
  return "";
}

// Up to the failure.
std::string survive(BackedUpRank &rank, const Scene &scene) {
  mxs_status status = MXS_OK;
  while (status == MXS_OK && mxs_optimizer_step_number(rank.optimizer) < steps_in_all) {
    const uint64_t done = mxs_optimizer_step_number(rank.optimizer);
    status = rank.backward(static_cast<int>(done));
    mxs_verdict verdict = MXS_VERDICT_INIT;
    const mxs_step step = rank.values();
    if (status == MXS_OK && scene.moment == Moment::after_agreeing && done == steps_before)
      status = mxs_optimizer_agree(rank.optimizer, &step, &verdict);
    if (status == MXS_OK) status = mxs_optimizer_step(rank.optimizer, &step, nullptr);
  }
  while (status == MXS_OK) status = mxs_comm_barrier(rank.comm, nullptr);
  return status == MXS_PEER_FAILED ? "" : failure("the failure");
}

std::string go_on(BackedUpRank &before, const Scene &scene) {
  mxs_comm *living = nullptr;
  if (mxs_comm_shrink(&living, before.comm, nullptr) != MXS_OK) return failure("shrink");
  std::vector<int32_t> was(static_cast<size_t>(scene.rank_count - 1));
  for (size_t rank = 0; rank < was.size(); ++rank)
    if (mxs_comm_origin(living, static_cast<int32_t>(rank), &was[rank]) != MXS_OK) return failure("origin");
  std::string complaint;
  {
    BackedUpRank now;
    complaint = now.make(living, before.plan, was.data());
    mxs_recovery recovery = MXS_RECOVERY_INIT;
    if (complaint.empty() && mxs_optimizer_recover(now.optimizer, before.optimizer, &recovery) != MXS_OK)
      complaint = failure("recover");
    before.clear();
    if (complaint.empty() && scene.moment != Moment::drawn && recovery.step_number + 1 < steps_before)
      complaint = "went back to step " + std::to_string(recovery.step_number);
    if (complaint.empty() && (recovery.newest_step < recovery.step_number ||
                              recovery.newest_step > recovery.step_number + 1 || recovery.lost_count != 1))
      complaint = "the newest step is " + std::to_string(recovery.newest_step) + " and the step " +
                  std::to_string(recovery.step_number);
    if (complaint.empty()) complaint = now.compare(undisturbed().after[recovery.step_number]);
    if (complaint.empty()) complaint = now.steps_to(steps_in_all);
    if (complaint.empty()) complaint = now.compare(undisturbed().after[steps_in_all]);
    if (complaint.empty()) complaint = now.compare_gathered(undisturbed().weights);
  }
  if (mxs_comm_destroy(&living) != MXS_OK && complaint.empty()) complaint = failure("destroy");
  return complaint;
}

// Seen by all processes: some rank has done the first step.
std::atomic<int> *begun_steps() {
  static void *const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return static_cast<std::atomic<int> *>(page);
}

bool plays(const Scene &scene) {
  undisturbed();
  std::atomic<int> *const started = begun_steps();
  started->store(0);
  ProcessOptions options;
  options.nodes = scene.nodes;
  options.may_die = scene.victim;
  options.timeout_seconds = 60;
  options.meanwhile = [&](const std::vector<pid_t> &processes) {
    if (scene.moment != Moment::drawn) return;
    while (started->load() == 0) usleep(1000);
    std::this_thread::sleep_for(std::chrono::microseconds(scene.delay_us));
    kill(processes[static_cast<size_t>(scene.victim)], SIGKILL);
  };
  const std::string complaint = run_processes(
      scene.rank_count,
      [&](int number, mxs_comm *comm) {
        BackedUpRank rank;
        std::string wrong = rank.make(comm);
        if (wrong.empty()) wrong = rank.steps_to(1);
        if (!wrong.empty()) return wrong;
        const mxs_status all_here = mxs_comm_barrier(comm, nullptr);
        if (all_here == MXS_PEER_FAILED) return go_on(rank, scene);
        if (all_here != MXS_OK) return failure("barrier");
        started->store(1);
        if (number == scene.victim) return die(rank, scene);
        wrong = survive(rank, scene);
        return wrong.empty() ? go_on(rank, scene) : wrong;
      },
      options);
  if (complaint.empty()) return true;
  print_error("%d ranks, rank %d, moment %d, %d us: %s\n", scene.rank_count, scene.victim,
              static_cast<int>(scene.moment), scene.delay_us, complaint.c_str());
  return false;
}

void a_rank_that_is_killed_at_any_place_of_a_step_is_restored(void **) {
  bool good = true;
  for (const Moment moment : {Moment::backward, Moment::before_step, Moment::after_agreeing, Moment::after_step})
    for (const int victim : {0, 2}) good = plays({3, victim, moment, 0, {}}) && good;
  assert_true(good);
}

void a_rank_that_is_killed_at_a_drawn_moment_is_restored(void **) {
  bool good = true;
  uint64_t drawn = 12345;
  for (int number = 0; number < 8; ++number) {
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    good = plays({4, number % 4, Moment::drawn, static_cast<int>(drawn >> 40) % 60'000, {}}) && good;
  }
  assert_true(good);
}

void keepers_are_on_the_next_node(void **) {
  if (!has_transport("ucx")) return mxs::test::not_run("UCX is missing");
  assert_true(plays({4, 0, Moment::after_agreeing, 0, {0, 0, 1, 1}}));
  assert_true(plays({4, 3, Moment::backward, 0, {0, 0, 1, 1}}));
  assert_true(plays({5, 1, Moment::after_step, 0, {0, 0, 0, 1, 1}}));
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_that_is_killed_at_any_place_of_a_step_is_restored),
      cmocka_unit_test(a_rank_that_is_killed_at_a_drawn_moment_is_restored),
      cmocka_unit_test(keepers_are_on_the_next_node),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
