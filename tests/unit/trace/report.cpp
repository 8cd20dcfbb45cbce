// SPDX-License-Identifier: Apache-2.0
// What the report says of scenes that are made up: rings of ranks that wait, lag, stop, fail, end, or have none. And
// the public calls around it.
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <vector>

#include "matrixshard/trace.h"
#include "trace/report.hpp"
#include "tracing.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

// A world of tracers in this process: all of them are alive. Its time stands still once they are made, so that what is
// said of times doesn't depend on how fast this machine is.
class Scene {
 public:
  explicit Scene(int rank_count) {
    for (int rank = 0; rank < rank_count; ++rank)
      tracers.push_back(make_tracer(folder.path(), {.rank = rank, .rank_count = rank_count}));
    now_ = now_ns();
  }

  // It waits in this operation or agreement, since some seconds.
  void wait(int rank, int kind, const char *name, uint64_t sequence, int peer, double seconds) {
    Tracer &tracer = *tracers[static_cast<size_t>(rank)];
    TraceEvent event;
    event.kind = kind;
    event.name = tracer.name(name);
    event.sequence = sequence;
    event.peer = peer;
    event.begin_ns = ago(seconds);
    tracer.begin(event);
    tracer.note_life(now_);
    if (kind == MXS_EVENT_AGREEMENT) tracer.note_agreement(sequence);
    else tracer.note_start(sequence);
  }
  void start(int rank, uint64_t sequence, double seconds) {
    Tracer &tracer = *tracers[static_cast<size_t>(rank)];
    TraceEvent event;
    event.kind = MXS_EVENT_OPERATION;
    event.name = tracer.name("gather");
    event.unit = 3;
    event.sequence = sequence;
    event.begin_ns = ago(seconds);
    tracer.end(tracer.begin(event), ago(seconds) + 1000);
    tracer.note_start(sequence);
    tracer.note_complete(sequence);
  }
  uint64_t ago(double seconds) const { return now_ - static_cast<uint64_t>(seconds * 1e9); }

  std::string report() const {
    Trace trace;
    if (open_trace(&trace, {folder.path()}) != MXS_OK) return last_error_text();
    trace.read_ns = now_;
    return report_of(trace);
  }

  TemporaryFolder folder;
  std::vector<std::unique_ptr<Tracer>> tracers;

 private:
  uint64_t now_ = 0;
};

bool says(const std::string &report, const std::vector<const char *> &words) {
  for (const char *word : words)
    if (report.find(word) == std::string::npos) {
      print_error("not said: %s\n%s\n", word, report.c_str());
      return false;
    }
  return true;
}

bool late_in_an_operation() {
  Scene scene(4);
  for (const int rank : {0, 1, 3}) scene.wait(rank, MXS_EVENT_WAIT, "gather", 17, 2, 5);
  scene.start(2, 16, 6);
  return says(scene.report(), {"Stuck: rank 2 lags; ranks 0, 1 and 3 wait since 5.0 s in gather (operation 17).",
                               "Rank 2 has not come to gather (operation 17). Its process runs; it was last in gather "
                               "of unit 3 (operation 16)"});
}
void the_rank_that_has_not_started_an_operation_lags(void **) { assert_true(late_in_an_operation()); }

bool late_in_an_agreement() {
  Scene scene(3);
  for (const int rank : {0, 2}) scene.wait(rank, MXS_EVENT_AGREEMENT, "barrier", 5, 1, 3);
  scene.tracers[1]->note_agreement(4);
  return says(scene.report(), {"Stuck: rank 1 lags; ranks 0 and 2 wait since 3.0 s in barrier (agreement 5)."});
}
void the_rank_that_has_not_come_to_an_agreement_lags(void **) { assert_true(late_in_an_agreement()); }

// 0 waits for 1, 1 for 2 in an older operation: 2 is to blame.
bool chains_are_followed() {
  Scene scene(3);
  scene.wait(0, MXS_EVENT_WAIT, "gather", 9, 1, 4);
  scene.wait(1, MXS_EVENT_WAIT, "reduce", 8, 2, 5);
  scene.start(2, 7, 8);
  const std::string report = scene.report();
  return says(report, {"Stuck: rank 2 lags; ranks 0 and 1 wait since 5.0 s in reduce (operation 8)"}) &&
         report.find("Rank 1 has not come") == std::string::npos;
}
void who_waits_itself_is_not_to_blame(void **) { assert_true(chains_are_followed()); }

