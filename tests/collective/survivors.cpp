// SPDX-License-Identifier: Apache-2.0
// A rank is killed or stopped in the middle of every kind of call, over shm and over ucx. The others get an error that
// names it, destroy everything, leave no descriptor and no map behind, and make a new comm without it.
//
//   rank 2 ends here:  comm create | unit create | gather | reduce | agree
//   rank 0, 1, 3:      error within the deadline -> destroy -> new comm of three -> barrier
//
// And a rank that runs out of descriptors or addresses, in whichever call, is told of on all.
#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string>

#include "base/clock.hpp"
#include "collective/comm.hpp"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/sanitized.hpp"
#include "support/transports.hpp"
#include "support/unit_model.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr int rank_count = 4, victim = 2;
constexpr double deadline_seconds = 2;  // where only the deadline can tell; a death is noticed long before

enum class Moment { comm_create, unit_create, gather, reduce, agree };

const char *name_of(Moment moment) {
  switch (moment) {
    case Moment::comm_create: return "comm create";
    case Moment::unit_create: return "unit create";
    case Moment::gather: return "gather";
    case Moment::reduce: return "reduce";
    default: return "agree";
  }
}

int open_files() {
  int count = 0;
  if (DIR *directory = opendir("/proc/self/fd")) {
    while (readdir(directory)) count++;
    closedir(directory);
  }
  return count;
}

