// SPDX-License-Identifier: Apache-2.0
// Rings of real ranks: one is stopped before a call, the others are seen to wait for it by name; then it is killed, and
// the rings of survivors and dead tell who died and whose failure came first. Over shm, over ucx, over ucx between
// nodes. And of a job that ends well: what is in the rings, comms that were split off, timelines.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <string>

#include "matrixshard/trace.h"
#include "support/processes.hpp"
#include "support/temporary_folder.hpp"
#include "support/transports.hpp"
#include "support/unit_model.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr int rank_count = 4, victim = 2;

enum class Moment { gather, reduce, step, barrier };

struct Scene {
  Moment moment;
  const char *transport;
  std::vector<int> nodes;
  const char *where;  // in the report
};

mxs_status step_once(mxs_optimizer *optimizer) {
  mxs_group_values values = MXS_GROUP_VALUES_INIT;
  mxs_step step = MXS_STEP_INIT;
  step.group_count = 1;
  step.groups = &values;
  return mxs_optimizer_step(optimizer, &step, nullptr);
}

// One round of everything; before the moment the victim stops if it is to.
mxs_status train(int rank, mxs_comm *comm, Units *units, mxs_optimizer *optimizer, const Moment *moment) {
  const auto lose = [&](Moment here) {
    if (rank == victim && moment && *moment == here) kill(getpid(), SIGSTOP);
  };
  mxs_status status = MXS_OK;
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
  lose(Moment::step);
  if (status == MXS_OK) status = step_once(optimizer);
  lose(Moment::barrier);
  return status == MXS_OK ? mxs_comm_barrier(comm, nullptr) : status;
}

std::string be_rank(int rank, mxs_comm *comm, const Moment *moment) {
  Units units;
  std::string complaint = units.make(comm, plain_model(2));
  mxs_optimizer *optimizer = nullptr;
  mxs_status status = MXS_OK;
  if (complaint.empty())
    status = mxs_optimizer_create(&optimizer, units.units.data(), units.units.size(), nullptr);
  for (int round = 0; round < 3 && status == MXS_OK && complaint.empty(); ++round)
    status = train(rank, comm, &units, optimizer, round == 2 ? moment : nullptr);
  if (complaint.empty() && moment && status != MXS_PEER_FAILED)
    complaint = std::string("status ") + mxs_status_name(status) + ": " + mxs_last_error();
  if (complaint.empty() && !moment && status == MXS_OK)
    status = mxs_checkpoint_save((std::string(getenv("MXS_TRACE")) + "/../saved").c_str(), units.units.data(),
                                 units.units.size(), optimizer, nullptr);
  if (complaint.empty() && !moment && status != MXS_OK) complaint = mxs_last_error();
  mxs_optimizer_destroy(&optimizer);
  return complaint;
}

std::string report_of(const std::string &folder) {
  const char *const paths[] = {folder.c_str()};
  mxs_trace *trace = nullptr;
  if (mxs_trace_open(&trace, paths, 1) != MXS_OK) return mxs_last_error();
  size_t bytes = 0;
  mxs_trace_report(trace, nullptr, 0, &bytes);
  std::string text(bytes, '\0');
  mxs_trace_report(trace, text.data(), bytes, nullptr);
  mxs_trace_close(&trace);
  return text.c_str();
}

std::string first_line(const std::string &text) { return text.substr(0, text.find('\n')); }

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

bool tells_of_the_stopped(const std::string &report, const char *where) {
  const std::string head = first_line(report);
  return head.starts_with("Stuck: rank 2 lags; ranks 0, 1 and 3 wait since ") && contains(head, where) &&
         contains(report, "Its process is stopped");
}

