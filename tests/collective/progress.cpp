// SPDX-License-Identifier: Apache-2.0
// The progress thread: what was started arrives everywhere while callers make no call, and it is gone with its comm.
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "cases.hpp"
#include "support/processes.hpp"
#include "support/world.hpp"
#include "transport/transport.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

constexpr uint64_t second_ns = 1'000'000'000;
constexpr uint64_t patience_ns = 60 * second_ns;  // then it has not come

// Seen by all ranks: how far they are, without a call of the library.
struct Board {
  std::atomic<int> begun{0}, arrived{0};
};

Board *new_board() {
  void *memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Board;
}

bool comes_to(const std::atomic<int> &count, int wanted) {
  const uint64_t begin = mxs::now_ns();
  while (count.load() < wanted) {
    if (mxs::now_ns() - begin > patience_ns) return false;
    usleep(200);
  }
  return true;
}

int progress_threads() {
  int count = 0;
  DIR *directory = opendir("/proc/self/task");
  while (const dirent *entry = directory ? readdir(directory) : nullptr) {
    std::string name;
    std::getline(std::ifstream(std::string("/proc/self/task/") + entry->d_name + "/comm"), name);
    if (name == "mxs-progress") ++count;
  }
  if (directory) closedir(directory);
  return count;
}

ProcessOptions over(const char *transport, const char *progress) {
  ProcessOptions options;
  options.transport = transport;
  options.environment = {std::string("MXS_PROGRESS=") + progress};
  return options;
}

bool usable(const char *transport) {
  const mxs::Transport *found = mxs::find_transport(transport);
  std::string why_not;
  return found && found->usable(&why_not);
}

// ---- arriving -------------------------------------------------------------------------------------------------------

// Read while another thread may write it, which is what these tests look for: no race that TSan is to tell of. Not by
// __atomic_load, which clang shows TSan all the same.
template <class Number>
__attribute__((no_sanitize("thread"), noinline)) Number now_in(const Number &number) {
  return *static_cast<const volatile Number *>(&number);
}

// Each rank owns elements of each kind's whole; floats, all of them 1 + rank of the owner, or the sum of what all give.
struct Parts {
  int rank, rank_count, kind;
  uint64_t each = 50'000;  // elements; in several chunks
  std::vector<float> source, target;

  Parts(int own, int count, int what) : rank(own), rank_count(count), kind(what) {
    const uint64_t all = each * static_cast<uint64_t>(count);
    source.assign(kind == MXS_GATHER ? each : all, static_cast<float>(1 + rank));
    target.assign(kind == MXS_GATHER ? all : each, -1.0f);
  }
  float expected(uint64_t index) const {
    return kind == MXS_GATHER ? static_cast<float>(1 + index / each)
                              : static_cast<float>(rank_count * (rank_count + 1)) / 2;
  }
  bool arrived() const {
    for (uint64_t i = 0; i < target.size(); ++i)
      if (now_in(target[i]) != expected(i)) return false;
    return true;
  }
  mxs_status make_collective(OwnedCollective *collective, mxs_comm *comm) const {
    TestLayout layout("equal parts", 4);
    for (int owner = 0; owner < rank_count; ++owner) layout.add(owner, each * sizeof(float));
    Case made;
    made.layout = &layout;
    made.kind = kind;
    return make(collective, comm, made, rank_count);
  }
};

