// SPDX-License-Identifier: Apache-2.0
// Saves into file systems that are full, read-only, read-only on one rank, or another one on one rank. All ranks are
// told which rank and file it was, nothing is left behind, older checkpoints are as they were.
//
// File systems are made in mount namespaces of the test's own, which wants root.
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>

#include "checkpoint_saving.hpp"
#include "support/world.hpp"
#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

bool may_mount() {
  const pid_t child = fork();
  if (child == 0) _exit(own_mounts() && mount("none", "/tmp", "tmpfs", 0, "size=1m") == 0 ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A good checkpoint of step 1, then `spoil` on each rank, then saves of step 2, in both ways, which must fail alike.
std::string fails_on_all(int rank_count, const std::string &root, mxs_status status,
                         const std::vector<std::string> &said, const std::function<std::string(int rank)> &spoil) {
  const std::string good_one = root + "/step-00000001";
  const std::string complaint = run_world(rank_count, [&](int rank, mxs_comm *comm) -> std::string {
    Saver saver;
    std::string wrong = saver.make_all(comm);
    if (wrong.empty()) wrong = saver.fill(1);
    if (wrong.empty()) wrong = want(MXS_OK, mxs_optimizer_set_step_number(saver.optimizer, 1), "set_step_number");
    if (wrong.empty()) wrong = want(MXS_OK, saver.save(root), "the first save");
    if (wrong.empty()) wrong = want(MXS_OK, mxs_optimizer_set_step_number(saver.optimizer, 2), "set_step_number");
    if (wrong.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) wrong = error_of("barrier");
    if (wrong.empty()) wrong = spoil(rank);
    if (wrong.empty()) wrong = expect(saver.save(root), status, said);
    mxs_save *save = nullptr;
    mxs_status started = wrong.empty() ? saver.start(&save, root) : MXS_OK;
    if (wrong.empty() && started == MXS_OK) started = mxs_save_wait(save, 0);
    if (wrong.empty()) wrong = expect(started, status, said);
    if (save) mxs_save_destroy(&save);
    return wrong;
  });
  if (!complaint.empty()) return complaint;
  if (names_in(root) != "step-00000001") return "there are " + names_in(root);
  Manifest manifest;
  return check_manifest_of(good_one, &manifest);
}

std::string make_tmpfs(const std::string &path, const char *options) {
  return mount_tmpfs(path, options) ? "" : std::string("tmpfs: ") + std::strerror(errno);
}

std::string a_full_file_system_is_told_to_all_inner() {
  TemporaryFolder root;
  return with_own_mounts([&] {
    const std::string wrong = make_tmpfs(root.path(), "size=64m");
    if (!wrong.empty()) return wrong;
    std::atomic<bool> done{false};
    return fails_on_all(3, root.path(), MXS_SYSTEM, {"rank ", ".safetensors", "No space left"},
                        [&](int rank) -> std::string {
                          if (rank == 0) {  // room for a quarter of another one
                            struct statvfs now {};
                            if (statvfs(root.path().c_str(), &now) != 0) return "no statvfs";
                            const uint64_t used = (now.f_blocks - now.f_bfree) * now.f_frsize;
                            const std::string size = "size=" + std::to_string(used + used / 4);
                            if (mount("none", root.path().c_str(), "", MS_REMOUNT, size.c_str()) != 0)
                              return "no remount";
                            done = true;
                          }
                          while (!done) usleep(1000);
                          return "";
                        });
  });
}

std::string a_read_only_file_system_is_told_to_all_inner() {
  TemporaryFolder root;
  return with_own_mounts([&] {
    std::string wrong = make_tmpfs(root.path(), "size=64m");
    if (!wrong.empty()) return wrong;
    std::atomic<bool> done{false};
    return fails_on_all(3, root.path(), MXS_SYSTEM, {"Read-only", root.path()}, [&](int rank) -> std::string {
      if (rank == 0) {
        if (mount("none", root.path().c_str(), "", MS_REMOUNT | MS_RDONLY, nullptr) != 0) return "no remount";
        done = true;
      }
      while (!done) usleep(1000);
      return "";
    });
  });
}

std::string one_rank_that_may_only_read_is_named_on_all_inner() {
  TemporaryFolder root;
  return with_own_mounts([&] {
    const std::string wrong = make_tmpfs(root.path(), "size=64m");
    if (!wrong.empty()) return wrong;
    return fails_on_all(4, root.path(), MXS_SYSTEM, {"rank 2", ".partial-", "Read-only"},
                        [&](int rank) -> std::string {
                          if (rank != 2) return "";
                          const char *const path = root.path().c_str();
                          if (!own_mounts() || mount(path, path, "", MS_BIND, nullptr) != 0 ||
                              mount("none", path, "", MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0)
                            return "no bind mount";
                          return "";
                        });
  });
}

std::string one_rank_with_another_file_system_is_named_on_all_inner() {
  TemporaryFolder root;
  return with_own_mounts([&] {
    const std::string wrong = make_tmpfs(root.path(), "size=64m");
    if (!wrong.empty()) return wrong;
    return fails_on_all(3, root.path(), MXS_SYSTEM, {"rank 1", "one file system"}, [&](int rank) -> std::string {
      if (rank != 1) return "";
      return own_mounts() ? make_tmpfs(root.path(), "size=8m") : "no mounts of its own";
    });
  });
}

// Rank 1 sees the folder, but what it writes into it goes elsewhere.
std::string files_that_rank_0_doesnt_see_are_no_checkpoint_inner() {
  TemporaryFolder root;
  return with_own_mounts([&] {
    const std::string wrong = make_tmpfs(root.path(), "size=64m");
    if (!wrong.empty()) return wrong;
    const std::string under = root.path() + "/under";
    std::filesystem::create_directory(under);
    const std::string complaint = run_world(2, [&](int rank, mxs_comm *comm) -> std::string {
      Saver saver;
      std::string bad = saver.make_all(comm);
      if (bad.empty() && rank == 1) {
        TemporaryFolder upper;
        std::filesystem::create_directory(root.path() + "/upper");
        std::filesystem::create_directory(root.path() + "/work");
        const std::string options = "lowerdir=" + under + ",upperdir=" + root.path() + "/upper,workdir=" + root.path() +
                                    "/work";
        if (!own_mounts() || mount("none", under.c_str(), "overlay", 0, options.c_str()) != 0) return "skip";
      }
      return bad.empty() ? expect(saver.save(under), MXS_SYSTEM, {"one file system"}) : bad;
    }, {.comm_timeout_seconds = 5});
    if (complaint.find("skip") != std::string::npos) return std::string();  // no overlays here
    if (!complaint.empty()) return complaint;
    return names_in(under).empty() ? std::string() : "there are " + names_in(under);
  });
}

void a_full_file_system_is_told_to_all(void **) { assert_true(good(a_full_file_system_is_told_to_all_inner())); }
void a_read_only_file_system_is_told_to_all(void **) {
  assert_true(good(a_read_only_file_system_is_told_to_all_inner()));
}
void one_rank_that_may_only_read_is_named_on_all(void **) {
  assert_true(good(one_rank_that_may_only_read_is_named_on_all_inner()));
}
void one_rank_with_another_file_system_is_named_on_all(void **) {
  assert_true(good(one_rank_with_another_file_system_is_named_on_all_inner()));
}
void files_that_rank_0_doesnt_see_are_no_checkpoint(void **) {
  assert_true(good(files_that_rank_0_doesnt_see_are_no_checkpoint_inner()));
}

}  // namespace

int main() {
  if (!may_mount()) {
    std::printf("1..0 # SKIP mounts in a namespace of its own want root\n");
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_full_file_system_is_told_to_all),
      cmocka_unit_test(a_read_only_file_system_is_told_to_all),
      cmocka_unit_test(one_rank_that_may_only_read_is_named_on_all),
      cmocka_unit_test(one_rank_with_another_file_system_is_named_on_all),
      cmocka_unit_test(files_that_rank_0_doesnt_see_are_no_checkpoint),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