// Until the report says so, or for half a minute: on a busy machine ranks come to a wait one after the other, and some
// are merely late.
std::string wait_for_report(const std::string &folder, const char *where) {
  std::string report;
  for (int turn = 0; turn < 600; ++turn) {
    report = report_of(folder);
    if (tells_of_the_stopped(report, where)) break;
    usleep(50'000);
  }
  return report;
}

std::string plays(const Scene &scene) {
  TemporaryFolder folder;
  std::string stuck;
  ProcessOptions options;
  options.transport = scene.transport;
  options.nodes = scene.nodes;
  options.may_die = victim;
  options.timeout_seconds = 90;
  options.environment = {"MXS_RING=" + folder.path(), "MXS_RING_EVENTS=4096", "UCX_TLS=tcp,self"};
  options.meanwhile = [&](const std::vector<pid_t> &processes) {
    stuck = wait_for_report(folder.path(), scene.where);
    kill(processes[victim], SIGKILL);
  };
  const std::string complaint = run_processes(
      rank_count, [&](int rank, mxs_comm *comm) { return be_rank(rank, comm, &scene.moment); }, options);
  if (!complaint.empty()) return complaint;
  const std::string end = report_of(folder.path());
  if (!tells_of_the_stopped(stuck, scene.where)) return "while it was stopped: " + stuck;
  if (!end.starts_with("Failed: rank ") || !contains(first_line(end), "rank 2") ||
      !contains(end, "Rank 2 ended without destroying the comm"))
    return "at the end: " + end;
  return "";
}

bool all(const std::vector<Scene> &scenes) {
  bool good = true;
  for (const Scene &scene : scenes) {
    if (scene.transport && !has_transport(scene.transport)) return true;
    const std::string complaint = plays(scene);
    if (complaint.empty()) continue;
    print_error("%s over %s: %s\n", scene.where, scene.transport ? scene.transport : "shm", complaint.c_str());
    good = false;
  }
  return good;
}

void the_rank_and_the_call_are_named_over_shm(void **) {
  assert_true(all({{Moment::gather, nullptr, {}, "gather of unit 0"},
                   {Moment::reduce, nullptr, {}, "reduce of unit 0"},
                   {Moment::step, nullptr, {}, "the step's agreement"},
                   {Moment::barrier, nullptr, {}, "barrier"}}));
}

void the_rank_and_the_call_are_named_over_ucx(void **) {
  assert_true(all({{Moment::gather, "ucx", {}, "gather of unit 0"},
                   {Moment::step, "ucx", {}, "the step's agreement"}}));
}

void the_rank_and_the_call_are_named_between_nodes(void **) {
  if (!has_transport("ucx")) return not_run("no ucx here");
  assert_true(all({{Moment::reduce, nullptr, {0, 0, 1, 1}, "reduce of unit 0"},
                   {Moment::barrier, nullptr, {0, 0, 1, 1}, "barrier"}}));
}

// ---- a good end ----

std::string be_good_rank(int rank, mxs_comm *comm) {
  std::string complaint = be_rank(rank, comm, nullptr);
  mxs_comm *half = nullptr;
  if (complaint.empty() && mxs_comm_split(&half, comm, rank % 2, 0, nullptr) != MXS_OK) complaint = mxs_last_error();
  if (complaint.empty() && mxs_comm_barrier(half, nullptr) != MXS_OK) complaint = mxs_last_error();
  mxs_comm_destroy(&half);
  return complaint;
}

// What all ranks wrote, by kind and name.
std::map<std::pair<int, std::string>, int> counts_of(mxs_trace *trace) {
  std::map<std::pair<int, std::string>, int> counts;
  for (uint64_t index = 0; index < mxs_trace_event_count(trace); ++index) {
    mxs_trace_event event = MXS_TRACE_EVENT_INIT;
    mxs_trace_event_at(trace, index, &event);
    if (event.end_ns == UINT64_MAX) ++counts[{-1, "open"}];
    ++counts[{event.kind, event.name}];
    if (event.kind == MXS_EVENT_OPERATION && (event.unit < 0 || !*event.algorithm)) ++counts[{-1, "bare"}];
  }
  return counts;
}

std::string ends_well(const std::vector<int> &nodes) {
  TemporaryFolder place;
  const std::string folder = place / "made";
  ProcessOptions options;
  options.nodes = nodes;
  options.environment = {"MXS_TRACE=" + folder, "UCX_TLS=tcp,self"};
  const std::string complaint = run_processes(rank_count, be_good_rank, options);
  if (!complaint.empty()) return complaint;
  std::set<std::string> comms, jobs;
  std::vector<std::string> whole;
  for (const std::string &name : entries_of(folder)) {
    comms.insert(name.substr(0, name.find(".rank-")));
    jobs.insert(name.substr(0, name.find(".comm-")));
    if (name.ends_with("rank-3.ring")) whole.push_back(name.substr(0, name.find(".rank-")));
  }
  // All ranks' comm and its two halves; nothing of what the library makes for itself.
  if (entries_of(folder).size() != 16 || comms.size() != 3 || jobs.size() != 1 || whole.size() != 1)
    return "there are " + std::to_string(entries_of(folder).size()) + " files";
  std::vector<std::string> paths;
  std::vector<const char *> pointers;
  for (int rank = 0; rank < rank_count; ++rank)
    paths.push_back(folder + "/" + (whole[0] + ".rank-" + std::to_string(rank) + ".ring"));
  for (const std::string &path : paths) pointers.push_back(path.c_str());
  mxs_trace *trace = nullptr;
  if (mxs_trace_open(&trace, pointers.data(), pointers.size()) != MXS_OK) return mxs_last_error();
  auto counts = counts_of(trace);
  std::string report(1 << 16, '\0');
  mxs_trace_report(trace, report.data(), report.size(), nullptr);
  mxs_trace_close(&trace);
  const auto count = [&](int kind, const char *name) { return counts[{kind, name}]; };
  // Three rounds of two units on four ranks.
  if (count(-1, "open") || count(-1, "bare")) return "events are open or have no unit or algorithm";
  if (count(MXS_EVENT_OPERATION, "gather") != 24 || count(MXS_EVENT_OPERATION, "reduce") != 24 ||
      count(MXS_EVENT_STEP, "step") != 12 || count(MXS_EVENT_AGREEMENT, "barrier") != 12 ||
      count(MXS_EVENT_MARK, "create") != 4 || count(MXS_EVENT_MARK, "split") != 4 ||
      count(MXS_EVENT_MARK, "checkpoint save") != 4 || count(MXS_EVENT_MARK, "checkpoint saved") != 4 ||
      count(MXS_EVENT_MARK, "destroy") != 4)
    return "other events than were to be: " + report;
  if (!report.starts_with("Nothing is stuck: all 4 ranks have destroyed the comm.")) return report.c_str();
  const bool compared = contains(report, "its clock is compared with rank 0's within ");
  return compared == !nodes.empty() ? "" : "clocks: " + report;
}

void a_good_job_leaves_its_events(void **) {
  const std::string complaint = ends_well({});
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  assert_true(complaint.empty());
}

void clocks_of_nodes_are_compared(void **) {
  const std::string complaint = has_transport("ucx") ? ends_well({0, 0, 1, 1}) : "";
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  assert_true(complaint.empty());
}

// ---- a trace that can't be written ----

// One rank's folder can't be made: no rank has a comm, all say why, no ring is left.
std::string refused(int rank, const std::string &folder) {
  setenv("MXS_RING", (rank == 1 ? "/proc/no/such/place" : folder).c_str(), 1);
  mxs_comm *comm = nullptr;
  const mxs_status status = mxs_comm_create(&comm, nullptr);
  if (status == MXS_OK) return "a comm was made";
  return status == MXS_SYSTEM && contains(mxs_last_error(), "/proc/no/such/place") ? "" : mxs_last_error();
}

void a_trace_that_cannot_be_written_is_refused_on_all_ranks(void **) {
  TemporaryFolder folder;
  const std::string path = folder.path();
  const std::string complaint = run_processes_bare(3, [&](int rank) { return refused(rank, path); }, {});
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  assert_true(complaint.empty());
  assert_true(entries_of(path).empty());
}

// A folder that is there and takes no file: each tells whose ring it was, once.
std::string refused_a_file(int rank) {
  setenv("MXS_RING", "/proc", 1);
  mxs_comm *comm = nullptr;
  const mxs_status status = mxs_comm_create(&comm, nullptr);
  if (status == MXS_OK) return "a comm was made";
  const std::string sentence = mxs_last_error();
  const std::string begin = rank == 0 ? "the trace's ring /" : "rank 0: the trace's ring /";
  return status == MXS_SYSTEM && sentence.rfind(begin, 0) == 0 ? "" : sentence;
}

void a_ring_that_cannot_be_made_is_told_with_its_rank(void **) {
  const std::string complaint = run_processes_bare(3, refused_a_file, {});
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  assert_true(complaint.empty());
}

// Only some ranks trace: the others go on without.
void one_rank_may_trace_alone(void **) {
  TemporaryFolder folder;
  const std::string path = folder.path();
  const std::string complaint = run_processes_bare(3, [&](int rank) -> std::string {
    if (rank == 1) setenv("MXS_RING", path.c_str(), 1);
    mxs_comm *comm = nullptr;
    if (mxs_comm_create(&comm, nullptr) != MXS_OK || mxs_comm_barrier(comm, nullptr) != MXS_OK)
      return mxs_last_error();
    mxs_comm_destroy(&comm);
    return "";
  }, {});
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  assert_true(complaint.empty());
  assert_int_equal(entries_of(path).size(), 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_rank_and_the_call_are_named_over_shm),
      cmocka_unit_test(the_rank_and_the_call_are_named_over_ucx),
      cmocka_unit_test(the_rank_and_the_call_are_named_between_nodes),
      cmocka_unit_test(a_good_job_leaves_its_events),
      cmocka_unit_test(clocks_of_nodes_are_compared),
      cmocka_unit_test(a_trace_that_cannot_be_written_is_refused_on_all_ranks),
      cmocka_unit_test(a_ring_that_cannot_be_made_is_told_with_its_rank),
      cmocka_unit_test(one_rank_may_trace_alone),
  };
  return cmocka_run_group_tests_name("traced", tests, nullptr, nullptr);
}
