// SPDX-License-Identifier: Apache-2.0
// The ring: what is written comes back, the newest win, what is torn or damaged is left out or refused, and a process
// may be killed at any time.
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "trace/timeline.hpp"
#include "tracing.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

TraceEvent event_at(uint64_t begin_ns, int kind = MXS_EVENT_OPERATION) {
  TraceEvent event;
  event.kind = kind;
  event.begin_ns = begin_ns;
  return event;
}

bool all_words_come_back() {
  TemporaryFolder folder;
  std::unique_ptr<Tracer> tracer = make_tracer(folder.path(), {.rank = 2, .rank_count = 5});
  TraceEvent event = event_at(1000);
  event.name = tracer->name("gather");
  event.algorithm = tracer->name("two-level-circulant");
  event.phase = MXS_PHASE_BACKWARD;
  event.peer = 4;
  event.unit = 77;
  event.sequence = 123456789012;
  event.bytes_out = 5;
  event.bytes_in = UINT64_MAX - 1;
  const uint64_t ticket = tracer->begin(event);
  tracer->wait_for(ticket, 1);
  const Ring open = ring_at(tracer->ring_path());
  tracer->end(ticket, 3000);
  const Ring closed = ring_at(tracer->ring_path());
  if (open.events.size() != 1 || !open.events[0].open() || closed.events.size() != 1) return false;
  const RingEvent &read = closed.events[0];
  return closed.rank == 2 && closed.rank_count == 5 && closed.process == getpid() && read.kind == event.kind &&
         read.phase == event.phase && read.peer == 1 && read.unit == 77 && read.sequence == event.sequence &&
         read.bytes_out == 5 && read.bytes_in == event.bytes_in && read.begin_ns == 1000 && read.end_ns == 3000 &&
         closed.names[read.name] == "gather" && closed.names[read.algorithm] == "two-level-circulant" &&
         closed.torn_count == 0 && closed.lost_count == 0 && !closed.finished() && !closed.failed();
}
void what_is_written_comes_back(void **) { assert_true(all_words_come_back()); }

bool newest_win() {
  TemporaryFolder folder;
  std::unique_ptr<Tracer> tracer = make_tracer(folder.path(), {.event_count = 64});
  uint64_t first = 0;
  for (uint64_t number = 0; number < 1000; ++number) {
    const uint64_t ticket = tracer->begin(event_at(number + 1));
    if (number == 0) first = ticket;
  }
  tracer->end(first, 5);           // overwritten long ago: changes nothing
  tracer->wait_for(first, 0);
  const Ring ring = ring_at(tracer->ring_path());
  if (ring.events.size() != 64 || ring.lost_count != 936 || ring.torn_count != 0) return false;
  for (size_t i = 0; i < 64; ++i)
    if (ring.events[i].begin_ns != 937 + i || !ring.events[i].open()) return false;
  return true;
}
void the_newest_events_win(void **) { assert_true(newest_win()); }

bool torn_are_left_out() {
  TemporaryFolder folder;
  std::unique_ptr<Tracer> tracer = make_tracer(folder.path(), {.event_count = 64});
  for (uint64_t number = 0; number < 64; ++number) tracer->begin(event_at(number + 1));
  const std::string whole = content_of(tracer->ring_path());
  // Each byte of a record but its end and its peer.
  for (size_t place = 0; place < 64; ++place) {
    std::string torn = whole;
    torn[ring_header_bytes + 5 * 64 + place] = static_cast<char>(torn[ring_header_bytes + 5 * 64 + place] ^ 1);
    Ring ring;
    if (read_text(torn, "torn", &ring) != MXS_OK) return false;
    const bool changes = (place >= 16 && place < 24) || place >= 60;
    if (ring.events.size() != (changes ? 64u : 63u) || ring.torn_count != (changes ? 0u : 1u)) return false;
  }
  // One record's words in another's place.
  std::string moved = whole;
  moved.replace(ring_header_bytes + 5 * 64, 64, whole, ring_header_bytes + 6 * 64, 64);
  Ring ring;
  return read_text(moved, "moved", &ring) == MXS_OK && ring.events.size() == 63 && ring.torn_count == 1;
}
void torn_records_are_left_out(void **) { assert_true(torn_are_left_out()); }

// Puts a value into a copy's header.
template <class Value>
std::string with(const std::string &whole, size_t offset, Value value) {
  std::string changed = whole;
  std::memcpy(changed.data() + offset, &value, sizeof value);
  return changed;
}

bool refused(const std::string &text) {
  Ring ring;
  ring.rank = 99;
  return read_text(text, "/a/folder/x.ring", &ring) == MXS_DAMAGED &&
         std::strstr(last_error_text(), "/a/folder/x.ring") && ring.rank == 99;
}

