// SPDX-License-Identifier: Apache-2.0
// Saves that end early: somebody says stop, or a rank dies. All ranks are told which one it was, nothing is left
// behind, older checkpoints are as they were.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "checkpoint_saving.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

std::string whoever_says_stop_stops_all_inner() {
  TestFolder root;
  for (const int stopping : {0, 2}) {
    const std::string complaint = run_world(3, [&](int rank, mxs_comm *comm) -> std::string {
      Saver saver;
      std::string wrong = saver.make_all(comm);
      mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
      if (rank == stopping) options.progress = [](void *, uint64_t, uint64_t) { return 1; };
      if (wrong.empty())
        wrong = expect(saver.save(root.path(), &options), MXS_CANCELLED, {words("rank %d", stopping)});
      if (wrong.empty() && rank == 0 && !names_in(root.path()).empty()) wrong = "there are " + names_in(root.path());
      // Also one that is begun beside training, if it isn't done before; on whatever rank.
      mxs_save *save = nullptr;
      if (wrong.empty()) wrong = want(MXS_OK, saver.start(&save, root.path()), "the start");
      if (wrong.empty() && rank == stopping) wrong = want(MXS_OK, mxs_save_cancel(save), "the cancel");
      const mxs_status status = wrong.empty() ? mxs_save_wait(save, 0) : MXS_OK;
      if (wrong.empty() && status != MXS_OK) wrong = expect(status, MXS_CANCELLED, {words("rank %d", stopping)});
      if (wrong.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) wrong = error_of("barrier");
      const std::string left = status == MXS_OK ? "step-00000000" : "";
      if (wrong.empty() && names_in(root.path()) != left) wrong = "there are " + names_in(root.path());
      if (wrong.empty()) wrong = want(MXS_OK, mxs_save_destroy(&save), "the end");
      if (wrong.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) wrong = error_of("barrier");
      std::error_code ignored;
      if (rank == 0) std::filesystem::remove_all(root.path() + "/step-00000000", ignored);
      return wrong;
    });
    if (!complaint.empty()) return words("rank %d stops: ", stopping) + complaint;
  }
  return "";
}

// ---- a rank that dies ----

std::string a_rank_that_dies_leaves_nothing_inner() {
  for (const int dying : {0, 2}) {
    TestFolder root;
    ProcessOptions process_options;
    process_options.comm_timeout_seconds = 20;
    process_options.may_die = dying;
    const std::string complaint = run_processes(3, [&](int rank, mxs_comm *comm) -> std::string {
      Saver saver;
      std::string wrong = saver.make_all(comm);
      if (wrong.empty()) wrong = want(MXS_OK, mxs_optimizer_set_step_number(saver.optimizer, 1), "set_step_number");
      if (wrong.empty()) wrong = want(MXS_OK, saver.save(root.path()), "the first save");
      if (wrong.empty()) wrong = want(MXS_OK, mxs_optimizer_set_step_number(saver.optimizer, 2), "set_step_number");
      mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
      if (rank == dying) options.progress = [](void *, uint64_t, uint64_t) { return raise(SIGKILL); };
      if (!wrong.empty()) return wrong;
      const mxs_status status = saver.save(root.path(), &options);
      if (status == MXS_OK) return "a save without one of its ranks is good";
      return std::strstr(mxs_last_error(), words("rank %d", dying).c_str()) ? "" : error_of("it isn't named");
    }, process_options);
    if (!complaint.empty()) return words("rank %d dies: ", dying) + complaint;
    // Who would have removed it is dead: the next save does.
    const std::string again = run_world(1, [&](int, mxs_comm *comm) -> std::string {
      Saver saver;
      std::string wrong = saver.make_all(comm);
      if (wrong.empty()) wrong = want(MXS_OK, mxs_optimizer_set_step_number(saver.optimizer, 3), "set_step_number");
      return wrong.empty() ? want(MXS_OK, saver.save(root.path()), "the next save") : wrong;
    });
    if (!again.empty()) return again;
    if (names_in(root.path()) != "step-00000001,step-00000003") return "there are " + names_in(root.path());
    Manifest manifest;
    const std::string wrong = check_manifest_of(root.path() + "/step-00000001", &manifest);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string a_forked_child_can_neither_save_nor_wait_inner() {
  TestFolder root;
  return run_processes(1, [&](int, mxs_comm *comm) -> std::string {
    Saver saver;
    std::string wrong = saver.make_all(comm);
    mxs_save *save = nullptr;
    if (wrong.empty()) wrong = want(MXS_OK, saver.start(&save, root.path()), "the start");
    if (!wrong.empty()) return wrong;
    const pid_t child = fork();
    if (child == 0) {
      mxs_save_info info = MXS_SAVE_INFO_INIT;
      const bool all = saver.save(root.path()) == MXS_FORKED && mxs_save_wait(save, 0) == MXS_FORKED &&
                       mxs_save_query(save, &info) == MXS_FORKED && mxs_save_cancel(save) == MXS_FORKED &&
                       mxs_save_destroy(&save) == MXS_FORKED && save;
      _exit(all ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return "the child could";
    wrong = want(MXS_OK, mxs_save_wait(save, 0), "the wait");
    return wrong.empty() ? want(MXS_OK, mxs_save_destroy(&save), "the end") : wrong;
  });
}

#define CASE(name) \
  void name(void **) { assert_true(good(name##_inner())); }
CASE(whoever_says_stop_stops_all)
CASE(a_rank_that_dies_leaves_nothing)
CASE(a_forked_child_can_neither_save_nor_wait)

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(whoever_says_stop_stops_all),
      cmocka_unit_test(a_rank_that_dies_leaves_nothing),
      cmocka_unit_test(a_forked_child_can_neither_save_nor_wait),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
