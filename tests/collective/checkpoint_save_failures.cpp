// SPDX-License-Identifier: Apache-2.0
// Saves that end early or late: somebody says stop, a rank dies, a file takes long. All ranks are told which one it
// was, nothing is left behind, older checkpoints are as they were. And which ranks don't save at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "checkpoint_saving.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

std::string whoever_says_stop_stops_all_inner() {
  TemporaryFolder root;
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
    TemporaryFolder root;
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

// ---- one that takes long ----

// Waits for the partial folder and puts a pipe where a file is to be: who opens it to write waits until it is released.
class Hang {
 public:
  Hang(std::string root, std::string file)
      : root_(std::move(root)), file_(std::move(file)), watch_([this] { watch(); }) {}
  ~Hang() { release(); }

  // After join, on any thread: a comm's barrier is in memory that each rank maps for itself, where TSan sees no order.
  bool is_there() const { return is_there_; }
  void join() {
    if (watch_.joinable()) watch_.join();
  }
  void release() {
    stop_ = true;
    join();
    if (is_there_ && end_ < 0) end_ = open(place_.c_str(), O_RDONLY | O_NONBLOCK);
  }
  void close_end() {
    if (end_ >= 0) close(end_);
    end_ = -1;
  }

 private:
  void watch() {
    while (!stop_) {
      std::error_code error;
      for (const auto &entry : std::filesystem::directory_iterator(root_, error)) {
        const std::string name = entry.path().filename(), place = entry.path().string() + "/" + file_;
        if (name.find(".partial-") == std::string::npos) continue;
        place_ = place;
        is_there_ = mkfifo(place.c_str(), 0600) == 0;  // or the save was faster
        return;
      }
    }
  }

  const std::string root_, file_;
  std::string place_;
  std::atomic<bool> stop_{false}, is_there_{false};
  int end_ = -1;
  std::thread watch_;
};

std::string one_that_goes_on_is_held_inner() {
  bool was_held = false;
  for (int turn = 0; turn < 20 && !was_held; turn++) {
    TemporaryFolder root;
    Hang hang(root.path(), "model-00002-of-00002.safetensors");
    const std::string complaint = run_world(2, [&](int rank, mxs_comm *comm) -> std::string {
      Saver saver;
      std::string wrong = saver.make_all(comm);
      mxs_save *save = nullptr;
      if (wrong.empty()) wrong = want(MXS_OK, saver.start(&save, root.path()), "the start");
      if (!wrong.empty()) return wrong;
      if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
      if (rank == 0) hang.join();
      if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
      if (hang.is_there()) {  // on both, since neither is through before the other
        mxs_save_info info = MXS_SAVE_INFO_INIT;
        wrong = want(MXS_OK, mxs_save_query(save, &info), "the query");
        if (wrong.empty() && info.finished) wrong = "it is finished";
        if (wrong.empty()) wrong = expect(mxs_save_wait(save, 1'000'000), MXS_TIMED_OUT, {"goes on"});
        if (wrong.empty()) wrong = expect(mxs_save_destroy(&save), MXS_HELD, {"mxs_save_wait"});
        if (wrong.empty() && !save) wrong = "the handle is gone";
        if (wrong.empty()) wrong = saver.train();  // nothing of it is in the way
      }
      if (wrong.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) wrong = error_of("barrier");
      if (rank == 0) hang.release();
      // A pipe is no file.
      const mxs_status status = mxs_save_wait(save, 0);
      if (wrong.empty() && hang.is_there()) wrong = expect(status, MXS_SYSTEM, {"rank 1", "model-00002-of-00002"});
      if (wrong.empty()) wrong = want(MXS_OK, mxs_save_destroy(&save), "the end");
      return wrong;
    });
    was_held = hang.is_there();
    hang.close_end();
    if (!complaint.empty()) return complaint;
    if (was_held && !names_in(root.path()).empty()) return "there are " + names_in(root.path());
  }
  return was_held ? "" : "no save could be held";
}

std::string ranks_that_take_too_long_are_not_waited_for_inner() {
  TemporaryFolder root;
  std::atomic<int> over{0};
  const std::string complaint = run_world(3, [&](int rank, mxs_comm *comm) -> std::string {
    Saver saver;
    std::string wrong = saver.make_all(comm);
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    options.timeout_ns = 300'000'000;
    options.progress_context = &over;
    if (rank == 1)
      options.progress = [](void *context, uint64_t, uint64_t) {
        while (*static_cast<std::atomic<int> *>(context) < 2) usleep(1000);
        return 0;
      };
    if (wrong.empty()) wrong = expect(saver.save(root.path(), &options), MXS_TIMED_OUT, {"rank 1"});
    ++over;
    return wrong;
  });
  if (!complaint.empty()) return complaint;
  return names_in(root.path()).empty() ? "" : "there are " + names_in(root.path());
}

// ---- replicas ----

// Two replicas of two ranks: the first writes, the second returns at once, and all of it is there.
std::string the_first_replica_writes_inner() {
  TemporaryFolder root;
  return run_world(4, [&](int rank, mxs_comm *comm) -> std::string {
    mxs_comm *shards = nullptr, *replicas = nullptr;
    std::string wrong = want(MXS_OK, mxs_comm_split(&shards, comm, rank / 2, rank, nullptr), "shards");
    if (wrong.empty()) wrong = want(MXS_OK, mxs_comm_split(&replicas, comm, rank % 2, rank, nullptr), "replicas");
    if (wrong.empty()) {
      Saver saver;
      mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
      options.replicas = replicas;
      saver.unit_options = &options;
      wrong = saver.make_all(shards);
      if (wrong.empty()) wrong = saver.train();
      const std::string path = root.path() + (rank < 2 ? "/first" : "/second");
      mxs_save *save = nullptr;
      if (wrong.empty()) wrong = want(MXS_OK, saver.save(path), "the save");
      if (wrong.empty()) wrong = want(MXS_OK, saver.start(&save, path + "/beside"), "the start");
      if (wrong.empty()) wrong = want(MXS_OK, mxs_save_wait(save, 0), "the wait");
      if (wrong.empty()) wrong = want(MXS_OK, mxs_save_destroy(&save), "the end");
      if (wrong.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) wrong = error_of("barrier");
      if (wrong.empty() && std::filesystem::exists(root.path() + "/second")) wrong = "the second replica has written";
      for (const char *folder : {"/first/step-00000002", "/first/beside/step-00000002"}) {
        Arrays arrays;
        if (wrong.empty()) wrong = arrays.load(root.path() + folder);
        if (wrong.empty()) wrong = saver.compare(arrays);
      }
    }
    if (wrong.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) wrong = error_of("barrier");
    mxs_comm_destroy(&replicas);
    mxs_comm_destroy(&shards);
    return wrong;
  });
}

std::string a_forked_child_can_neither_save_nor_wait_inner() {
  TemporaryFolder root;
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

void whoever_says_stop_stops_all(void **) { assert_true(good(whoever_says_stop_stops_all_inner())); }
void a_rank_that_dies_leaves_nothing(void **) { assert_true(good(a_rank_that_dies_leaves_nothing_inner())); }
void one_that_goes_on_is_held(void **) { assert_true(good(one_that_goes_on_is_held_inner())); }
void ranks_that_take_too_long_are_not_waited_for(void **) {
  assert_true(good(ranks_that_take_too_long_are_not_waited_for_inner()));
}
void the_first_replica_writes(void **) { assert_true(good(the_first_replica_writes_inner())); }
void a_forked_child_can_neither_save_nor_wait(void **) {
  assert_true(good(a_forked_child_can_neither_save_nor_wait_inner()));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(whoever_says_stop_stops_all),
      cmocka_unit_test(a_rank_that_dies_leaves_nothing),
      cmocka_unit_test(one_that_goes_on_is_held),
      cmocka_unit_test(ranks_that_take_too_long_are_not_waited_for),
      cmocka_unit_test(the_first_replica_writes),
      cmocka_unit_test(a_forked_child_can_neither_save_nor_wait),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