// All are in it; one shows no life, as a stopped process on another host does.
bool silence_is_noticed() {
  Scene scene(3);
  for (const int rank : {0, 1, 2}) scene.wait(rank, MXS_EVENT_WAIT, "gather", 4, (rank + 1) % 3, 20);
  scene.tracers[1]->note_life(scene.ago(19));
  return says(scene.report(), {"Stuck: rank 1 lags; ranks 0 and 2 wait",
                               "Rank 1 is needed in gather (operation 4). Its process has shown no life for 19.0 s"});
}
void a_rank_in_a_wait_without_a_life_sign_lags(void **) { assert_true(silence_is_noticed()); }

bool circles_are_told() {
  Scene scene(2);
  scene.wait(0, MXS_EVENT_WAIT, "gather", 4, 1, 2);
  scene.wait(1, MXS_EVENT_WAIT, "gather", 4, 0, 2);
  scene.tracers[0]->note_complete(3);
  scene.tracers[1]->note_complete(2);
  return says(scene.report(), {"Stuck: ranks 0 and 1 wait since 2.0 s, and no single rank is to blame.",
                               "Rank 0 waits in gather (operation 4), for rank 1.",
                               "Rank 1 waits in gather (operation 4), for rank 0.",
                               "Behind the others: rank 1, with 2 operations complete."});
}
void ranks_that_wait_for_each_other_are_told(void **) { assert_true(circles_are_told()); }

bool short_waits_are_nothing() {
  Scene scene(2);
  scene.wait(0, MXS_EVENT_WAIT, "gather", 4, 1, 0.01);
  scene.start(1, 3, 100);
  return says(scene.report(), {"Nothing is stuck: no rank waits for long", "1 x gather", "Longest waits"});
}
void a_short_wait_is_nothing(void **) { assert_true(short_waits_are_nothing()); }

bool failures_are_ordered() {
  Scene scene(3);
  scene.tracers[0]->note_failure(MXS_PEER_FAILED, "rank 2: a device failed", false, 0);
  scene.tracers[2]->note_failure(MXS_DEVICE_FAILED, "a device failed", true, 0);
  const std::string report = scene.report();
  return says(report, {"Failed: rank 2 ran into it first, ", "before the end of this trace: a device failed",
                       "    failed: rank 2: a device failed"});
}
void the_rank_that_failed_itself_comes_before_those_that_were_told(void **) { assert_true(failures_are_ordered()); }

bool rings_are_missed() {
  Scene scene(4);
  for (const int rank : {0, 1}) scene.wait(rank, MXS_EVENT_AGREEMENT, "sum", 2, 3, 9);
  scene.tracers[2]->note_agreement(2);
  std::filesystem::remove(scene.tracers[3]->ring_path());
  return says(scene.report(), {"Stuck: rank 3 lags", "Rank 3 has no ring here"});
}
void a_missing_ring_is_told(void **) { assert_true(rings_are_missed()); }

bool many_rings_are_missed() {
  TemporaryFolder folder;
  const std::vector<int> ranks = {0, 2, 500'000};
  std::vector<std::unique_ptr<Tracer>> tracers;
  for (const int rank : ranks) tracers.push_back(make_tracer(folder.path(), {.rank = rank, .rank_count = 1'000'000}));
  Trace trace;
  return open_trace(&trace, {folder.path()}) == MXS_OK &&
         says(report_of(trace), {"Ranks 1, 3, 4, 5, 6, 7, 8, 9, ... (999997 in all) have no ring here"});
}
void of_many_missing_rings_the_first_are_told(void **) { assert_true(many_rings_are_missed()); }

// Ranks as processes that end in a wait, without a word.
bool the_dead_are_named() {
  TemporaryFolder folder;
  for (int rank = 0; rank < 2; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      std::unique_ptr<Tracer> tracer = make_tracer(folder.path(), {.rank = rank, .rank_count = 2});
      tracer->note_start(3);
      TraceEvent event;
      event.kind = MXS_EVENT_WAIT;
      event.name = tracer->name("reduce");
      event.sequence = 3;
      event.peer = 1 - rank;
      if (rank == 1) tracer->begin(event);
      kill(getpid(), SIGKILL);
    }
    waitpid(child, nullptr, 0);
  }
  Trace trace;
  if (open_trace(&trace, {folder.path()}) != MXS_OK) return false;
  return says(report_of(trace), {"Died: ranks 0 and 1 ended without destroying the comm",
                                 "Rank 0 is needed in reduce (operation 3). Its process has ended",
                                 "has ended; started 3 operations, 0 complete; was in reduce (operation 3), waiting "
                                 "for rank 0"});
}
void the_dead_are_witnesses_where_nobody_lives(void **) { assert_true(the_dead_are_named()); }

