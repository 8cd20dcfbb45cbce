// SPDX-License-Identifier: Apache-2.0
// What stays after saves, loads and openings, good ones and all kinds of bad ones: no descriptor and no thread.
// And questions and cancels that come from other threads while a save goes on beside steps.
#include <dirent.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <thread>

#include "checkpoint_saving.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr int warm_rounds = 2, counted_rounds = 12;

// Entries of a folder under /proc. A folder being listed has a descriptor of its own, the same one each time.
int entries_of(const char *path) {
  DIR *const folder = opendir(path);
  if (!folder) return -1;
  int count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

struct Held {
  int descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");

  std::string compare(const Held &before) const {
    if (before.descriptors < 0 || before.threads < 0) return "/proc can't be listed";
    if (descriptors == before.descriptors && threads == before.threads) return "";
    return words("%d descriptors and %d threads became %d and %d", before.descriptors, before.threads, descriptors,
                 threads);
  }
};

// One rank that saves, loads and fails; the others do as it does.
class Visitor {
 public:
  Visitor(int rank, mxs_comm *comm, std::string root) : rank_(rank), comm_(comm), root_(std::move(root)) {}

  std::string run() {
    std::string wrong = saver_.make_all(comm_);
    if (wrong.empty()) wrong = saver_.train();
    Held before;
    for (int round = 0; round < warm_rounds + counted_rounds && wrong.empty(); round++) {
      if (round == warm_rounds) before = Held();
      wrong = good_ones();
      if (wrong.empty()) wrong = saves_that_fail();
      if (wrong.empty()) wrong = loads_that_fail();
    }
    return wrong.empty() ? Held().compare(before) : wrong;
  }

 private:
  std::string together(std::string wrong) const {
    return wrong.empty() && mxs_comm_barrier(comm_, nullptr) != MXS_OK ? error_of("barrier") : wrong;
  }

  std::string good_ones() {
    std::string wrong = want(MXS_OK, saver_.save(root_), "the save");
    mxs_save *save = nullptr;
    if (wrong.empty()) wrong = want(MXS_OK, saver_.start(&save, root_ + "/beside"), "the start");
    if (wrong.empty()) wrong = want(MXS_OK, mxs_save_wait(save, 0), "the wait");
    if (wrong.empty()) wrong = want(MXS_OK, mxs_save_destroy(&save), "the end");
    return wrong.empty() ? load(MXS_OK, root_) : wrong;
  }

  std::string load(mxs_status wanted, const std::string &path) {
    mxs_checkpoint *checkpoint = nullptr;
    std::string wrong = want(MXS_OK, mxs_checkpoint_open(&checkpoint, path.c_str()), "the opening");
    if (wrong.empty())
      wrong = expect(mxs_checkpoint_load(checkpoint, saver_.units.data(), saver_.units.size(), saver_.optimizer,
                                         nullptr), wanted);
    if (wrong.empty()) wrong = expect(mxs_checkpoint_verify(checkpoint, nullptr), wanted);
    mxs_checkpoint_close(&checkpoint);
    return together(wrong);
  }

  std::string saves_that_fail() {
    mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
    if (rank_ == 0) options.progress = [](void *, uint64_t, uint64_t) { return 1; };
    std::string wrong = expect(saver_.save(root_, &options), MXS_CANCELLED);
    options = MXS_CHECKPOINT_OPTIONS_INIT;
    if (wrong.empty()) wrong = expect(saver_.save("/proc/nowhere"), MXS_SYSTEM);
    options.files_from = "/proc/nowhere";
    if (wrong.empty()) wrong = expect(saver_.save(root_, &options), MXS_SYSTEM);
    mxs_save *save = nullptr;
    if (wrong.empty()) wrong = expect(saver_.start(&save, "/proc/nowhere"), MXS_SYSTEM);
    if (wrong.empty()) wrong = want(MXS_OK, saver_.start(&save, root_ + "/beside"), "the start");
    if (wrong.empty()) wrong = want(MXS_OK, mxs_save_cancel(save), "the cancel");
    const mxs_status status = wrong.empty() ? mxs_save_wait(save, 0) : MXS_OK;
    if (wrong.empty() && status != MXS_OK) wrong = expect(status, MXS_CANCELLED);
    if (wrong.empty()) wrong = want(MXS_OK, mxs_save_destroy(&save), "the end");
    return together(wrong);
  }

  // A byte of data that is another, a file cut off, an index and a manifest that are none, nothing at all.
  std::string loads_that_fail() {
    const std::string folder = root_ + "/broken/step-00000002",
                      file = folder + "/optimizer/rank-00000.safetensors";
    if (rank_ == 0) {
      std::filesystem::remove_all(root_ + "/broken");
      std::filesystem::create_directories(root_ + "/broken");
      std::filesystem::copy(root_ + "/step-00000002", folder, std::filesystem::copy_options::recursive);
      std::fstream(file, std::ios::in | std::ios::out).seekp(-2, std::ios::end).write("?!", 2);
    }
    std::string wrong = together("");
    if (wrong.empty()) wrong = load(MXS_DAMAGED, folder);
    if (rank_ == 0 && wrong.empty()) std::filesystem::resize_file(file, 5000);
    if (wrong.empty()) wrong = cannot_be_opened(folder, MXS_DAMAGED);
    if (rank_ == 0 && wrong.empty()) std::ofstream(folder + "/model.safetensors.index.json") << "[";
    if (wrong.empty()) wrong = cannot_be_opened(folder + "/model.safetensors.index.json", MXS_DAMAGED);
    if (rank_ == 0 && wrong.empty()) std::ofstream(folder + "/matrixshard.json") << "{";
    if (wrong.empty()) wrong = cannot_be_opened(folder, MXS_DAMAGED);
    if (wrong.empty()) wrong = cannot_be_opened(root_ + "/nothing", MXS_NOT_FOUND);
    return wrong.empty() ? load(MXS_OK, root_) : wrong;  // after the one that failed nothing could be saved
  }

  std::string cannot_be_opened(const std::string &path, mxs_status wanted) {
    std::string wrong = together("");
    mxs_checkpoint *checkpoint = nullptr;
    if (wrong.empty()) wrong = expect(mxs_checkpoint_open(&checkpoint, path.c_str()), wanted);
    mxs_checkpoint_close(&checkpoint);
    return together(wrong);
  }

  const int rank_;
  mxs_comm *const comm_;
  const std::string root_;
  Saver saver_;
};

std::string nothing_stays_of_saves_and_loads_inner() {
  for (const int rank_count : {1, 2}) {
    TemporaryFolder root;
    const std::string complaint = run_processes(
        rank_count, [&](int rank, mxs_comm *comm) { return Visitor(rank, comm, root.path()).run(); });
    if (!complaint.empty()) return words("%d ranks: ", rank_count) + complaint;
  }
  return "";
}

// ---- from other threads ----

// What one thread asks until the save is over; done_bytes never goes back, and a path is there from the beginning on.
std::string ask_until_over(mxs_save *save, int *asked) {
  uint64_t done_bytes = 0;
  for (;; ++*asked) {
    mxs_save_info info = MXS_SAVE_INFO_INIT;
    if (mxs_save_query(save, &info) != MXS_OK) return error_of("the query");
    if (info.done_bytes < done_bytes || info.done_bytes > info.total_bytes) return "done_bytes goes back, or too far";
    if (!info.path || !*info.path || info.total_bytes == 0) return "a save without a path or bytes";
    done_bytes = info.done_bytes;
    const mxs_status status = mxs_save_wait(save, 100'000);
    if (info.finished && status == MXS_TIMED_OUT) return "what is finished goes on";
    if (status != MXS_TIMED_OUT) return status == MXS_OK || status == MXS_CANCELLED ? "" : error_of("the wait");
  }
}

std::string ask_and_cancel_beside_steps(int rank, mxs_comm *comm, const std::string &root, int cancelling) {
  Saver saver;
  std::string wrong = saver.make_all(comm);
  if (wrong.empty()) wrong = saver.train();
  mxs_save *save = nullptr;
  if (wrong.empty()) wrong = want(MXS_OK, saver.start(&save, root), "the start");
  if (!wrong.empty()) return wrong;
  std::string complaints[2];
  int asked[2] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; i++)
    threads.emplace_back([&, i] { complaints[i] = ask_until_over(save, &asked[i]); });
  if (rank == cancelling) threads.emplace_back([&] { mxs_save_cancel(save); });
  wrong = saver.train(3, 2);
  for (std::thread &thread : threads) thread.join();
  for (const std::string &complaint : complaints)
    if (wrong.empty()) wrong = complaint;
  const mxs_status status = mxs_save_wait(save, 0);
  if (wrong.empty() && status != MXS_OK) wrong = expect(status, MXS_CANCELLED, {words("rank %d", cancelling)});
  if (wrong.empty()) wrong = want(MXS_OK, mxs_save_destroy(&save), "the end");
  if (wrong.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) wrong = error_of("barrier");
  if (wrong.empty() && names_in(root) != (status == MXS_OK ? "step-00000002" : ""))
    wrong = "there are " + names_in(root);
  return wrong;
}

std::string any_thread_may_ask_and_cancel_inner() {
  for (int turn = 0; turn < 6; turn++) {
    TemporaryFolder root;
    const std::string complaint = run_world(3, [&](int rank, mxs_comm *comm) {
      return ask_and_cancel_beside_steps(rank, comm, root.path(), turn % 3);
    });
    if (!complaint.empty()) return complaint;
  }
  return "";
}

void nothing_stays_of_saves_and_loads(void **) { assert_true(good(nothing_stays_of_saves_and_loads_inner())); }
void any_thread_may_ask_and_cancel(void **) { assert_true(good(any_thread_may_ask_and_cancel_inner())); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(nothing_stays_of_saves_and_loads),
      cmocka_unit_test(any_thread_may_ask_and_cancel),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
