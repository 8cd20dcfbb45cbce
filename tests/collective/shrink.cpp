// SPDX-License-Identifier: Apache-2.0
// Ranks are lost, and the others go on: they fail, shrink, and their comm works as any does. Killed in idle, in a
// gather and in the shrink itself, rank 0 and whoever would lead among them; stopped, and back too late; aborted and
// nobody lost; twice in a row; down to one. Nothing is left behind.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cases.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/transports.hpp"
#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

int entries_of(const char *folder) {
  int count = 0;
  if (DIR *directory = opendir(folder)) {
    while (readdir(directory)) count++;
    closedir(directory);
  }
  return count;
}

// Descriptors, threads, and maps of the library's own files.
struct Holdings {
  int files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task"), maps = 0;
  Holdings() {
    std::ifstream file("/proc/self/maps");
    for (std::string line; std::getline(file, line);)
      if (line.find("memfd:") != std::string::npos || line.find("/dev/shm/") != std::string::npos) maps++;
  }
};

std::string compare(const Holdings &before, const Holdings &after) {
  if (before.files == after.files && before.threads == after.threads && before.maps == after.maps) return "";
  return words("%d descriptors, %d threads, %d maps were left behind", after.files - before.files,
               after.threads - before.threads, after.maps - before.maps);
}

// By rank of the new comm: the numbers that its ranks had in the one that it was made from.
std::string origins(mxs_comm *comm, std::vector<int> *result) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return error_of("query");
  result->clear();
  for (int rank = 0; rank < info.rank_count; rank++) {
    int32_t origin = -1;
    if (mxs_comm_origin(comm, rank, &origin) != MXS_OK) return error_of("origin");
    result->push_back(origin);
  }
  return "";
}