// Rank 2 died in a wait for rank 3, which saw it, failed and left: nobody is to blame but rank 2.
bool who_was_told_is_not_to_blame() {
  Scene scene(3);
  scene.wait(1, MXS_EVENT_WAIT, "gather", 8, 2, 3);
  scene.start(2, 8, 4);
  scene.tracers[2]->note_failure(MXS_PEER_FAILED, "rank 0 has died", true, 0);
  const std::string report = scene.report();
  return says(report, {"Failed: rank 2 ran into it first", "was last in gather of unit 3 (operation 8)"}) &&
         report.find("Rank 2 is needed") == std::string::npos && report.find("in call") == std::string::npos;
}
void who_has_failed_lags_behind_nobody(void **) { assert_true(who_was_told_is_not_to_blame()); }

bool good_ends() {
  Scene scene(2);
  scene.start(0, 1, 2);
  scene.start(1, 1, 2);
  for (auto &tracer : scene.tracers) tracer.reset();
  return says(scene.report(), {"Nothing is stuck: all 2 ranks have destroyed the comm.", "2 x gather: 1.0 us"});
}
void a_good_end_is_told(void **) { assert_true(good_ends()); }

bool clocks_are_compared() {
  TemporaryFolder folder;
  const auto first = make_tracer(folder.path(), {.rank = 0, .rank_count = 2});
  const auto second = make_tracer(folder.path(), {.rank = 1, .rank_count = 2, .clock_offset_ns = -5000});
  TraceEvent event;
  event.begin_ns = 1'000'000;
  first->mark(event, 1'000'001);
  second->mark(event, 1'000'001);
  Trace trace;
  if (open_trace(&trace, {folder.path()}) != MXS_OK || trace.order.size() != 2) return false;
  return trace.order[0].rank == 1 && trace.event(trace.order[0]).begin_ns == 995'000;
}
void times_are_on_rank_0_s_clock(void **) { assert_true(clocks_are_compared()); }

// ---- the door ----

