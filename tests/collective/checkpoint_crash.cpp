// SPDX-License-Identifier: Apache-2.0
// kill -9 at 50 random points of a save, and of the deletion of old checkpoints after it, on 3 ranks: whoever dies,
// the newest checkpoint is whole and no older than the last one whose save has returned; survivors are told who died;
// the next save removes what is left.
//
// Each world loads what the one before has left, checks it, and saves one version after the other until some or all of
// its ranks are killed. Delays are drawn over the duration of two saves, or of one deletion, measured at first.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "support/processes.hpp"
#include "support/sanitized.hpp"
#include "support/temporary_folder.hpp"
#include "support/versioned.hpp"

#include "support/cmocka_all.h"

using namespace mxs;
using namespace mxs::test;

namespace {

constexpr int rank_count = 3, old_count = 16, keep = 2;
constexpr uint64_t first_version = 100;  // old ones are below
#if defined(MXS_UNDER_ASAN) || defined(MXS_UNDER_TSAN)
constexpr int kills_in_saves = 6, kills_in_deletions = 2;
#else
constexpr int kills_in_saves = 38, kills_in_deletions = 12;
#endif

// Seen by all processes.
struct Board {
  std::atomic<uint64_t> begun, returned;  // the highest versions whose save has begun, and was told to be on disk
  std::atomic<uint64_t> save_ns, deletion_ns;
  std::atomic<int> ready;
  std::atomic<unsigned> victims;  // a bit for each
};

Board *make_board() {
  void *const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Board();
}

void raise_to(std::atomic<uint64_t> *value, uint64_t least) {
  uint64_t seen = value->load();
  while (seen < least && !value->compare_exchange_weak(seen, least)) {
  }
}

std::string step_path(const std::string &folder, uint64_t version) {
  char name[32];
  std::snprintf(name, sizeof name, "/step-%08llu", static_cast<unsigned long long>(version));
  return folder + name;
}

// Copies of one, by the names of others, where a deletion before has not left them.
void add_old_ones(const std::string &folder, uint64_t version) {
  for (uint64_t old = 1; old <= old_count; old++)
    if (access(step_path(folder, old).c_str(), F_OK) != 0)
      std::filesystem::copy(step_path(folder, version), step_path(folder, old),
                            std::filesystem::copy_options::recursive);
}

// What a deletion that was killed has left of them: the next kill is to hit a save.
void remove_old_ones(const std::string &folder) {
  for (uint64_t old = 1; old <= old_count; old++) std::filesystem::remove_all(step_path(folder, old));
}

// What a world leaves behind is whole, all of it.
std::string all_are_whole(const std::string &folder) {
  for (const std::string &name : entries_of(folder)) {
    if (name[0] == '.') continue;
    mxs_checkpoint *checkpoint = nullptr;
    std::string complaint = want(MXS_OK, mxs_checkpoint_open(&checkpoint, (folder + "/" + name).c_str()), name);
    if (complaint.empty()) complaint = want(MXS_OK, mxs_checkpoint_verify(checkpoint, nullptr), name);
    mxs_checkpoint_close(&checkpoint);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

std::string nothing_else_is_left(const std::string &folder) {
  const std::vector<std::string> names = entries_of(folder);
  std::string complaint = names.size() <= keep ? "" : "left behind:";
  for (const std::string &name : names)
    if (names.size() > keep || name[0] == '.') complaint += " " + name;
  return complaint;
}

// Loads the newest and returns its version: 0 if there is none.
std::string load_newest(Versioned &rank, const std::string &folder, const Board &board, uint64_t *version) {
  *version = 0;
  if (board.returned == 0) return "";
  std::string complaint = rank.rank == 0 ? all_are_whole(folder) : "";
  mxs_checkpoint *checkpoint = nullptr;
  mxs_checkpoint_info info = MXS_CHECKPOINT_INFO_INIT;
  if (complaint.empty()) complaint = want(MXS_OK, mxs_checkpoint_open(&checkpoint, folder.c_str()), "the opening");
  if (complaint.empty()) complaint = want(MXS_OK, mxs_checkpoint_query(checkpoint, &info), "mxs_checkpoint_query");
  if (complaint.empty() && (info.step_number < board.returned || info.step_number > board.begun))
    complaint = "the newest is " + std::to_string(info.step_number) + ", not from " +
                std::to_string(board.returned.load()) + " to " + std::to_string(board.begun.load());
  if (complaint.empty()) complaint = rank.load(checkpoint);
  if (complaint.empty()) complaint = rank.is(info.step_number);
  mxs_checkpoint_close(&checkpoint);
  *version = info.step_number;
  return complaint;
}

std::string save_version(Versioned &rank, const std::string &folder, Board *board, uint64_t version, bool beside,
                         mxs_status *status) {
  const std::string complaint = rank.become(version);
  if (!complaint.empty()) return complaint;
  mxs_checkpoint_options options = MXS_CHECKPOINT_OPTIONS_INIT;
  options.keep = keep;
  raise_to(&board->begun, version);
  *status = rank.save(folder, options, beside);
  if (*status == MXS_OK) raise_to(&board->returned, version);
  return "";
}

// ---- a world that nobody kills: durations ----

std::string measure(Versioned &rank, const std::string &folder, Board *board) {
  constexpr int save_count = 5;
  uint64_t version = first_version;
  mxs_status status = MXS_OK;
  const uint64_t before = now_ns();
  for (int i = 0; i < save_count; i++) {
    const std::string complaint = save_version(rank, folder, board, ++version, i % 2 != 0, &status);
    if (!complaint.empty()) return complaint;
    if (status != MXS_OK) return "save " + std::to_string(i) + ": " + rank.error(i % 2 != 0);
  }
  const uint64_t save_ns = (now_ns() - before) / save_count;
  if (rank.rank == 0) add_old_ones(folder, version);
  mxs_comm_barrier(rank.comm, nullptr);
  const uint64_t deletion_begin = now_ns();
  const std::string complaint = save_version(rank, folder, board, ++version, false, &status);
  if (!complaint.empty() || status != MXS_OK) return complaint + rank.error(false);
  if (rank.rank != 0) return "";
  board->save_ns = save_ns;
  const uint64_t both_ns = now_ns() - deletion_begin;
  board->deletion_ns = both_ns > save_ns + 1'000'000 ? both_ns - save_ns : 1'000'000;
  return nothing_else_is_left(folder);
}

// ---- a world that is killed ----

// After a failure: is it told who died?
std::string was_told(const Board &board, const std::string &error) {
  const unsigned victims = board.victims;
  if (victims == 0) return "failed though nobody was killed: " + error;
  for (int victim = 0; victim < rank_count; victim++)
    if (victims >> victim & 1 && error.find("rank " + std::to_string(victim)) != std::string::npos) return "";
  return "doesn't name who died: " + error;
}

std::string save_until_killed(Versioned &rank, const std::string &folder, Board *board, bool beside) {
  uint64_t version = 0;
  std::string complaint = load_newest(rank, folder, *board, &version);
  if (!complaint.empty()) return complaint;
  // What was found is what every later world must find at least.
  raise_to(&board->returned, version);
  board->ready++;
  for (;;) {
    mxs_status status = MXS_OK;
    complaint = save_version(rank, folder, board, ++version, beside, &status);
    if (!complaint.empty()) return complaint;
    if (status != MXS_OK) return was_told(*board, rank.error(beside));
    if (rank.rank == 0) complaint = nothing_else_is_left(folder);
    if (!complaint.empty()) return complaint;
  }
}

struct Kill {
  bool in_deletion = false, beside = false;
  uint64_t delay_ns = 0;
  unsigned victims = 0;
};

Kill draw_kill(std::mt19937_64 *random, const Board &board, int number) {
  Kill kill;
  kill.in_deletion = number % 4 == 3 && number / 4 < kills_in_deletions;
  kill.beside = number % 3 == 2;
  kill.delay_ns = (*random)() % (kill.in_deletion ? board.deletion_ns * 5 / 4 : board.save_ns * 2);
  const uint64_t who = (*random)() % 10;
  kill.victims = who < 4 ? (1u << rank_count) - 1 : who < 7 ? 1u : 1u << (*random)() % rank_count;
  return kill;
}

void kill_some(const Kill &kill, const std::string &folder, Board *board, const std::vector<pid_t> &processes) {
  const uint64_t deadline = now_ns() + 60'000'000'000;
  while (board->ready < rank_count && now_ns() < deadline) usleep(200);
  if (kill.in_deletion) {  // it begins when the new one is in its place
    const std::string path = step_path(folder, board->returned + 1);
    while (access(path.c_str(), F_OK) != 0 && now_ns() < deadline) usleep(100);
  }
  usleep(static_cast<useconds_t>(kill.delay_ns / 1000));
  board->victims = kill.victims;
  for (int rank = 0; rank < rank_count; rank++)
    if (kill.victims >> rank & 1) ::kill(processes[static_cast<size_t>(rank)], SIGKILL);
}

std::string run_and_kill(const Kill &kill, const std::string &folder, Board *board) {
  board->ready = 0;
  board->victims = 0;
  ProcessOptions options;
  options.any_may_die = true;
  options.timeout_seconds = 90;
  options.meanwhile = [&](const std::vector<pid_t> &processes) { kill_some(kill, folder, board, processes); };
  return run_processes(
      rank_count,
      [&](int, mxs_comm *comm) {
        Versioned rank;
        const std::string made = rank.prepare(comm);
        return made.empty() ? save_until_killed(rank, folder, board, kill.beside) : made;
      },
      options);
}

// The last world: loads, saves once more, and there is nothing else.
std::string goes_on(const std::string &folder, Board *board, int ranks) {
  return run_processes(ranks, [&](int, mxs_comm *comm) {
    Versioned rank;
    uint64_t version = 0;
    std::string complaint = rank.prepare(comm);
    if (complaint.empty()) complaint = load_newest(rank, folder, *board, &version);
    mxs_status status = MXS_OK;
    if (complaint.empty()) complaint = save_version(rank, folder, board, version + 1, false, &status);
    if (complaint.empty()) complaint = want(MXS_OK, status, "the save");
    return complaint.empty() && rank.rank == 0 ? nothing_else_is_left(folder) : complaint;
  });
}

// How many kills left something half written, and half deleted.
struct Leftovers {
  int partial = 0, gone = 0;
  void count(const std::string &folder) {
    bool is_partial = false, is_gone = false;
    for (const std::string &name : entries_of(folder)) {
      is_partial = is_partial || name.find(".partial-") != std::string::npos;
      is_gone = is_gone || name.find(".gone-") != std::string::npos;
    }
    partial += is_partial;
    gone += is_gone;
  }
};

std::string text_of(const Kill &kill) {
  return std::string(kill.in_deletion ? "deletion" : "save") + (kill.beside ? " beside" : "") + ", " +
         std::to_string(kill.delay_ns / 1000) + " us, victims " + std::to_string(kill.victims);
}

bool the_last_good_one_always_loads() {
  constexpr uint64_t seed = 20261130;
  print_message("# seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const TemporaryFolder folder;
  Board *const board = make_board();
  Leftovers leftovers;
  std::string complaint = run_processes(rank_count, [&](int, mxs_comm *comm) {
    Versioned rank;
    const std::string made = rank.prepare(comm);
    return made.empty() ? measure(rank, folder.path(), board) : made;
  });
  print_message("# a save takes %.1f ms, deleting %d old ones %.1f ms\n", static_cast<double>(board->save_ns) / 1e6,
                old_count, static_cast<double>(board->deletion_ns) / 1e6);
  for (int number = 0; number < kills_in_saves + kills_in_deletions && complaint.empty(); number++) {
    const Kill kill = draw_kill(&random, *board, number);
    remove_old_ones(folder.path());
    if (kill.in_deletion) {
      mxs_checkpoint *newest = nullptr;
      mxs_checkpoint_info info = MXS_CHECKPOINT_INFO_INIT;
      complaint = want(MXS_OK, mxs_checkpoint_open(&newest, folder.path().c_str()), "the newest");
      if (complaint.empty()) complaint = want(MXS_OK, mxs_checkpoint_query(newest, &info), "its number");
      mxs_checkpoint_close(&newest);
      if (complaint.empty()) add_old_ones(folder.path(), info.step_number);
    }
    if (complaint.empty()) complaint = run_and_kill(kill, folder.path(), board);
    leftovers.count(folder.path());
    if (!complaint.empty()) complaint = "kill " + std::to_string(number) + " (" + text_of(kill) + "): " + complaint;
  }
  print_message("# kills that left something half written: %d, half deleted: %d\n", leftovers.partial, leftovers.gone);
  if (complaint.empty() && leftovers.partial == 0) complaint = "no kill hit a save";
  if (complaint.empty()) complaint = goes_on(folder.path(), board, rank_count);
  if (complaint.empty()) complaint = goes_on(folder.path(), board, 2);
  munmap(board, sizeof(Board));
  if (!complaint.empty()) print_error("%s\n", complaint.c_str());
  return complaint.empty();
}

void the_last_good_checkpoint_loads_after_50_kills(void **) { assert_true(the_last_good_one_always_loads()); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_last_good_checkpoint_loads_after_50_kills),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
