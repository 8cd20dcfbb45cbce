// SPDX-License-Identifier: Apache-2.0
// Ranks are lost, and the others go on: they fail, shrink, and their comm works as any does. Killed in idle, in a
// gather and in the shrink itself, rank 0 and whoever would lead among them; stopped, and back too late; aborted and
// nobody lost; twice in a row; down to one. Nothing is left behind.
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
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
  // Nobody is lost while others are still in that. They may hear of it in here.
  if (complaint.empty() && !scene.in_gather) mxs_comm_barrier(comm, nullptr);
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
  const std::vector<int> living = all_but(scene.rank_count, scene.lost);
  const auto begin = std::chrono::steady_clock::now();
  if (complaint.empty()) complaint = shrink(&comm, living);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  if (rank == living[0]) {
    std::printf("# %d ranks without%s%s: shrunk in %.1f ms\n", scene.rank_count, names(scene.lost).c_str(),
                scene.transport ? " over ucx" : "", time.count());
    std::fflush(stdout);
  }
  if (complaint.empty()) complaint = works(comm);
  mxs_comm_destroy(&comm);
  if (complaint.empty() && !scene.transport) complaint = compare(before, Holdings());
  return complaint;
}

bool survives(const Scene &scene) {
  if (scene.transport && !has_transport(scene.transport)) return true;
  ProcessOptions options;
  options.expendable = scene.lost;
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

// ---- in the shrink itself -------------------------------------------------------------------------------------------

// By rank of the latest comm: its number in the first.
struct Family {
  mxs_comm *comm = nullptr;
  std::vector<int> numbers;
  Family() = default;
  Family(const Family &) = delete;
  ~Family() { mxs_comm_destroy(&comm); }

  std::string begin(int rank_count, const char *transport) {
    comm = create(transport);
    for (int rank = 0; rank < rank_count; rank++) numbers.push_back(rank);
    return comm ? "" : error_of("create");
  }

  std::string shrink() {
    mxs_comm *next = nullptr;
    if (mxs_comm_shrink(&next, comm, nullptr) != MXS_OK) return error_of("shrink");
    std::vector<int> found;
    const std::string complaint = origins(next, &found);
    std::vector<int> names_now;
    for (const int origin : found) names_now.push_back(numbers[static_cast<size_t>(origin)]);
    numbers = names_now;
    if (mxs_comm_destroy(&comm) != MXS_OK) return error_of("destroy");
    comm = next;
    return complaint;
  }

  // The lost may have come along, and be lost only later.
  std::string shrink_to(const std::vector<int> &living) {
    std::string complaint = shrink();
    while (complaint.empty() && numbers != living) {
      if (!std::includes(numbers.begin(), numbers.end(), living.begin(), living.end()))
        return "only these went on:" + names(numbers);
      mxs_status status = MXS_OK;
      while (status == MXS_OK) status = mxs_comm_barrier(comm, nullptr);
      complaint = shrink();
    }
    return complaint;
  }
};

std::string lose_in_the_shrink(int rank_count, const std::vector<int> &lost, int seed, int rank,
                               const char *transport) {
  Family family;
  std::string complaint = family.begin(rank_count, transport);
  if (!complaint.empty()) return complaint;
  // Over ucx word of the first that gives up may come before the last message of this.
  const mxs_status met = mxs_comm_barrier(family.comm, nullptr);
  if (met != MXS_OK && !(transport && met == MXS_ABORTED)) return error_of("barrier");
  mxs_comm_abort(family.comm, "on purpose");
  std::thread killer;
  if (std::count(lost.begin(), lost.end(), rank) != 0)
    killer = std::thread(die_after, std::chrono::microseconds(hashed(static_cast<uint64_t>(seed),
                                                                     static_cast<uint64_t>(rank)) % 12'000));
  complaint = family.shrink_to(all_but(rank_count, lost));
  if (complaint.empty()) complaint = carries(family.comm);
  if (killer.joinable()) killer.join();
  return complaint;
}

bool survives_losses_in_the_shrink(int rank_count, const std::vector<int> &lost, int seed, const char *transport) {
  ProcessOptions options;
  options.expendable = lost;
  options.timeout_seconds = 60;
  options.environment = {"UCX_TLS=tcp,self"};
  const std::string complaint = run_processes_bare(
      rank_count, [&](int rank) { return lose_in_the_shrink(rank_count, lost, seed, rank, transport); }, options);
  return good(complaint.empty() ? "" : words("%d ranks, seed %d, without", rank_count, seed) + names(lost) + ": " +
                                           complaint);
}

void ranks_that_die_in_the_shrink_are_left_out(void **) {
  for (int seed = 0; seed < 8; seed++)
    for (const std::vector<int> &lost : {std::vector<int>{0}, {2}, {0, 1}, {1, 3}})
      assert_true(survives_losses_in_the_shrink(4, lost, seed, nullptr));
}

void ranks_that_die_in_the_shrink_are_left_out_over_ucx(void **) {
  if (!has_transport("ucx")) return not_run("no ucx here");
  for (int seed = 0; seed < 4; seed++)
    assert_true(survives_losses_in_the_shrink(4, {0, 2}, seed, "ucx"));
}

// ---- stopped ranks --------------------------------------------------------------------------------------------------

// What the ranks of a world know of each other without a comm.
struct Board {
  std::atomic<pid_t> processes[8];
  std::atomic<int> ready, done;
};

Board *make_board() {
  void *const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) Board();
}

void wait_until(const std::atomic<int> &number, int value) {
  while (number < value) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

struct StopScene {
  int rank_count;
  std::vector<int> stopped, killed;
  bool quorum;                // of those who aren't
  bool waits_for_it = false;  // those who went on are still there when the stopped ones wake up
  const char *environment = "MXS_DEBUG_VIEWS=0";
};

mxs_status shrink_within(mxs_comm **next, mxs_comm *failed, double seconds) {
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.timeout_ns = static_cast<uint64_t>(seconds * 1e9);
  return mxs_comm_shrink(next, failed, &options);
}

std::string be_stopped(const StopScene &scene, Board *board, mxs_comm *comm) {
  raise(SIGSTOP);
  mxs_comm_abort(comm, "late");
  mxs_comm *next = nullptr;
  const mxs_status status = shrink_within(&next, comm, 0.6);
  std::string complaint;
  if (scene.quorum) {
    complaint = expect(status, MXS_PEER_FAILED, {"went on without"});
  } else if (status == MXS_OK) {  // half of them, and rank 0 among these
    std::vector<int> found;
    complaint = origins(next, &found);
    if (complaint.empty() && found != scene.stopped) complaint = "the late ones are" + names(found);
    if (complaint.empty()) complaint = carries(next);
  } else {
    complaint = expect(status, MXS_TIMED_OUT, {"not more than half"});
  }
  mxs_comm_destroy(&next);
  board->done++;
  return complaint;
}

std::string go_on_without_stopped(const StopScene &scene, Board *board, int rank, mxs_comm **comm) {
  std::vector<int> absent = scene.stopped;
  absent.insert(absent.end(), scene.killed.begin(), scene.killed.end());
  const std::vector<int> living = all_but(scene.rank_count, absent);
  mxs_comm_abort(*comm, "some are stopped");
  mxs_comm *next = nullptr;
  const mxs_status status = shrink_within(&next, *comm, 0.6);
  std::string complaint;
  if (scene.quorum) {
    std::vector<int> found;
    complaint = status == MXS_OK ? origins(next, &found) : error_of("shrink");
    if (complaint.empty() && found != living) complaint = "the living are" + names(found) + ", not" + names(living);
    if (complaint.empty()) complaint = carries(next);
  } else {
    complaint = expect(status, MXS_TIMED_OUT, {"rank", std::to_string(scene.stopped[0])});
  }
  if (!scene.waits_for_it) {
    mxs_comm_destroy(comm);
    mxs_comm_destroy(&next);
  }
  board->ready++;
  if (rank == living[0]) {
    wait_until(board->ready, static_cast<int>(living.size()));
    for (const int stopped : scene.stopped) kill(board->processes[stopped], SIGCONT);
  }
  wait_until(board->done, static_cast<int>(scene.stopped.size()));
  mxs_comm_destroy(&next);
  return complaint;
}

std::string stop_and_go_on(const StopScene &scene, Board *board, int rank) {
  board->processes[rank] = getpid();
  mxs_comm *comm = create(nullptr);
  if (!comm) return error_of("create");
  std::string complaint;
  mxs_comm_barrier(comm, nullptr);  // as above
  if (std::count(scene.killed.begin(), scene.killed.end(), rank) != 0) kill(getpid(), SIGKILL);
  else if (std::count(scene.stopped.begin(), scene.stopped.end(), rank) != 0)
    complaint = be_stopped(scene, board, comm);
  else complaint = go_on_without_stopped(scene, board, rank, &comm);
  mxs_comm_destroy(&comm);
  return complaint;
}

bool survives_stops(const StopScene &scene) {
  Board *const board = make_board();
  ProcessOptions options;
  options.expendable = scene.killed;
  options.timeout_seconds = 30;
  options.environment = {scene.environment};
  const std::string complaint = run_processes_bare(
      scene.rank_count, [&](int rank) { return stop_and_go_on(scene, board, rank); }, options);
  munmap(board, sizeof *board);
  return good(complaint.empty() ? "" : words("%d ranks, stopped", scene.rank_count) + names(scene.stopped) + ": " +
                                           complaint);
}

void stopped_ranks_are_left_out_at_the_deadline_and_told_so(void **) {
  assert_true(survives_stops({4, {3}, {}, true}));
  assert_true(survives_stops({4, {0}, {}, true}));
  assert_true(survives_stops({4, {0}, {}, true, true}));
  assert_true(survives_stops({5, {1}, {0}, true, true}));
  assert_true(survives_stops({4, {2, 3}, {}, true}));
  assert_true(survives_stops({2, {1}, {}, true}));
}

// Proved by those who can't be asked any more.
void they_are_told_so_where_there_is_a_secret_too(void **) {
  assert_true(survives_stops({5, {0}, {1}, true, false, "MXS_SECRET=something that only we know"}));
  assert_true(survives_stops({4, {3}, {}, true, true, "MXS_SECRET=something that only we know"}));
}

void less_than_half_do_not_go_on(void **) {
  assert_true(survives_stops({4, {0, 1}, {}, false, true}));
  assert_true(survives_stops({2, {0}, {}, false, true}));
}

// ---- nobody is dead -------------------------------------------------------------------------------------------------

std::string abort_and_go_on(int rank, int rank_count) {
  const Holdings before;
  Family family;
  std::string complaint = family.begin(rank_count, nullptr);
  for (int round = 0; round < 3 && complaint.empty(); round++) {
    mxs_comm_barrier(family.comm, nullptr);  // as above
    if (rank == round % rank_count) mxs_comm_abort(family.comm, "on purpose");
    while (mxs_comm_barrier(family.comm, nullptr) == MXS_OK) {
    }
    // One is late: in time, though.
    if (rank == (round + 1) % rank_count && round > 0) std::this_thread::sleep_for(std::chrono::milliseconds(400));
    complaint = family.shrink();
    if (complaint.empty() && family.numbers != all_but(rank_count, {})) complaint = "not all came along";
    if (complaint.empty()) complaint = carries(family.comm);
  }
  mxs_comm_destroy(&family.comm);
  return complaint.empty() ? compare(before, Holdings()) : complaint;
}

void after_an_abort_all_go_on_however_late(void **) {
  for (const int rank_count : {1, 2, 4})
    assert_true(good(run_processes_bare(rank_count, [&](int rank) { return abort_and_go_on(rank, rank_count); })));
}

// Of eight: the even ones split off, one of those dies, the others of them shrink that, and then split what is left.
std::string split_shrink_split(int rank) {
  mxs_comm *world = create(nullptr), *half = nullptr, *rest = nullptr, *pair = nullptr;
  if (!world) return error_of("create");
  if (mxs_comm_split(&half, world, rank % 2, 0, nullptr) != MXS_OK) return error_of("split");
  if (rank == 2) kill(getpid(), SIGKILL);
  const std::vector<int> members = rank % 2 ? std::vector<int>{1, 3, 5, 7} : std::vector<int>{0, 2, 4, 6};
  std::vector<int> found;
  std::string complaint = origins(half, &found);
  if (complaint.empty() && found != members) complaint = "the half has" + names(found);
  if (complaint.empty() && rank % 2) complaint = carries(half);
  if (complaint.empty() && rank % 2 == 0) {
    complaint = see_failure(half, {1});
    if (complaint.empty() && mxs_comm_shrink(&rest, half, nullptr) != MXS_OK) complaint = error_of("shrink");
    if (complaint.empty()) complaint = origins(rest, &found);
    if (complaint.empty() && found != std::vector<int>{0, 2, 3}) complaint = "the rest are" + names(found);
    if (complaint.empty()) complaint = carries(rest);
    if (complaint.empty() && mxs_comm_split(&pair, rest, rank == 0 ? MXS_NO_COLOR : 1, -rank, nullptr) != MXS_OK)
      complaint = error_of("split of the rest");
    if (complaint.empty() && pair) complaint = carries(pair);
    if (complaint.empty() && pair) complaint = origins(pair, &found);
    if (complaint.empty() && pair && found != std::vector<int>{2, 1}) complaint = "the pair is" + names(found);
    // Told at once, not by the deadline.
    if (complaint.empty() && pair && mxs_comm_barrier(pair, nullptr) != MXS_OK) complaint = error_of("barrier");
    if (complaint.empty() && rank == 4) mxs_comm_abort(pair, "so it goes");
    if (complaint.empty() && rank == 6)
      complaint = expect(mxs_comm_barrier(pair, nullptr), MXS_ABORTED, {"so it goes"});
  }
  for (mxs_comm **comm : {&pair, &rest, &half, &world}) mxs_comm_destroy(comm);
  return complaint;
}

void a_comm_that_was_split_off_shrinks_and_splits_again(void **) {
  ProcessOptions options;
  options.expendable = {2};
  options.timeout_seconds = 60;
  assert_true(good(run_processes_bare(8, split_shrink_split, options)));
}

// ---- threads over callbacks -----------------------------------------------------------------------------------------

// There is no death among threads: who doesn't come is waited for, and left out by the quorum.
std::string threads_shrink(int rank, mxs_comm *comm) {
  mxs_comm_abort(comm, "on purpose");
  if (rank == 2) return "";
  mxs_comm *next = nullptr;
  if (shrink_within(&next, comm, 0.5) != MXS_OK) return error_of("shrink");
  std::vector<int> found;
  std::string complaint = origins(next, &found);
  if (complaint.empty() && found != std::vector<int>{0, 1, 3}) complaint = "the living are" + names(found);
  if (complaint.empty()) complaint = carries(next);
  mxs_comm_destroy(&next);
  return complaint;
}

void threads_that_never_come_are_left_out(void **) { assert_true(good(run_world(4, threads_shrink))); }

// The last rank has failed and stays, in its shrink, while the others wait for its part of a buffer: they must hear of
// it, not wait for its deadline, after which it would be alone.
std::string aborts_while_others_share(int rank) {
  mxs_comm *comm = create(nullptr, 20);
  if (!comm) return error_of("create");
  mxs_status status = mxs_comm_barrier(comm, nullptr);
  if (rank == 3) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others wait by now
    mxs_comm_abort(comm, "on purpose");
  } else {
    void *memory = nullptr;
    if (status == MXS_OK) status = mxs_comm_allocate(comm, 1000, MXS_HOST, &memory);
    if (status == MXS_OK) return "memory was shared with a rank that gave none";
    if (std::string(mxs_last_error()).find("rank 3") == std::string::npos) return error_of("another sentence");
  }
  const std::string complaint = shrink(&comm, {0, 1, 2, 3});
  return complaint.empty() ? carries(comm) : complaint;
}

void an_abort_is_heard_by_ranks_that_share_memory(void **) {
  assert_true(good(run_processes_bare(4, aborts_while_others_share)));
}

std::string misuse(int rank, mxs_comm *comm) {
  mxs_comm *next = nullptr;
  int32_t origin = 0;
  std::string complaint = expect(mxs_comm_shrink(&next, comm, nullptr), MXS_INVALID_ARGUMENT, {"has not failed"});
  if (complaint.empty()) complaint = expect(mxs_comm_shrink(nullptr, comm, nullptr), MXS_INVALID_ARGUMENT);
  if (complaint.empty()) complaint = expect(mxs_comm_shrink(&next, nullptr, nullptr), MXS_INVALID_ARGUMENT);
  if (complaint.empty()) complaint = expect(mxs_comm_origin(comm, 2, &origin), MXS_INVALID_ARGUMENT, {"2 ranks"});
  if (complaint.empty()) complaint = expect(mxs_comm_origin(comm, -1, &origin), MXS_INVALID_ARGUMENT);
  if (complaint.empty()) complaint = expect(mxs_comm_origin(comm, 0, nullptr), MXS_INVALID_ARGUMENT);
  if (complaint.empty()) complaint = expect(mxs_comm_origin(nullptr, 0, &origin), MXS_INVALID_ARGUMENT);
  if (complaint.empty() && (mxs_comm_origin(comm, rank, &origin) != MXS_OK || origin != rank))
    complaint = "the origin is another";
  if (!complaint.empty()) return complaint;
  mxs_comm_barrier(comm, nullptr);
  mxs_comm_abort(comm, "on purpose");
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  const mxs_bootstrap bootstrap = MXS_BOOTSTRAP_INIT;
  options.bootstrap = &bootstrap;
  complaint = expect(mxs_comm_shrink(&next, comm, &options), MXS_INVALID_ARGUMENT, {"options.bootstrap"});
  options.bootstrap = nullptr;
  options.secret = "another one of the caller's";
  if (complaint.empty())
    complaint = expect(mxs_comm_shrink(&next, comm, &options), MXS_INVALID_ARGUMENT, {"options.secret"});
  options.secret = nullptr;
  options.thread_count = -1;
  if (complaint.empty()) complaint = expect(mxs_comm_shrink(&next, comm, &options), MXS_INVALID_ARGUMENT);
  options.thread_count = 0;
  options.size = 3;
  if (complaint.empty()) complaint = expect(mxs_comm_shrink(&next, comm, &options), MXS_INVALID_ARGUMENT);
  return complaint.empty() && next ? "a comm was made" : complaint;
}

void misuse_is_answered(void **) { assert_true(good(run_world(2, misuse))); }

}  // namespace

int main(int count, char **words_given) {
  if (count > 1) cmocka_set_test_filter(words_given[1]);
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_abort_is_heard_by_ranks_that_share_memory),
      cmocka_unit_test(killed_ranks_of_every_role_are_left_out),
      cmocka_unit_test(ranks_killed_in_a_gather_are_left_out),
      cmocka_unit_test(killed_ranks_are_left_out_over_ucx),
      cmocka_unit_test(ranks_that_die_in_the_shrink_are_left_out),
      cmocka_unit_test(ranks_that_die_in_the_shrink_are_left_out_over_ucx),
      cmocka_unit_test(stopped_ranks_are_left_out_at_the_deadline_and_told_so),
      cmocka_unit_test(they_are_told_so_where_there_is_a_secret_too),
      cmocka_unit_test(less_than_half_do_not_go_on),
      cmocka_unit_test(after_an_abort_all_go_on_however_late),
      cmocka_unit_test(a_comm_that_was_split_off_shrinks_and_splits_again),
      cmocka_unit_test(threads_that_never_come_are_left_out),
      cmocka_unit_test(misuse_is_answered),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