// All have started, rank 0 last: nothing of it can have come before. From then on no rank makes a call until all have
// looked.
std::string arrives(int rank, int rank_count, mxs_comm *comm, int kind, bool by_thread, Board *board) {
  Parts parts(rank, rank_count, kind);
  OwnedCollective collective;
  if (parts.make_collective(&collective, comm) != MXS_OK) return error_of("create");
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  if (rank == 0 && !comes_to(board->begun, rank_count - 1)) return "others have not begun";
  if (mxs_collective_start(collective.value, parts.source.data(), parts.target.data(), nullptr) != MXS_OK)
    return error_of("start");
  board->begun.fetch_add(1);
  if (!comes_to(board->begun, rank_count)) return "not all have begun";
  std::string complaint;
  if (by_thread) {
    const uint64_t begin = mxs::now_ns();
    while (!parts.arrived() && complaint.empty()) {
      if (mxs::now_ns() - begin > patience_ns) complaint = "it has not arrived without calls";
      usleep(200);
    }
  } else {
    usleep(20'000);  // nothing moves, however long it is
    if (rank != 0 && parts.arrived()) complaint = "it has arrived without a call";
  }
  board->arrived.fetch_add(1);
  if (!comes_to(board->arrived, rank_count)) return "not all have looked";
  if (mxs_collective_wait(collective.value, nullptr) != MXS_OK) return error_of("wait");
  return !complaint.empty() || parts.arrived() ? complaint : "wrong after the wait";
}

bool all_arrive(const char *transport, const char *progress) {
  if (!usable(transport)) return true;
  const bool by_thread = std::string(progress) == "thread";
  for (const int rank_count : {2, 4})
    for (const int kind : {MXS_GATHER, MXS_REDUCE}) {
      Board *board = new_board();
      const std::string complaint = run_processes(
          rank_count,
          [=](int rank, mxs_comm *comm) { return arrives(rank, rank_count, comm, kind, by_thread, board); },
          over(transport, progress));
      munmap(board, sizeof(Board));
      if (!good(complaint)) return false;
    }
  return true;
}

void by_the_thread_all_arrives_without_calls_over_shm(void **) { assert_true(all_arrive("shm", "thread")); }
void by_the_thread_all_arrives_without_calls_over_ucx(void **) { assert_true(all_arrive("ucx", "thread")); }
void without_it_nothing_arrives_without_calls_over_shm(void **) { assert_true(all_arrive("shm", "manual")); }
void without_it_nothing_arrives_without_calls_over_ucx(void **) { assert_true(all_arrive("ucx", "manual")); }

// Ranks as threads, several operations one after the other, waits of one rank while others compute.
std::string many_times(int rank, int rank_count, mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return error_of("query");
  if (info.progress != MXS_PROGRESS_THREAD) return "no thread";
  for (int turn = 0; turn < 40; ++turn) {
    Parts gathered(rank, rank_count, MXS_GATHER), reduced(rank, rank_count, MXS_REDUCE);
    OwnedCollective gather, reduce;
    if (gathered.make_collective(&gather, comm) != MXS_OK) return error_of("create");
    if (reduced.make_collective(&reduce, comm) != MXS_OK) return error_of("create");
    if (mxs_collective_start(gather.value, gathered.source.data(), gathered.target.data(), nullptr) != MXS_OK ||
        mxs_collective_start(reduce.value, reduced.source.data(), reduced.target.data(), nullptr) != MXS_OK)
      return error_of("start");
    if (turn % rank_count == rank) usleep(2000);
    double sum = 1;
    if (turn % 3 == 0 && (mxs_comm_sum(comm, &sum, 1, nullptr) != MXS_OK || sum != rank_count)) return error_of("sum");
    if (mxs_collective_wait(reduce.value, nullptr) != MXS_OK || mxs_collective_wait(gather.value, nullptr) != MXS_OK)
      return error_of("wait");
    if (!gathered.arrived() || !reduced.arrived()) return "wrong";
  }
  return "";
}

void calls_and_the_thread_get_along(void **) {
  setenv("MXS_PROGRESS", "thread", 1);
  bool fine = true;
  for (const char *transport : {"loopback", "shm"})
    for (const int rank_count : {1, 3}) {
      WorldOptions options;
      options.transport = transport;
      fine = fine && good(run_world(rank_count, [=](int rank, mxs_comm *comm) {
        return many_times(rank, rank_count, comm);
      }, options));
    }
  unsetenv("MXS_PROGRESS");
  assert_true(fine);
}

// ---- its life -------------------------------------------------------------------------------------------------------

std::string told(mxs_status status, mxs_comm *comm) {
  if (status != MXS_OK) return error_of("create");
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return error_of("query");
  return info.progress == MXS_PROGRESS_THREAD ? "thread" : info.progress == MXS_PROGRESS_MANUAL ? "manual" : "neither";
}

// What a world of one becomes by its options and MXS_PROGRESS, and how many threads that are.
std::string becomes(int32_t progress, const char *environment, const char *wanted) {
  if (environment) setenv("MXS_PROGRESS", environment, 1);
  else unsetenv("MXS_PROGRESS");
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.progress = progress;
  mxs_comm *comm = nullptr;
  const mxs_status status = mxs_comm_create(&comm, &options);
  const std::string got = told(status, comm);
  const int threads = progress_threads();
  if (mxs_comm_destroy(&comm) != MXS_OK) return error_of("destroy");
  if (got != wanted) return got;
  if (threads != (got == "thread")) return std::to_string(threads) + " threads";
  return progress_threads() == 0 ? "" : "a thread is left";
}

std::string is_chosen(int) {
  std::string complaint = becomes(MXS_PROGRESS_CHOSEN, nullptr, "manual");
  if (complaint.empty()) complaint = becomes(MXS_PROGRESS_THREAD, nullptr, "thread");
  if (complaint.empty()) complaint = becomes(MXS_PROGRESS_CHOSEN, "thread", "thread");
  if (complaint.empty()) complaint = becomes(MXS_PROGRESS_CHOSEN, "manual", "manual");
  if (complaint.empty()) complaint = becomes(MXS_PROGRESS_MANUAL, "thread", "manual");
  if (complaint.empty()) complaint = becomes(MXS_PROGRESS_THREAD, "manual", "thread");
  return complaint;
}

void options_and_environment_choose(void **) { assert_true(good(run_processes_bare(1, is_chosen))); }

std::string nonsense(int) {
  setenv("MXS_PROGRESS", "yes", 1);
  mxs_comm *comm = nullptr;
  std::string complaint = expect(mxs_comm_create(&comm, nullptr), MXS_ENVIRONMENT, {"MXS_PROGRESS", "yes", "thread"});
  if (!complaint.empty()) return complaint;
  unsetenv("MXS_PROGRESS");
  for (const int32_t wrong : {-1, 3, 1 << 30}) {
    mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
    options.progress = wrong;
    complaint = expect(mxs_comm_create(&comm, &options), MXS_INVALID_ARGUMENT, {"options.progress"});
    if (!complaint.empty()) return complaint;
  }
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.device = -1;
  return expect(mxs_comm_create(&comm, &options), MXS_INVALID_ARGUMENT, {"options.device"});
}

void nonsense_is_refused(void **) { assert_true(good(run_processes_bare(1, nonsense))); }

// Programs of the time before `progress`: its bytes are not theirs.
std::string older(int) {
  unsetenv("MXS_PROGRESS");
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.size = 32;
  options.progress = 77;
  mxs_comm *comm = nullptr;
  if (mxs_comm_create(&comm, &options) != MXS_OK) return error_of("create");
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  info.size = 56;
  info.progress = 77;
  const mxs_status status = mxs_comm_query(comm, &info);
  mxs_comm_destroy(&comm);
  if (status != MXS_OK) return error_of("query");
  return info.progress == 77 && info.rank_count == 1 ? "" : "written beyond the size";
}

void structs_of_older_programs_do(void **) { assert_true(good(run_processes_bare(1, older))); }

std::string comes_and_goes(int) {
  setenv("MXS_PROGRESS", "thread", 1);
  std::vector<mxs_comm *> comms;
  for (int turn = 0; turn < 50; ++turn) {
    mxs_comm *comm = nullptr;
    if (mxs_comm_create(&comm, nullptr) != MXS_OK) return error_of("create");
    if (turn % 5) comms.push_back(comm);
    else if (mxs_comm_destroy(&comm) != MXS_OK) return error_of("destroy");
  }
  if (progress_threads() != static_cast<int>(comms.size())) return words("%d threads", progress_threads());
  for (mxs_comm *comm : comms)
    if (mxs_comm_destroy(&comm) != MXS_OK) return error_of("destroy");
  return progress_threads() == 0 ? "" : "threads are left";
}

void fifty_comms_come_and_go(void **) {
  for (const int rank_count : {1, 2}) assert_true(good(run_processes_bare(rank_count, comes_and_goes)));
}

std::string stays_quiet(int, mxs_comm *comm) {
  if (progress_threads() != 1) return "no thread";
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  usleep(300'000);
  getrusage(RUSAGE_SELF, &after);
  const auto microseconds = [](const timeval &time) { return time.tv_sec * 1'000'000 + time.tv_usec; };
  const long used_us = microseconds(after.ru_utime) + microseconds(after.ru_stime) - microseconds(before.ru_utime) -
                       microseconds(before.ru_stime);
  return used_us < 150'000 ? "" : words("%ld microseconds were used while nothing was in flight", used_us);
}

void with_nothing_in_flight_it_sleeps(void **) {
  for (const char *transport : {"shm", "ucx"})
    if (usable(transport)) assert_true(good(run_processes(2, stays_quiet, over(transport, "thread"))));
}

// ---- failure, fork --------------------------------------------------------------------------------------------------

// test(0) asks only whether the comm is well.
std::string hears_of_a_failure(mxs_comm *comm, mxs_status wanted, const std::vector<std::string> &said) {
  const uint64_t begin = mxs::now_ns();
  while (mxs_comm_test(comm, 0) == MXS_OK) {
    if (mxs::now_ns() - begin > patience_ns) return "it has not heard of the failure";
    usleep(1000);
  }
  return expect(mxs_comm_test(comm, 0), wanted, said);
}

// Rank 1 never comes, and aborts or dies; rank 0 makes no call that would notice.
std::string loses(int rank, mxs_comm *comm, bool by_death) {
  Parts parts(rank, 2, MXS_GATHER);
  OwnedCollective collective;
  if (parts.make_collective(&collective, comm) != MXS_OK) return error_of("create");
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
  if (rank == 1) {
    usleep(20'000);
    if (by_death) kill(getpid(), SIGKILL);
    mxs_comm_abort(comm, "enough");
    return "";
  }
  if (mxs_collective_start(collective.value, parts.source.data(), parts.target.data(), nullptr) != MXS_OK)
    return by_death ? "" : expect(mxs_comm_test(comm, 0), MXS_ABORTED, {"rank 1"});
  return hears_of_a_failure(comm, by_death ? MXS_PEER_FAILED : MXS_ABORTED, {"rank 1"});
}

bool all_lose(bool by_death) {
  for (const char *transport : {"shm", "ucx"}) {
    if (!usable(transport)) continue;
    ProcessOptions options = over(transport, "thread");
    if (by_death) options.may_die = 1;
    if (!good(run_processes(2, [=](int rank, mxs_comm *comm) { return loses(rank, comm, by_death); }, options)))
      return false;
  }
  return true;
}

void the_thread_hears_of_an_abort(void **) { assert_true(all_lose(false)); }
void the_thread_notices_a_death(void **) { assert_true(all_lose(true)); }

// Own operations in flight, own abort: what was lent to them may be given back at once.
std::string aborts(int rank, mxs_comm *comm) {
  Parts parts(rank, 2, MXS_GATHER);
  OwnedCollective collective;
  if (parts.make_collective(&collective, comm) != MXS_OK) return error_of("create");
  if (mxs_collective_start(collective.value, parts.source.data(), parts.target.data(), nullptr) != MXS_OK) return "";
  if (rank == 1) return mxs_collective_wait(collective.value, nullptr) == MXS_INVALID_ARGUMENT ? error_of("wait") : "";
  mxs_comm_abort(comm, "enough");
  return expect(mxs_collective_wait(collective.value, nullptr), MXS_ABORTED, {"enough"});
}

void an_abort_in_flight_ends_it(void **) {
  for (const char *transport : {"shm", "ucx"})
    for (int turn = 0; turn < 5; ++turn)
      if (usable(transport)) assert_true(good(run_processes(2, aborts, over(transport, "thread"))));
}

std::string forks(int rank, mxs_comm *comm) {
  Parts parts(rank, 2, MXS_GATHER);
  OwnedCollective collective;
  if (parts.make_collective(&collective, comm) != MXS_OK) return error_of("create");
  if (mxs_collective_start(collective.value, parts.source.data(), parts.target.data(), nullptr) != MXS_OK)
    return error_of("start");
  const pid_t child = fork();
  if (child == 0) {
    mxs_comm *handle = comm;
    mxs_comm_info info = MXS_COMM_INFO_INIT;
    const bool refused = progress_threads() == 0 && mxs_comm_barrier(comm, nullptr) == MXS_FORKED &&
                         mxs_comm_test(comm, 0) == MXS_FORKED && mxs_comm_query(comm, &info) == MXS_OK &&
                         mxs_collective_wait(collective.value, nullptr) == MXS_FORKED &&
                         mxs_comm_destroy(&handle) == MXS_FORKED;
    _exit(refused ? 0 : 1);
  }
  int result = 0;
  waitpid(child, &result, 0);
  if (result != 0) return "the child was not refused";
  if (mxs_collective_wait(collective.value, nullptr) != MXS_OK) return error_of("wait");
  return parts.arrived() ? "" : "wrong";
}

void a_forked_child_is_without_it(void **) { assert_true(good(run_processes(2, forks, over("shm", "thread")))); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(by_the_thread_all_arrives_without_calls_over_shm),
      cmocka_unit_test(by_the_thread_all_arrives_without_calls_over_ucx),
      cmocka_unit_test(without_it_nothing_arrives_without_calls_over_shm),
      cmocka_unit_test(without_it_nothing_arrives_without_calls_over_ucx),
      cmocka_unit_test(options_and_environment_choose),
      cmocka_unit_test(nonsense_is_refused),
      cmocka_unit_test(structs_of_older_programs_do),
      cmocka_unit_test(fifty_comms_come_and_go),
      cmocka_unit_test(with_nothing_in_flight_it_sleeps),
      cmocka_unit_test(the_thread_hears_of_an_abort),
      cmocka_unit_test(the_thread_notices_a_death),
      cmocka_unit_test(an_abort_in_flight_ends_it),
      cmocka_unit_test(a_forked_child_is_without_it),
      // The last: it leaves this process with threads of its own behind it, and those before fork.
      cmocka_unit_test(calls_and_the_thread_get_along),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