void the_public_calls_refuse_nonsense(void **) {
  mxs_trace *trace = nullptr;
  const char *const none[] = {nullptr};
  const char *const gone[] = {"/there/is/no/such/folder"};
  assert_int_equal(mxs_trace_open(nullptr, gone, 1), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_trace_open(&trace, nullptr, 1), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_trace_open(&trace, gone, 0), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_trace_open(&trace, gone, UINT64_MAX), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_trace_open(&trace, none, 1), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_trace_open(&trace, gone, 1), MXS_NOT_FOUND);
  assert_null(trace);
  assert_int_equal(mxs_trace_close(nullptr), MXS_OK);
  assert_int_equal(mxs_trace_close(&trace), MXS_OK);
  assert_int_equal(mxs_trace_rank_count(nullptr), 0);
  assert_int_equal(mxs_trace_event_count(nullptr), 0);
  mxs_trace_rank rank = MXS_TRACE_RANK_INIT;
  mxs_trace_event event = MXS_TRACE_EVENT_INIT;
  assert_int_equal(mxs_trace_rank_at(nullptr, 0, &rank), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_trace_event_at(nullptr, 0, &event), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_trace_report(nullptr, nullptr, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_trace_write(nullptr, "x"), MXS_INVALID_ARGUMENT);
}

std::string go_through_a_trace() {
  Scene scene(3);
  scene.start(0, 5, 2);
  scene.tracers[1]->note_failure(MXS_TIMED_OUT, "why it failed", true, 0);
  std::filesystem::remove(scene.tracers[2]->ring_path());
  const char *const paths[] = {scene.folder.path().c_str()};
  mxs_trace *trace = nullptr;
  if (mxs_trace_open(&trace, paths, 1) != MXS_OK) return mxs_last_error();
  std::string complaint;
  const auto want = [&](bool good, const char *what) {
    if (!good && complaint.empty()) complaint = what;
  };
  want(mxs_trace_rank_count(trace) == 3 && mxs_trace_event_count(trace) == 2, "counts");
  mxs_trace_rank rank = MXS_TRACE_RANK_INIT;
  want(mxs_trace_rank_at(trace, 2, &rank) == MXS_NOT_FOUND, "a missing ring");
  want(mxs_trace_rank_at(trace, 3, &rank) == MXS_INVALID_ARGUMENT, "no such rank");
  want(mxs_trace_rank_at(trace, -1, &rank) == MXS_INVALID_ARGUMENT, "no such rank");
  want(mxs_trace_rank_at(trace, 0, nullptr) == MXS_INVALID_ARGUMENT, "no info");
  want(mxs_trace_rank_at(trace, 0, &rank) == MXS_OK && rank.alive == 1 && rank.process == getpid() &&
           rank.last_operation == 5 && rank.last_complete == 5 && rank.event_count == 1 && !rank.finished &&
           !*rank.failure && *rank.host, "rank 0");
  want(mxs_trace_rank_at(trace, 1, &rank) == MXS_OK && !std::strcmp(rank.failure, "why it failed"), "rank 1");
  mxs_trace_event event = MXS_TRACE_EVENT_INIT;
  want(mxs_trace_event_at(trace, 2, &event) == MXS_NOT_FOUND, "no such event");
  want(mxs_trace_event_at(trace, 0, &event) == MXS_OK && event.rank == 0 && !std::strcmp(event.name, "gather") &&
           event.unit == 3 && event.sequence == 5 && event.end_ns - event.begin_ns == 1000 && !*event.algorithm,
       "event 0");
  want(mxs_trace_event_at(trace, 1, &event) == MXS_OK && event.kind == MXS_EVENT_FAILURE && event.rank == 1 &&
           !std::strcmp(event.name, "why it failed"), "event 1");
  size_t bytes = 0;
  want(mxs_trace_report(trace, nullptr, 1, nullptr) == MXS_INVALID_ARGUMENT, "no room for the text");
  want(mxs_trace_report(trace, nullptr, 0, &bytes) == MXS_OK && bytes > 20, "the report's size");
  std::string text(bytes, '!');
  want(mxs_trace_report(trace, text.data(), 7, nullptr) == MXS_OK && !std::strcmp(text.c_str(), "Failed"), "cut short");
  want(mxs_trace_report(trace, text.data(), bytes, &bytes) == MXS_OK && std::strlen(text.c_str()) + 1 == bytes,
       "whole");
  want(mxs_trace_write(trace, nullptr) == MXS_INVALID_ARGUMENT, "no path");
  want(mxs_trace_write(trace, (scene.folder / "no/folder").c_str()) == MXS_SYSTEM, "no folder");
  want(mxs_trace_write(trace, (scene.folder / "all.json").c_str()) == MXS_OK, "written");
  mxs_trace_close(&trace);
  mxs_trace_close(&trace);
  return complaint;
}
void the_public_calls_tell_what_rings_have(void **) {
  const std::string complaint = go_through_a_trace();
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  assert_true(complaint.empty());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_rank_that_has_not_started_an_operation_lags),
      cmocka_unit_test(the_rank_that_has_not_come_to_an_agreement_lags),
      cmocka_unit_test(who_waits_itself_is_not_to_blame),
      cmocka_unit_test(a_rank_in_a_wait_without_a_life_sign_lags),
      cmocka_unit_test(ranks_that_wait_for_each_other_are_told),
      cmocka_unit_test(a_short_wait_is_nothing),
      cmocka_unit_test(the_rank_that_failed_itself_comes_before_those_that_were_told),
      cmocka_unit_test(a_missing_ring_is_told),
      cmocka_unit_test(of_many_missing_rings_the_first_are_told),
      cmocka_unit_test(the_dead_are_witnesses_where_nobody_lives),
      cmocka_unit_test(who_has_failed_lags_behind_nobody),
      cmocka_unit_test(a_good_end_is_told),
      cmocka_unit_test(times_are_on_rank_0_s_clock),
      cmocka_unit_test(the_public_calls_refuse_nonsense),
      cmocka_unit_test(the_public_calls_tell_what_rings_have),
  };
  return cmocka_run_group_tests_name("trace report", tests, nullptr, nullptr);
}
