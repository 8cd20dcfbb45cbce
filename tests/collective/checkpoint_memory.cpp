// SPDX-License-Identifier: Apache-2.0
// Saving and loading take less than 64 MiB of memory above what the model has: the most that a rank ever had resident
// (VmHWM), beside what it had before. Arrays are larger than that: 80 MiB of masters and of momentum each.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "support/processes.hpp"
#include "support/sanitized.hpp"
#include "support/temporary_folder.hpp"
#include "support/versioned.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr int rank_count = 2;
constexpr uint64_t mib = uint64_t{1} << 20;
constexpr uint64_t memory_above_max = 64 * mib;

// A matrix for each rank, and a table that is cut over both. Of 308 MiB at rest 224 MiB are in the checkpoint.
Model large_model() {
  Model model;
  model.add("a", 0, {5120, 4096}, MXS_BF16);
  model.add("b", 1, {5120, 4096}, MXS_BF16);
  model.add("table", 1, {1000, 1000}, MXS_BF16).rule = MXS_RULE_ADAMW;
  model.finish();
  return model;
}

uint64_t status_bytes(const char *name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.compare(0, std::strlen(name), name) == 0) return std::stoull(line.substr(std::strlen(name) + 1)) * 1024;
  return 0;
}

// The peak from here on.
bool forgets_its_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5";
  file.close();
  return static_cast<bool>(file);
}

template <class Body>
std::string measured(const char *what, int rank, Body &&body) {
  if (!forgets_its_peak()) return "/proc/self/clear_refs can't be written";
  const uint64_t before = status_bytes("VmRSS:");
  const std::string complaint = body();
  const uint64_t above = status_bytes("VmHWM:") - before;
  if (!complaint.empty()) return complaint;
  std::fprintf(stderr, "# rank %d, %s: %.1f MiB at rest, %.1f MiB above it\n", rank, what,
               static_cast<double>(before) / mib, static_cast<double>(above) / mib);
  if (before < 200 * mib) return "the model isn't there";
  return above < memory_above_max ? "" : std::string(what) + " takes " + std::to_string(above / mib) + " MiB";
}

std::string little_memory(int rank, mxs_comm *comm, const std::string &folder) {
  Versioned trained;
  std::string complaint = trained.prepare(comm, large_model());
  if (complaint.empty()) complaint = trained.become(1);  // which touches all of it
  if (!complaint.empty()) return complaint;
  mxs_unit *const *const units = trained.units.data();
  complaint = measured("save", rank, [&] {
    return want(MXS_OK, mxs_checkpoint_save(folder.c_str(), units, trained.units.size(), trained.optimizer, nullptr),
                "the save");
  });
  mxs_checkpoint *checkpoint = nullptr;
  if (complaint.empty()) complaint = want(MXS_OK, mxs_checkpoint_open(&checkpoint, folder.c_str()), "the opening");
  if (complaint.empty())
    complaint = measured("load", rank, [&] {
      return want(MXS_OK, mxs_checkpoint_load(checkpoint, units, trained.units.size(), trained.optimizer, nullptr),
                  "the load");
    });
  if (complaint.empty() && rank == 0)
    complaint = measured("verify", rank, [&] {
      return want(MXS_OK, mxs_checkpoint_verify(checkpoint, nullptr), "mxs_checkpoint_verify");
    });
  mxs_checkpoint_close(&checkpoint);
  return complaint.empty() ? trained.is(1) : complaint;
}

bool little_memory_on_two_ranks() {
  const TemporaryFolder folder;
  const std::string complaint = run_processes(
      rank_count, [&](int rank, mxs_comm *comm) { return little_memory(rank, comm, folder.path()); });
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

void save_and_load_take_less_than_64_mib(void **) {
  assert_true(little_memory_on_two_ranks());
}

}  // namespace

int main() {
  if (under_tool()) {
    std::printf("1..0 # SKIP a sanitizer or valgrind has memory of its own\n");
    return 0;
  }
  const CMUnitTest tests[] = {
      cmocka_unit_test(save_and_load_take_less_than_64_mib),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