bool damaged_are_refused() {
  TemporaryFolder folder;
  std::unique_ptr<Tracer> tracer = make_tracer(folder.path(), {.rank = 1, .rank_count = 3, .event_count = 64});
  const std::string whole = content_of(tracer->ring_path());
  Ring ring;
  if (read_text(whole, "whole", &ring) != MXS_OK) return false;
  bool good = true;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{4095}, size_t{4096}, whole.size() - 1})
    good = good && refused(whole.substr(0, bytes));
  good = good && refused(whole + "x");
  const auto bad = [&](size_t offset, auto value) { return refused(with(whole, offset, value)); };
  good = good && bad(0, 'M') && bad(offsetof(RingHeader, version), uint32_t{2});
  good = good && bad(offsetof(RingHeader, header_bytes), uint32_t{512});
  good = good && bad(offsetof(RingHeader, record_bytes), uint32_t{0});
  good = good && bad(offsetof(RingHeader, name_bytes), uint32_t{32});
  for (const uint64_t capacity :
       {uint64_t{0}, uint64_t{63}, uint64_t{65}, uint64_t{1} << 40, UINT64_MAX, (uint64_t{1} << 58) + 64})
    good = good && bad(offsetof(RingHeader, capacity), capacity);
  for (const int32_t rank : {-1, 3, INT32_MAX, INT32_MIN}) good = good && bad(offsetof(RingHeader, rank), rank);
  for (const int32_t count : {0, -5, 1, INT32_MAX}) good = good && bad(offsetof(RingHeader, rank_count), count);
  for (const uint64_t count : {uint64_t{0}, uint64_t{97}, UINT64_MAX})
    good = good && bad(offsetof(RingHeader, name_count), count);
  return good;
}
void damaged_headers_are_refused_with_the_file_s_name(void **) { assert_true(damaged_are_refused()); }

// Whatever bytes there are: no crash, and whatever is read can be shown.
bool anything_is_read() {
  TemporaryFolder folder;
  std::unique_ptr<Tracer> tracer = make_tracer(folder.path(), {.rank_count = 3, .event_count = 64});
  for (uint64_t number = 0; number < 100; ++number) tracer->begin(event_at(number + 1, static_cast<int>(number % 6)));
  tracer->note_failure(MXS_TIMED_OUT, "a sentence", true, 0);
  const std::string whole = content_of(tracer->ring_path());
  std::mt19937 random(1);
  const std::string path = folder / "mutated.json";
  for (int turn = 0; turn < 3000; ++turn) {
    std::string text = whole;
    for (uint32_t change = random() % 8; change < 8; ++change) {
      const bool header = random() % 2;
      text[header ? 32 + random() % 900 : random() % text.size()] = static_cast<char>(random());
    }
    Ring ring;
    if (read_text(text, "mutated", &ring) != MXS_OK) continue;
    if (turn % 100) continue;
    Trace trace;
    trace.add(std::move(ring));
    trace.sort();
    if (write_timeline(trace, path) != MXS_OK) return false;
    if (nlohmann::json::parse(content_of(path), nullptr, false).is_discarded()) return false;
  }
  return true;
}
void mutated_bytes_do_no_harm(void **) { assert_true(anything_is_read()); }

bool threads_write() {
  TemporaryFolder folder;
  std::unique_ptr<Tracer> tracer = make_tracer(folder.path(), {.event_count = 16384});
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int turn = 0; turn < 4000; ++turn) {
        TraceEvent event = event_at(1);
        event.unit = thread;
        event.name = tracer->name(("name " + std::to_string(turn % 20)).c_str());
        const uint64_t ticket = tracer->begin(event);
        tracer->wait_for(ticket, 0);
        tracer->end(ticket, 2);
      }
    });
  for (std::thread &thread : threads) thread.join();
  const Ring ring = ring_at(tracer->ring_path());
  std::map<int, int> counts;
  for (const RingEvent &event : ring.events) counts[event.unit] += event.end_ns == 2;
  bool good = ring.torn_count == 0 && ring.events.size() == 16000;
  for (int thread = 0; thread < 4; ++thread) good = good && counts[thread] == 4000;
  return good;
}
void threads_may_write_at_once(void **) { assert_true(threads_write()); }

bool forks_write_nothing() {
  TemporaryFolder folder;
  std::unique_ptr<Tracer> tracer = make_tracer(folder.path());
  const uint64_t ticket = tracer->begin(event_at(1));
  const std::string before = content_of(tracer->ring_path());
  const pid_t child = fork();
  if (child == 0) {
    tracer->begin(event_at(2));
    tracer->end(ticket, 3);
    tracer->note_start(9);
    tracer->note_failure(MXS_INTERNAL, "no", true, 0);
    tracer->name("new");
    tracer.reset();
    _exit(0);
  }
  int result = 0;
  waitpid(child, &result, 0);
  return WIFEXITED(result) && content_of(tracer->ring_path()) == before;
}
void a_forked_child_writes_nothing(void **) { assert_true(forks_write_nothing()); }