// Every byte of odd layouts, gathered and reduced.
std::string carries(mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return error_of("query");
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  for (const TestLayout &layout : test_layouts(info.rank_count, 4, 1201)) {
    Case each;
    each.layout = &layout;
    std::string complaint = run_case(info.rank, info.rank_count, comm, each);
    each.kind = MXS_REDUCE;
    each.dtype = MXS_BF16;
    each.flags = MXS_RANK_ORDER;
    if (complaint.empty()) complaint = run_case(info.rank, info.rank_count, comm, each);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

// Units: gathered, reduced and stepped.
std::string trains(mxs_comm *comm) {
  Units units;
  std::string complaint = units.make(comm, odd_model());
  for (uint64_t version = 1; version < 3 && complaint.empty(); version++) {
    complaint = units.fill(version);
    if (complaint.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) complaint = error_of("barrier");
    for (int index = 0; index < static_cast<int>(units.units.size()) && complaint.empty(); index++)
      complaint = units.gather_and_check(index, version);
  }
  return complaint;
}

std::string works(mxs_comm *comm) {
  const std::string complaint = carries(comm);
  return complaint.empty() ? trains(comm) : complaint;
}

// Until a call says that somebody is gone; the lost rank is in the sentence, if it is the only one.
std::string see_failure(mxs_comm *comm, const std::vector<int> &lost) {
  mxs_status status = MXS_OK;
  while (status == MXS_OK) status = mxs_comm_barrier(comm, nullptr);
  const std::string sentence = mxs_last_error();
  if (lost.size() == 1 && sentence.find("rank " + std::to_string(lost[0])) == std::string::npos)
    return "the lost rank is not named: " + sentence;
  return status == MXS_PEER_FAILED ? "" : std::string(mxs_status_name(status)) + ": " + sentence;
}

std::vector<int> all_but(int rank_count, const std::vector<int> &lost) {
  std::vector<int> living;
  for (int rank = 0; rank < rank_count; rank++)
    if (std::find(lost.begin(), lost.end(), rank) == lost.end()) living.push_back(rank);
  return living;
}

std::string names(const std::vector<int> &ranks) {
  std::string text;
  for (const int rank : ranks) text.append(" ").append(std::to_string(rank));
  return text;
}

// The comm fails, and these go on. Takes the failed one away.
std::string shrink(mxs_comm **comm, const std::vector<int> &living) {
  mxs_comm *next = nullptr;
  if (mxs_comm_shrink(&next, *comm, nullptr) != MXS_OK) return error_of("shrink");
  std::vector<int> found;
  std::string complaint = origins(next, &found);
  if (complaint.empty() && found != living) complaint = "the living are" + names(found) + ", not" + names(living);
  if (mxs_comm_destroy(comm) != MXS_OK) complaint = error_of("destroy");
  *comm = next;
  return complaint;
}

mxs_comm *create(const char *transport, double timeout_seconds = 60) {
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.transport = transport;
  options.thread_count = 1;
  options.timeout_ns = static_cast<uint64_t>(timeout_seconds * 1e9);
  mxs_comm *comm = nullptr;
  return mxs_comm_create(&comm, &options) == MXS_OK ? comm : nullptr;
}

void die_after(std::chrono::microseconds time) {
  std::this_thread::sleep_for(time);
  kill(getpid(), SIGKILL);
}

struct Scene {
  int rank_count;
  std::vector<int> lost;
  const char *transport = nullptr;
  bool in_gather = false;  // else in idle
};

std::string lose_and_go_on(const Scene &scene, int rank) {
  const Holdings before;
  mxs_comm *comm = create(scene.transport);
  if (!comm) return error_of("create");
  const bool is_lost = std::count(scene.lost.begin(), scene.lost.end(), rank) != 0;
  std::string complaint = carries(comm);
  if (is_lost && !scene.in_gather) kill(getpid(), SIGKILL);
  if (scene.in_gather) {
    // Large: the lost ones end in the middle of it.
    const TestLayout layout = test_layouts(scene.rank_count, 4, 500'000)[0];
    Case each;
    each.layout = &layout;
    std::thread killer;
    if (is_lost) killer = std::thread(die_after, std::chrono::microseconds(1000 + getpid() % 7 * 500));
    while (complaint.empty()) complaint = run_case(rank, scene.rank_count, comm, each);
    complaint.clear();
  }
  if (complaint.empty()) complaint = see_failure(comm, scene.lost);
  if (complaint.empty()) complaint = shrink(&comm, all_but(scene.rank_count, scene.lost));
  if (complaint.empty()) complaint = works(comm);
  mxs_comm_destroy(&comm);
  if (complaint.empty() && !scene.transport) complaint = compare(before, Holdings());
  return complaint;
}

bool survives(const Scene &scene) {
  if (scene.transport && !has_transport(scene.transport)) return true;
  ProcessOptions options;
  options.any_may_die = true;
  options.timeout_seconds = 60;
  options.environment = {"UCX_TLS=tcp,self"};
  const std::string complaint = run_processes_bare(
      scene.rank_count, [&](int rank) { return lose_and_go_on(scene, rank); }, options);
  return good(complaint.empty() ? "" : words("%d ranks without", scene.rank_count) + names(scene.lost) + ": " +
                                           complaint);
}

void killed_ranks_of_every_role_are_left_out(void **) {
  for (const Scene &scene : std::vector<Scene>{{2, {0}}, {2, {1}}, {3, {1}}, {4, {0}}, {4, {3}}, {4, {0, 1, 2}},
                                               {5, {0, 2, 4}}, {8, {0, 1, 6}}, {8, {7}}})
    assert_true(survives(scene));
}

void ranks_killed_in_a_gather_are_left_out(void **) {
  assert_true(survives({2, {0}, nullptr, true}));
  assert_true(survives({4, {0}, nullptr, true}));
  assert_true(survives({4, {2, 3}, nullptr, true}));
}

void killed_ranks_are_left_out_over_ucx(void **) {
  for (const Scene &scene : std::vector<Scene>{{2, {0}, "ucx"}, {4, {0}, "ucx", true}, {5, {1, 4}, "ucx"}})
    assert_true(survives(scene));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(killed_ranks_of_every_role_are_left_out),
      cmocka_unit_test(ranks_killed_in_a_gather_are_left_out),
      cmocka_unit_test(killed_ranks_are_left_out_over_ucx),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
