// SPDX-License-Identifier: Apache-2.0
// A file system that is full, has no more inodes, or is read-only: the save fails on all ranks with a sentence that
// names a rank, a file and the cause; the checkpoint before it is whole and alone; training goes on, a save elsewhere
// works, and one here, too, when there is room.
//
// Needs a file system of its own: a tmpfs in a private mount namespace, for which one must be root.
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "support/processes.hpp"
#include "support/temporary_folder.hpp"
#include "support/versioned.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr int rank_count = 3;

bool remounts(const std::string &path, const std::string &options, unsigned long flags = 0) {
  return mount("tmpfs", path.c_str(), "tmpfs", MS_REMOUNT | flags, options.c_str()) == 0;
}

struct Trouble {
  const char *name;
  std::string options;  // of the tmpfs, while the save is tried
  unsigned long flags;
  const char *cause;
};

// Of a checkpoint: about 2 MiB in 9 files. Sizes at which headers, weights, state or what rank 0 writes last don't fit.
std::vector<Trouble> troubles(uint64_t used_bytes, uint64_t used_inodes) {
  std::vector<Trouble> all = {{"read-only", "size=64m,nr_inodes=1000", MS_RDONLY, "Read-only file system"}};
  for (const uint64_t more_kib : {0, 8, 200, 600, 1200, 1700})
    all.push_back({"full", "nr_inodes=1000,size=" + std::to_string(used_bytes + more_kib * 1024), 0, "No space left"});
  all.push_back({"nearly enough", "nr_inodes=1000,size=" + std::to_string(2 * used_bytes - 8192), 0, "No space left"});
  for (const uint64_t more : {0, 1, 3, 6, 9})
    all.push_back({"without inodes", "size=64m,nr_inodes=" + std::to_string(used_inodes + more), 0, "No space left"});
  return all;
}

std::string fails_everywhere(Versioned &rank, const std::string &folder, const Trouble &trouble, bool beside) {
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.keep = 1;
  const mxs_status status = rank.save(folder, options, beside);
  if (status != MXS_SYSTEM) return want(MXS_SYSTEM, status, "the save");
  const std::string error = rank.error(beside);
  const std::string name = folder.substr(folder.rfind('/'));
  if (error.find("rank ") == std::string::npos || error.find(name) == std::string::npos ||
      error.find(trouble.cause) == std::string::npos)
    return "names not rank, file and cause: " + error;
  if (rank.rank != 0) return "";
  const std::vector<std::string> names = entries_of(folder);
  if (names == std::vector<std::string>{"step-00000001"}) return "";
  std::string complaint = "beside the old checkpoint:";
  for (const std::string &name : names) complaint += " " + name;
  return complaint;
}

std::string loads(Versioned &rank, const std::string &folder, uint64_t version) {
  mxs_checkpoint *checkpoint = nullptr;
  std::string complaint = want(MXS_OK, mxs_checkpoint_open(&checkpoint, folder.c_str()), "the opening");
  if (complaint.empty() && rank.rank == 0)
    complaint = want(MXS_OK, mxs_checkpoint_verify(checkpoint, nullptr), "mxs_checkpoint_verify");
  if (complaint.empty()) complaint = rank.load(checkpoint);
  mxs_checkpoint_close(&checkpoint);
  return complaint.empty() ? rank.is(version) : complaint;
}

// Rank 0 changes the file system while the others wait.
std::string change(Versioned &rank, const std::string &folder, const std::string &options, unsigned long flags) {
  std::string complaint = want(MXS_OK, mxs_comm_barrier(rank.comm, nullptr), "the barrier before");
  if (complaint.empty() && rank.rank == 0 && !remounts(folder, options, flags))
    complaint = "remount with " + options + ": " + std::strerror(errno);
  if (complaint.empty()) complaint = want(MXS_OK, mxs_comm_barrier(rank.comm, nullptr), "the barrier after");
  return complaint;
}

std::string survives(Versioned &rank, const std::string &folder, const std::string &elsewhere, const Trouble &trouble,
                     uint64_t version, bool beside) {
  std::string complaint = rank.become(version);
  if (complaint.empty()) complaint = change(rank, folder, trouble.options, trouble.flags);
  if (complaint.empty()) complaint = fails_everywhere(rank, folder, trouble, beside);
  if (complaint.empty()) complaint = rank.is(version);
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.keep = 1;
  if (complaint.empty()) complaint = want(MXS_OK, rank.save(elsewhere, options, beside), "the save elsewhere");
  if (complaint.empty()) complaint = loads(rank, folder, 1);
  if (complaint.empty()) complaint = loads(rank, elsewhere, version);
  return complaint.empty() ? change(rank, folder, "size=64m,nr_inodes=1000", 0) : complaint;
}

void count_used(const std::string &folder, uint64_t *bytes, uint64_t *inodes) {
  *bytes = 0;
  *inodes = 2;  // of the root, and one that tmpfs keeps
  for (const auto &entry : std::filesystem::recursive_directory_iterator(folder)) {
    ++*inodes;
    if (entry.is_regular_file()) *bytes += (entry.file_size() + 4095) / 4096 * 4096;
  }
}

std::string body(mxs_comm *comm, const std::string &folder, const std::string &elsewhere) {
  Versioned rank;
  std::string complaint = rank.prepare(comm);
  if (complaint.empty()) complaint = rank.become(1);
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  if (complaint.empty()) complaint = want(MXS_OK, rank.save(folder, options, false), "the first save");
  if (!complaint.empty()) return complaint;
  uint64_t bytes = 0, inodes = 0;
  count_used(folder, &bytes, &inodes);
  uint64_t version = 1;
  for (const Trouble &trouble : troubles(bytes, inodes)) {
    version++;
    complaint = survives(rank, folder, elsewhere, trouble, version, version % 2 != 0);
    if (!complaint.empty()) return std::string(trouble.name) + " (" + trouble.options + "): " + complaint;
  }
  complaint = rank.become(++version);
  if (complaint.empty()) complaint = want(MXS_OK, rank.save(folder, options, false), "the last save");
  return complaint.empty() ? loads(rank, folder, version) : complaint;
}

bool nothing_is_lost() {
  const TemporaryFolder folder, elsewhere;
  const std::string complaint = with_own_mounts([&]() -> std::string {
    if (!mount_tmpfs(folder.path(), "size=64m,nr_inodes=1000")) return std::string("mount: ") + std::strerror(errno);
    return run_processes(rank_count,
                         [&](int, mxs_comm *comm) { return body(comm, folder.path(), elsewhere.path()); });
  });
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

void a_file_system_without_room_loses_nothing(void **) { assert_true(nothing_is_lost()); }

}  // namespace

int main() {
  if (geteuid() != 0) {
    std::printf("1..0 # SKIP mounts of its own need root\n");
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_file_system_without_room_loses_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