// Killed in the midst of writing, again and again: the file is a ring with at most one torn record per thread.
bool killed() {
  TemporaryFolder folder;
  for (int turn = 0; turn < 5; ++turn) {
    const pid_t child = fork();
    if (child == 0) {
      std::unique_ptr<Tracer> tracer = make_tracer(folder.path(), {.event_count = 256});
      for (uint64_t number = 1;; ++number) tracer->end(tracer->begin(event_at(number)), number + 1);
    }
    usleep(30'000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    Trace trace;
    if (open_trace(&trace, {folder.path()}) == MXS_NOT_FOUND) continue;  // so early
    const Ring &ring = trace.rings.at(0);
    if (ring.alive != 0 || ring.finished() || ring.torn_count > 1 || ring.events.size() + ring.torn_count > 256)
      return false;
    for (size_t i = 1; i < ring.events.size(); ++i)
      if (ring.events[i].begin_ns < ring.events[i - 1].begin_ns + 1) return false;
  }
  return true;
}
void a_ring_survives_kill_9(void **) { assert_true(killed()); }

// ---- folders ----

bool folders_that_cannot_be_made() {
  TemporaryFolder folder;
  put_content(folder / "file", "");
  const std::string below = folder / "file/below";
  if (make_tracer(below) || !std::strstr(last_error_text(), below.c_str())) return false;
  return make_tracer(folder / "a/b/c") != nullptr && entries_of(folder / "a/b/c").empty() == false;
}
void a_folder_is_made_or_refused(void **) { assert_true(folders_that_cannot_be_made()); }

void a_full_disk_is_refused_when_the_ring_is_made(void **) {
  const std::string complaint = with_own_mounts([]() -> std::string {
    TemporaryFolder folder;
    if (!mount_tmpfs(folder.path(), "size=64k")) return "no tmpfs";
    const bool refused = !make_tracer(folder.path(), {.event_count = 16384});
    const std::string sentence = last_error_text();
    const bool clean = entries_of(folder.path()).empty();
    std::unique_ptr<Tracer> small = make_tracer(folder.path(), {.event_count = 256});
    if (small) {
      // The rest of the disk is filled: what the ring has, it has.
      put_content(folder / "filler", std::string(100'000, 'x'));
      for (int turn = 0; turn < 1000; ++turn) small->begin(event_at(1));
    }
    const bool written = small != nullptr;
    small.reset();
    umount2(folder.path().c_str(), MNT_DETACH);
    if (!refused || sentence.find("No space left") == std::string::npos) return "not refused: " + sentence;
    if (!clean) return "something was left behind";
    return written ? "" : "a small ring had no room";
  });
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  assert_true(complaint.empty());
}

mxs_status open_one(const std::string &path) {
  Trace trace;
  return open_trace(&trace, {path});
}

bool the_last_comm_is_chosen() {
  TemporaryFolder folder;
  {
    const auto first = make_tracer(folder.path(), {.comm = 1});
    const auto second = make_tracer(folder.path(), {.rank_count = 2, .comm = 2});
    const auto third = make_tracer(folder.path(), {.rank = 1, .rank_count = 2, .comm = 2});
    first->begin(event_at(1));
    second->begin(event_at(now_ns() + 1'000'000'000));
  }
  Trace trace;
  if (open_trace(&trace, {folder.path()}) != MXS_OK || trace.rank_count != 2 || trace.rings.size() != 2) return false;
  return trace.rings.at(0).comm == 2 && trace.rings.at(0).finished();
}
void of_several_comms_the_one_that_wrote_last_is_taken(void **) { assert_true(the_last_comm_is_chosen()); }

void paths_without_rings_are_told_apart(void **) {
  TemporaryFolder folder;
  assert_int_equal(open_one(folder.path()), MXS_NOT_FOUND);
  assert_int_equal(open_one(folder / "nothing"), MXS_NOT_FOUND);
  put_content(folder / "empty.ring", "");
  assert_int_equal(open_one(folder.path()), MXS_DAMAGED);
  assert_non_null(std::strstr(last_error_text(), "empty.ring"));
  put_content(folder / "text", std::string(5000, 'a'));
  assert_int_equal(open_one(folder / "text"), MXS_DAMAGED);
  assert_int_equal(open_one("/dev/null"), MXS_DAMAGED);
}

// ---- timelines ----

// Complete events of one track lie inside each other or apart.
bool nests(const nlohmann::json &json) {
  constexpr double rounding = 1e-6;  // of microseconds
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  for (const auto &event : json.at("traceEvents"))
    if (event.at("ph") == "X") {
      const double begin = event.at("ts"), length = event.at("dur");
      tracks[{event.at("pid"), event.at("tid")}].emplace_back(begin, begin + length);
    }
  for (auto &[track, events] : tracks) {
    std::sort(events.begin(), events.end());
    for (size_t i = 0; i < events.size(); ++i)
      for (size_t j = i + 1; j < events.size(); ++j)
        if (events[j].first < events[i].second - rounding && events[j].second > events[i].second + rounding)
          return false;
  }
  return !tracks.empty();
}

bool a_timeline() {
  TemporaryFolder folder;
  std::string path;
  {
    std::unique_ptr<Tracer> tracer = make_tracer(folder.path(), {.timeline = true});
    std::mt19937 random(2);
    for (uint64_t number = 0; number < 90; ++number) {
      const uint64_t begin_ns = 1000 + number * 10;
      TraceEvent event = event_at(begin_ns, static_cast<int>(number % 4));
      event.name = tracer->name("\"quoted\\\" \x1b[31m");
      tracer->end(tracer->begin(event), begin_ns + random() % 100);
    }
    tracer->begin(event_at(2000));
    tracer->note_failure(MXS_TIMED_OUT, "because \"it\" \xff failed", true, 0);
    path = tracer->ring_path().substr(0, tracer->ring_path().size() - 5) + ".json";
  }
  const auto json = nlohmann::json::parse(content_of(path), nullptr, false);
  if (json.is_discarded() || !nests(json)) return false;
  size_t complete = 0, open = 0, failures = 0;
  for (const auto &event : json.at("traceEvents")) {
    complete += event.at("ph") == "X";
    open += event.at("args").contains("open");
    failures += event.at("ph") == "i" && event.at("name").get<std::string>().starts_with("failure: because");
  }
  return complete == 91 && open == 1 && failures == 1 && entries_of(folder.path()).size() == 2;
}
void a_timeline_is_json_whose_events_nest(void **) { assert_true(a_timeline()); }

// As only a forger's do, hundred thousands of them: one track for each would take minutes.
bool a_timeline_of_events_that_all_overlap() {
  constexpr size_t event_count = 400'000;
  TemporaryFolder folder;
  Ring ring;
  ring.names = {"", "gather"};
  for (size_t number = 0; number < event_count; ++number) {
    RingEvent event;
    event.kind = MXS_EVENT_OPERATION;
    event.name = 1;
    event.begin_ns = 1000 + number;
    event.end_ns = 1'000'000'000;
    ring.events.push_back(event);
  }
  Trace trace;
  trace.add(std::move(ring));
  if (write_timeline(trace, folder / "all.json") != MXS_OK) return false;
  const std::string text = content_of(folder / "all.json");
  const auto times = [&text](const std::string &words) {
    size_t count = 0;
    for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
    return count;
  };
  return times("\"ph\": \"X\"") == event_count && times("\"thread_name\"") == 100 && times("\"tid\": 200") == 0;
}
void a_timeline_has_so_many_tracks_and_no_more(void **) { assert_true(a_timeline_of_events_that_all_overlap()); }

void a_timeline_that_cannot_be_written_leaves_nothing(void **) {
  TemporaryFolder folder;
  Trace trace;
  assert_int_equal(write_timeline(trace, folder / "no/such/folder.json"), MXS_SYSTEM);
  assert_int_equal(write_timeline(trace, "/dev/full"), MXS_SYSTEM);
  assert_true(entries_of(folder.path()).empty());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_comes_back),
      cmocka_unit_test(the_newest_events_win),
      cmocka_unit_test(torn_records_are_left_out),
      cmocka_unit_test(damaged_headers_are_refused_with_the_file_s_name),
      cmocka_unit_test(mutated_bytes_do_no_harm),
      cmocka_unit_test(threads_may_write_at_once),
      cmocka_unit_test(a_forked_child_writes_nothing),
      cmocka_unit_test(a_ring_survives_kill_9),
      cmocka_unit_test(a_folder_is_made_or_refused),
      cmocka_unit_test(a_full_disk_is_refused_when_the_ring_is_made),
      cmocka_unit_test(of_several_comms_the_one_that_wrote_last_is_taken),
      cmocka_unit_test(paths_without_rings_are_told_apart),
      cmocka_unit_test(a_timeline_is_json_whose_events_nest),
      cmocka_unit_test(a_timeline_has_so_many_tracks_and_no_more),
      cmocka_unit_test(a_timeline_that_cannot_be_written_leaves_nothing),
  };
  return cmocka_run_group_tests_name("trace ring", tests, nullptr, nullptr);
}