// Maps of the library's own files; the heap comes and goes.
int shared_maps() {
  std::ifstream file("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(file, line);)
    if (line.find("memfd:") != std::string::npos || line.find("/dev/shm/") != std::string::npos) count++;
  return count;
}

struct Scene {
  Moment moment;
  const char *transport;
  int signal;  // SIGKILL or SIGSTOP
};

// What the job does, up to and including the call in which the victim is lost.
mxs_status act(const Scene &scene, int rank, mxs_comm **comm, Units *units, mxs_optimizer **optimizer) {
  const auto lose = [&](Moment moment) {
    if (rank == victim && moment == scene.moment) kill(getpid(), scene.signal);
  };
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.transport = scene.transport;
  options.thread_count = 1;
  const bool by_deadline = scene.signal == SIGSTOP || scene.moment == Moment::comm_create;
  options.timeout_ns = static_cast<uint64_t>((by_deadline ? deadline_seconds : 30) * 1e9);
  lose(Moment::comm_create);
  mxs_status status = mxs_comm_create(comm, &options);
  if (status != MXS_OK) return status;
  mxs_topology *topology = nullptr;
  status = mxs_comm_topology(*comm, &topology);
  const Model model = plain_model(2);
  if (status == MXS_OK)
    status = mxs_plan_create(&units->plan, model.tensors.data(), model.tensors.size(), topology, nullptr);
  mxs_topology_destroy(&topology);
  for (int index = 0; index < 2 && status == MXS_OK; index++) {
    if (index == 1) lose(Moment::unit_create);
    mxs_unit *unit = nullptr;
    status = mxs_unit_create(&unit, *comm, units->plan, index, nullptr);
    if (status == MXS_OK) units->units.push_back(unit);
  }
  if (status == MXS_OK) status = mxs_optimizer_create(optimizer, units->units.data(), units->units.size(), nullptr);
  lose(Moment::gather);
  for (mxs_unit *unit : units->units) {
    if (status == MXS_OK) status = mxs_unit_gather(unit, nullptr);
    if (status == MXS_OK) status = mxs_unit_wait(unit, nullptr);
    if (status == MXS_OK) status = mxs_unit_release(unit, MXS_FREE, nullptr);
  }
  lose(Moment::reduce);
  for (mxs_unit *unit : units->units) {
    if (status == MXS_OK) status = mxs_unit_skip(unit, nullptr);
    if (status == MXS_OK) status = mxs_unit_wait_reduce(unit, nullptr);
  }
  lose(Moment::agree);
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step step = MXS_STEP_INIT;
  step.group_count = 1;
  step.groups = &values;
  if (status == MXS_OK) status = mxs_optimizer_step(*optimizer, &step, nullptr);
  return status;
}

std::string destroy_everything(mxs_comm **comm, Units *units, mxs_optimizer **optimizer) {
  if (mxs_optimizer_destroy(optimizer) != MXS_OK) return std::string("optimizer: ") + mxs_last_error();
  for (mxs_unit *&unit : units->units)
    if (mxs_unit_destroy(&unit) != MXS_OK) return std::string("unit: ") + mxs_last_error();
  units->units.clear();
  mxs_plan_destroy(&units->plan);
  if (mxs_comm_destroy(comm) != MXS_OK) return std::string("comm: ") + mxs_last_error();
  return "";
}

// The same job once more with those who are left, by themselves.
std::string go_on_without(int rank, int port, const char *transport) {
  setenv("RANK", std::to_string(rank < victim ? rank : rank - 1).c_str(), 1);
  setenv("LOCAL_RANK", getenv("RANK"), 1);
  setenv("WORLD_SIZE", std::to_string(rank_count - 1).c_str(), 1);
  setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.transport = transport;
  options.timeout_ns = 30'000'000'000;
  mxs_comm *comm = nullptr;
  if (mxs_comm_create(&comm, &options) != MXS_OK) return std::string("a new comm: ") + mxs_last_error();
  const mxs_status status = mxs_comm_barrier(comm, nullptr);
  if (status != MXS_OK) return std::string("its barrier: ") + mxs_last_error();
  mxs_comm_destroy(&comm);
  return "";
}

std::string survive(const Scene &scene, int rank, int port) {
  // The first comm of a process leaves what libraries keep for ever; it is not counted.
  const int files = open_files(), maps = shared_maps();
  mxs_comm *comm = nullptr;
  mxs_optimizer *optimizer = nullptr;
  Units units;
  const mxs_status status = act(scene, rank, &comm, &units, &optimizer);
  const std::string sentence = mxs_last_error();
  if (status == MXS_OK) return "nobody notices that rank 2 is gone";
  if (status != MXS_PEER_FAILED && status != MXS_TIMED_OUT)
    return std::string("the status is ") + mxs_status_name(status) + ": " + sentence;
  if (sentence.find("rank 2") == std::string::npos && sentence.find("ranks 2") == std::string::npos)
    return "rank 2 is not named: " + sentence;
  std::string complaint = destroy_everything(&comm, &units, &optimizer);
  if (!complaint.empty()) return complaint;
  if (shared_maps() != maps) return std::to_string(shared_maps() - maps) + " maps are left";
  if (!scene.transport && open_files() != files) return std::to_string(open_files() - files) + " files are left open";
  return go_on_without(rank, port, scene.transport);
}

// A stopped rank is killed once the others are done.
void kill_the_victim_last(const std::vector<pid_t> &processes) {
  for (int rank = 0; rank < rank_count; rank++) {
    siginfo_t ended{};
    if (rank != victim) waitid(P_PID, static_cast<id_t>(processes[static_cast<size_t>(rank)]), &ended,
                               WEXITED | WNOWAIT);
  }
  kill(processes[victim], SIGKILL);
}

std::string plays(const Scene &scene) {
  const int port = free_port();
  ProcessOptions options;
  options.may_die = victim;
  options.timeout_seconds = 60;
  if (scene.signal == SIGSTOP) options.meanwhile = kill_the_victim_last;
  const std::string complaint = run_processes_bare(
      rank_count, [&](int rank) { return survive(scene, rank, port); }, options);
  if (complaint.empty()) return "";
  return std::string(name_of(scene.moment)) + ", " + (scene.transport ? scene.transport : "chosen") + ", signal " +
         std::to_string(scene.signal) + ": " + complaint;
}

bool all_moments(const char *transport, int signal, std::initializer_list<Moment> moments) {
  if (transport && !has_transport(transport)) return true;
  bool good = true;
  for (const Moment moment : moments) {
    const std::string complaint = plays({moment, transport, signal});
    if (complaint.empty()) continue;
    print_error("%s\n", complaint.c_str());
    good = false;
  }
  return good;
}

using enum Moment;

void a_killed_rank_is_survived_over_shm(void **) {
  assert_true(all_moments(nullptr, SIGKILL, {comm_create, unit_create, gather, reduce, agree}));
}

void a_stopped_rank_is_survived_over_shm(void **) {
  assert_true(all_moments(nullptr, SIGSTOP, {unit_create, gather, reduce, agree}));
}

void a_killed_rank_is_survived_over_ucx(void **) {
  assert_true(all_moments("ucx", SIGKILL, {unit_create, gather, reduce, agree}));
}

void a_stopped_rank_is_survived_over_ucx(void **) { assert_true(all_moments("ucx", SIGSTOP, {gather, agree})); }

// ---- one is late, another stopped -----------------------------------------------------------------------------------

// Ranks 0 and 3 wait for rank 1, the lowest that hasn't come. It would come; rank 2 is the one to look after.
std::string waits_beside_a_stopped_rank(const char *transport, int rank) {
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.transport = transport;
  options.timeout_ns = static_cast<uint64_t>(1e9 * deadline_seconds);
  mxs_comm *comm = nullptr;
  if (mxs_comm_create(&comm, &options) != MXS_OK) return mxs_last_error();
  if (rank == victim) kill(getpid(), SIGSTOP);
  if (rank == 1) usleep(static_cast<useconds_t>(1e6 * (deadline_seconds + 1)));
  const mxs_status status = mxs_comm_barrier(comm, nullptr);
  const std::string sentence = mxs_last_error();
  mxs_comm_destroy(&comm);
  if (status != MXS_TIMED_OUT) return std::string(mxs_status_name(status)) + ": " + sentence;
  for (const char *const part : {"waiting for rank 1", "the process of rank 2 (", ") is stopped"})
    if (sentence.find(part) == std::string::npos) return std::string(part) + " is not in: " + sentence;
  return "";
}

void a_stopped_rank_is_told_beside_a_late_one(void **) {
  ProcessOptions options;
  options.may_die = victim;
  options.timeout_seconds = 60;
  options.meanwhile = kill_the_victim_last;
  for (const char *const transport : {static_cast<const char *>(nullptr), "ucx"})
    if (!transport || has_transport(transport))
      assert_true(good(run_processes_bare(
          rank_count, [&](int rank) { return waits_beside_a_stopped_rank(transport, rank); }, options)));
}

// ---- memory is being shared -----------------------------------------------------------------------------------------

// Between the agreement that all want it and the last rank's file: a moment that no call of a user's begins with.
std::string shares_without_the_victim(int signal, int rank) {
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.timeout_ns = static_cast<uint64_t>(1e9 * (signal == SIGSTOP ? deadline_seconds : 30));
  mxs_comm *comm = nullptr;
  if (mxs_comm_create(&comm, &options) != MXS_OK) return mxs_last_error();
  if (rank == victim && signal == SIGKILL) kill(getpid(), SIGKILL);
  if (rank == victim) usleep(static_cast<useconds_t>(1e6 * (deadline_seconds + 1)));  // as if stopped
  SharedRegion region;
  const int64_t begin_ns = now_ns();
  const mxs_status wanted = signal == SIGSTOP ? MXS_TIMED_OUT : MXS_PEER_FAILED;
  mxs_status status = rank == victim ? mxs_comm_barrier(comm, nullptr) : comm->share(4096, "victim-less", &region);
  const std::string sentence = mxs_last_error();
  const double seconds = 1e-9 * static_cast<double>(now_ns() - begin_ns);
  std::string complaint;
  if (status != wanted || sentence.find("rank 2") == std::string::npos || seconds > deadline_seconds + 1)
    complaint = "after " + std::to_string(seconds) + " s " + mxs_status_name(status) + ": " + sentence;
  status = mxs_comm_barrier(comm, nullptr);
  if (complaint.empty() && status != wanted) complaint = "the comm goes on: " + std::string(mxs_status_name(status));
  if (mxs_comm_destroy(&comm) != MXS_OK) return std::string("destroy: ") + mxs_last_error();
  return complaint;
}

void a_rank_that_is_lost_while_memory_is_shared_fails_the_comm(void **) {
  for (const int signal : {SIGSTOP, SIGKILL}) {
    ProcessOptions options;
    if (signal == SIGKILL) options.may_die = victim;
    const std::string complaint =
        run_processes_bare(rank_count, [&](int rank) { return shares_without_the_victim(signal, rank); }, options);
    if (!complaint.empty()) print_error("signal %d: %s\n", signal, complaint.c_str());
    assert_true(complaint.empty());
  }
}

// ---- one rank has less than the others ------------------------------------------------------------------------------

// Files or addresses, counted beyond what the process has by now.
void limit(int resource, uint64_t more) {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t value = resource == RLIMIT_AS ? pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + more : more;
  const rlimit both = {value, value};
  setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

// Wherever rank 2 runs short: it says of what, all others hear it by its number, before the deadline.
std::string runs_short(const char *transport, int resource, uint64_t more, int rank) {
  if (rank == victim) limit(resource, more);
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.transport = transport;
  options.timeout_ns = 30'000'000'000;
  mxs_comm *comm = nullptr;
  std::string complaint;
  mxs_status status = mxs_comm_create(&comm, &options);
  if (status == MXS_OK) {
    Units units;
    complaint = units.make(comm, plain_model(2, MXS_F32, 300, 1000));
    if (!complaint.empty()) status = MXS_INTERNAL;
  } else {
    complaint = mxs_last_error();
  }
  if (mxs_comm_destroy(&comm) != MXS_OK) return std::string("destroy: ") + mxs_last_error();
  if (status == MXS_OK) return "";
  const bool cause = complaint.find("Too many open files") != std::string::npos ||
                     complaint.find("annot allocate memory") != std::string::npos ||
                     complaint.find("out of host memory") != std::string::npos;
  const bool named = rank == victim || complaint.find("rank 2") != std::string::npos;
  return cause && named ? "" : "it says: " + complaint;
}

bool scarce(const char *transport, int resource, std::initializer_list<uint64_t> amounts) {
  if (!has_transport(transport)) return true;
  for (const uint64_t more : amounts) {
    const std::string complaint = run_processes_bare(
        rank_count, [&](int rank) { return runs_short(transport, resource, more, rank); }, {});
    if (complaint.empty()) continue;
    print_error("%s, limit %d, %llu: %s\n", transport, resource, static_cast<unsigned long long>(more),
                complaint.c_str());
    return false;
  }
  return true;
}

constexpr uint64_t mib = uint64_t{1} << 20;

void a_rank_with_few_descriptors_is_told_of_on_all(void **) {
  if (needs_descriptors()) return not_run("UBSan or valgrind needs descriptors");
  assert_true(scarce("shm", RLIMIT_NOFILE, {14, 16, 18, 20, 22, 24, 26}));
  assert_true(scarce("ucx", RLIMIT_NOFILE, {14, 20, 26, 32}));
}

void a_rank_with_few_addresses_is_told_of_on_all(void **) {
  if (under_valgrind()) return not_run("valgrind has no addresses left, either");
  assert_true(scarce("shm", RLIMIT_AS, {20 * mib, 40 * mib, 60 * mib, 80 * mib, 100 * mib, 140 * mib}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_killed_rank_is_survived_over_shm),
      cmocka_unit_test(a_stopped_rank_is_survived_over_shm),
      cmocka_unit_test(a_killed_rank_is_survived_over_ucx),
      cmocka_unit_test(a_stopped_rank_is_survived_over_ucx),
      cmocka_unit_test(a_stopped_rank_is_told_beside_a_late_one),
      cmocka_unit_test(a_rank_that_is_lost_while_memory_is_shared_fails_the_comm),
      cmocka_unit_test(a_rank_with_few_descriptors_is_told_of_on_all),
      cmocka_unit_test(a_rank_with_few_addresses_is_told_of_on_all),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
