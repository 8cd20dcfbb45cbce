// SPDX-License-Identifier: Apache-2.0
// Backups among threads: the comm of a run is split off from one that outlives it; some ranks give up, its comm is
// aborted, and the others recover on a comm of their own. What they then have, and all that comes after, has the bits
// of a run that never failed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "matrixshard/matrixshard.h"
#include "support/backed_up.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"
#include "support/cmocka_all.h"

// Allocations are counted on threads that ask for it. A sanitizer has a malloc of its own.
namespace {
thread_local bool counting = false;
thread_local int allocations = 0;
}  // namespace

#if !defined(MXS_UNDER_ASAN) && !defined(MXS_UNDER_TSAN)
extern "C" {
void *__libc_malloc(size_t bytes);
void *malloc(size_t bytes) {
  if (counting) ++allocations;
  return __libc_malloc(bytes);
}
}
#endif

namespace {

using mxs::test::BackedUpRank;
using mxs::test::Record;
using mxs::test::run_world;
using mxs::test::Undisturbed;

constexpr int steps_in_all = 7;

const Undisturbed &undisturbed() {
  static Undisturbed run;
  if (run.after.empty()) {
    const std::string complaint = run.run(steps_in_all);
    if (!complaint.empty()) print_error("the run without a failure: %s\n", complaint.c_str());
  }
  return run;
}

std::string failure(const std::string &what) { return what + ": " + mxs_last_error(); }

std::string wanted(const char *what, mxs_status status, mxs_status expected, const std::string &words = "") {
  if (status == expected && std::strstr(mxs_last_error(), words.c_str())) return "";
  return std::string(what) + " returned " + mxs_status_name(status) + ", not " + mxs_status_name(expected) +
         " with \"" + words + "\"; last error: " + mxs_last_error();
}

struct OwnComm {
  mxs_comm *comm = nullptr;
  ~OwnComm() { mxs_comm_destroy(&comm); }
  std::string split(mxs_comm *parent, int color, int key) {
    return mxs_comm_split(&comm, parent, color, key, nullptr) == MXS_OK ? "" : failure("split");
  }
};

// Where the ranks that give up do so.
enum class Moment {
  between_steps,     // the latest backup may be on its way
  in_the_agreement,  // they don't come to it
  after_agreeing,    // all have agreed, nobody has stepped
  after_stepping,    // they have stepped, and maybe others have
};

struct Loss {
  std::vector<int> victims;
  Moment moment;
  uint64_t steps;  // done before it
};

bool contains(const std::vector<int> &ranks, int rank) {
  return std::count(ranks.begin(), ranks.end(), rank) != 0;
}

// This rank's part in the end of a comm.
std::string lose(BackedUpRank &rank, const Loss &loss) {
  const std::string complaint = rank.steps_to(loss.steps);
  if (!complaint.empty()) return complaint;
  const bool gives_up = contains(loss.victims, rank.rank);
  const mxs_step step = rank.values();
  mxs_verdict verdict = MXS_VERDICT_INIT;
  mxs_status status = MXS_OK;
  const int turn = static_cast<int>(loss.steps);
  switch (loss.moment) {
    case Moment::between_steps: break;
    case Moment::in_the_agreement:
      if (!gives_up) status = rank.one_step(turn);
      break;
    case Moment::after_agreeing:
      status = rank.backward(turn);
      if (status == MXS_OK) status = mxs_optimizer_agree(rank.optimizer, &step, &verdict);
      break;
    case Moment::after_stepping: status = rank.one_step(turn); break;
  }
  if (status != MXS_OK && status != MXS_ABORTED && status != MXS_PEER_FAILED) return failure("the last step");
  mxs_comm_abort(rank.comm, "a rank gives up");
  return "";
}

uint64_t least_step(const Loss &loss) {
  return loss.moment == Moment::between_steps || loss.moment == Moment::in_the_agreement
             ? std::max<uint64_t>(loss.steps, 1) - 1
             : loss.steps;
}
uint64_t most_steps(const Loss &loss) { return loss.steps + (loss.moment == Moment::after_stepping ? 1 : 0); }

std::string check(const Loss &loss, const mxs_recovery &recovery, BackedUpRank &now) {
  const auto is = [](const char *what, uint64_t value) { return std::string(what) + " is " + std::to_string(value); };
  if (recovery.step_number < least_step(loss) || recovery.step_number > most_steps(loss))
    return is("the step number", recovery.step_number) + " after " + std::to_string(loss.steps) + " steps";
  if (recovery.newest_step < recovery.step_number || recovery.newest_step > recovery.step_number + 1)
    return is("the newest step", recovery.newest_step) + " and " + is("the step number", recovery.step_number);
  if (recovery.lost_count != static_cast<int>(loss.victims.size()))
    return is("lost_count", static_cast<uint64_t>(recovery.lost_count));
  if (mxs_optimizer_step_number(now.optimizer) != recovery.step_number)
    return is("the optimizer's step number", mxs_optimizer_step_number(now.optimizer));
  return now.compare(undisturbed().after[recovery.step_number]);
}

// Losses one after another; ranks of a loss are those of the comm that is left.
std::string go_on(mxs_comm *world, int number, const std::vector<Loss> &losses, int fixed_owner, bool looks) {
  std::vector<OwnComm> comms(losses.size() + 1);
  std::vector<BackedUpRank> ranks(losses.size() + 1);
  std::string complaint = comms[0].split(world, 0, number);
  ranks[0].fixed_owner = fixed_owner;
  if (complaint.empty()) complaint = ranks[0].make(comms[0].comm);
  bool alive = true;
  for (size_t i = 0; i < losses.size() && complaint.empty(); ++i) {
    if (alive) complaint = lose(ranks[i], losses[i]);
    if (!complaint.empty()) return complaint;
    alive = alive && !contains(losses[i].victims, ranks[i].rank);
    complaint = comms[i + 1].split(world, alive ? 0 : MXS_NO_COLOR, number);
    if (!complaint.empty() || !alive) continue;
    complaint = ranks[i + 1].make(comms[i + 1].comm);
    if (!complaint.empty()) return complaint;
    mxs_recovery recovery = MXS_RECOVERY_INIT;
    if (mxs_optimizer_recover(ranks[i + 1].optimizer, ranks[i].optimizer, &recovery) != MXS_OK)
      return failure("recover");
    if (looks) complaint = check(losses[i], recovery, ranks[i + 1]);
    if (!complaint.empty()) return complaint;
    ranks[i].clear();
  }
  if (!complaint.empty() || !alive) return complaint;
  BackedUpRank &last = ranks.back();
  complaint = last.steps_to(steps_in_all);
  if (complaint.empty()) complaint = last.compare(undisturbed().after[steps_in_all]);
  return complaint.empty() ? last.compare_gathered(undisturbed().weights) : complaint;
}

bool survived(int rank_count, const std::vector<Loss> &losses, int fixed_owner = 0, bool looks = true) {
  undisturbed();
  const std::string complaint = run_world(
      rank_count, [&](int number, mxs_comm *world) { return go_on(world, number, losses, fixed_owner, looks); });
  if (complaint.empty()) return true;
  print_error("%d ranks, moment %d after %d steps: %s\n", rank_count, static_cast<int>(losses[0].moment),
              static_cast<int>(losses[0].steps), complaint.c_str());
  return false;
}

constexpr Moment moments[] = {Moment::between_steps, Moment::in_the_agreement, Moment::after_agreeing,
                              Moment::after_stepping};

void one_lost_rank_of_every_world_is_restored_at_every_moment(void **) {
  bool good = true;
  for (const int rank_count : {2, 3, 4, 7, 8})
    for (const Moment moment : moments) good = survived(rank_count, {{{rank_count / 2}, moment, 3}}) && good;
  assert_true(good);
}

void rank_0_and_the_last_rank_may_go_too(void **) {
  assert_true(survived(4, {{{0}, Moment::after_agreeing, 2}}));
  assert_true(survived(4, {{{3}, Moment::after_agreeing, 2}}));
}

void several_ranks_may_go_at_once_where_no_keeper_does(void **) {
  assert_true(survived(4, {{{0, 2}, Moment::in_the_agreement, 2}}));
  assert_true(survived(8, {{{1, 3, 6}, Moment::after_stepping, 2}}));
}

void one_loss_after_another_is_survived_down_to_one_rank(void **) {
  assert_true(survived(4, {{{2}, Moment::after_agreeing, 2},
                           {{0}, Moment::in_the_agreement, 4},
                           {{1}, Moment::after_stepping, 5}}));
}

// The second comes before a step is done on the new comm: the recovery has made a backup of its own.
void a_loss_right_after_a_recovery_is_survived(void **) {
  assert_true(survived(4, {{{1}, Moment::after_agreeing, 2}, {{1}, Moment::between_steps, 2}}, 0, false));
}

void a_rank_that_owned_everything_is_restored_and_one_that_owned_nothing_is_not_missed(void **) {
  assert_true(survived(4, {{{1}, Moment::after_agreeing, 2}}, MXS_FIXED_OWNER(1)));
  assert_true(survived(4, {{{3, 0}, Moment::after_agreeing, 2}}, MXS_FIXED_OWNER(1)));
}

// The comm of a recovery fails before one rank has come to it: the others don't wait, and all recover again on another.
std::string recovers_again(int number, mxs_comm *world) {
  OwnComm comm, first, second;
  BackedUpRank rank, now, again;
  std::string complaint = comm.split(world, 0, number);
  if (complaint.empty()) complaint = rank.make(comm.comm);
  if (complaint.empty()) complaint = lose(rank, {{1}, Moment::after_agreeing, 3});
  for (OwnComm *each : {&first, &second})
    if (complaint.empty()) complaint = each->split(world, number == 1 ? MXS_NO_COLOR : 0, number);
  if (!complaint.empty() || number == 1) return complaint;
  complaint = now.make(first.comm);
  if (!complaint.empty()) return complaint;
  if (number == 2) mxs_comm_abort(first.comm, "a test");
  else complaint = wanted("recover", mxs_optimizer_recover(now.optimizer, rank.optimizer, nullptr), MXS_ABORTED);
  now.clear();
  if (complaint.empty()) complaint = again.make(second.comm);
  mxs_recovery recovery = MXS_RECOVERY_INIT;
  if (complaint.empty() && mxs_optimizer_recover(again.optimizer, rank.optimizer, &recovery) != MXS_OK)
    return failure("the second recover");
  if (complaint.empty()) complaint = check({{1}, Moment::after_agreeing, 3}, recovery, again);
  return complaint.empty() ? again.steps_to(steps_in_all) : complaint;
}

void a_recovery_that_fails_is_tried_again_on_another_comm(void **) {
  undisturbed();
  const std::string complaint = run_world(4, recovers_again);
  assert_string_equal(complaint.c_str(), "");
}

// ---- what is refused ----

std::string refused(int number, mxs_comm *world, const std::vector<int> &victims, uint64_t steps,
                    const std::string &words) {
  OwnComm comm, rest;
  std::string complaint = comm.split(world, 0, number);
  BackedUpRank rank, now;
  if (complaint.empty()) complaint = rank.make(comm.comm);
  if (complaint.empty()) complaint = lose(rank, {victims, Moment::after_agreeing, steps});
  const bool alive = !contains(victims, number);
  if (complaint.empty()) complaint = rest.split(world, alive ? 0 : MXS_NO_COLOR, number);
  if (!complaint.empty() || !alive) return complaint;
  complaint = now.make(rest.comm);
  if (!complaint.empty()) return complaint;
  Record before;
  complaint = now.record(&before);
  if (!complaint.empty()) return complaint;
  complaint = wanted("recover", mxs_optimizer_recover(now.optimizer, rank.optimizer, nullptr), MXS_NOT_FOUND, words);
  if (complaint.empty()) complaint = now.compare(before);
  return complaint.empty() ? now.steps_to(1) : complaint;  // it is as it was, and steps
}

void a_rank_and_its_keeper_gone_are_named_and_nothing_changes(void **) {
  const std::string complaint = run_world(4, [](int number, mxs_comm *world) {
    return refused(number, world, {1, 2}, 2, "rank 1 of the failed comm and rank 2");
  });
  assert_string_equal(complaint.c_str(), "");
}

void without_a_step_there_is_no_backup_and_that_is_said(void **) {
  const std::string complaint = run_world(
      3, [](int number, mxs_comm *world) { return refused(number, world, {1}, 0, "no backup is complete"); });
  assert_string_equal(complaint.c_str(), "");
}

std::string misuses(int number, mxs_comm *world) {
  OwnComm comm, rest, whole;
  std::string complaint = comm.split(world, 0, number);
  BackedUpRank rank, plain, now, other, other_preset, same_comm;
  if (complaint.empty()) complaint = rank.make(comm.comm);
  if (complaint.empty()) complaint = same_comm.make(comm.comm);
  plain.backup = false;
  if (complaint.empty()) complaint = plain.make(comm.comm);
  if (complaint.empty()) complaint = rank.steps_to(1);
  if (complaint.empty()) complaint = rest.split(world, 0, number);
  if (complaint.empty()) complaint = now.make(rest.comm);
  other.longer = 4;
  if (complaint.empty()) complaint = other.make(rest.comm);
  other_preset.preset = MXS_PRESET_KELLER_JORDAN;
  if (complaint.empty()) complaint = other_preset.make(rest.comm);
  if (!complaint.empty()) return complaint;
  const auto recover = [](BackedUpRank &to, BackedUpRank &from) {
    return mxs_optimizer_recover(to.optimizer, from.optimizer, nullptr);
  };
  const auto check = [&](mxs_status status, mxs_status expected, const std::string &words) {
    if (complaint.empty()) complaint = wanted("recover", status, expected, words);
  };
  check(recover(now, rank), MXS_INVALID_ARGUMENT, "has not failed");
  check(recover(same_comm, rank), MXS_INVALID_ARGUMENT, "of one comm");
  check(recover(now, now), MXS_INVALID_ARGUMENT, "from itself");
  check(mxs_optimizer_recover(now.optimizer, nullptr, nullptr), MXS_INVALID_ARGUMENT, "failed is NULL");
  check(mxs_optimizer_recover(nullptr, rank.optimizer, nullptr), MXS_INVALID_ARGUMENT, "optimizer is NULL");
  mxs_comm_barrier(world, nullptr);
  mxs_comm_abort(comm.comm, "a test");
  check(recover(now, plain), MXS_INVALID_ARGUMENT, "the failed optimizer was made without options.backup");
  mxs_recovery small = MXS_RECOVERY_INIT;
  small.size = 4;
  check(mxs_optimizer_recover(now.optimizer, number == 1 ? nullptr : rank.optimizer, nullptr), MXS_INVALID_ARGUMENT,
        "failed is NULL");
  check(mxs_optimizer_recover(now.optimizer, rank.optimizer, &small), MXS_INVALID_ARGUMENT, "size");
  check(recover(other, rank), MXS_MISMATCH, "tensor \"long\" has another shape");
  check(recover(other_preset, rank), MXS_MISMATCH, "Muon preset");
  mxs_view open = MXS_VIEW_INIT;
  if (complaint.empty() && mxs_unit_gradient(now.units[2], 8, MXS_WRITE, &open) != MXS_OK) return failure("gradient");
  check(recover(now, rank), MXS_HELD, "mxs_optimizer_recover");
  if (complaint.empty() && mxs_unit_discard(now.units[2]) != MXS_OK) return failure("discard");
  check(recover(now, rank), MXS_OK, "");
  return complaint.empty() ? now.steps_to(3) : complaint;
}

void misuse_is_refused_on_all_ranks_and_harms_nothing(void **) {
  const std::string complaint = run_world(3, misuses);
  assert_string_equal(complaint.c_str(), "");
}

// Ranks 0 to 2 train on one comm, 3 and 4 on another; then 2 and 3 meet: the first of them was a rank that the other's
// comm doesn't have.
std::string recovers_from_two_comms(int number, mxs_comm *world) {
  OwnComm comm, rest;
  std::string complaint = comm.split(world, number < 3 ? 0 : 1, number);
  BackedUpRank rank, now;
  if (complaint.empty()) complaint = rank.make(comm.comm);
  if (complaint.empty()) complaint = rank.steps_to(2);
  mxs_comm_barrier(world, nullptr);
  mxs_comm_abort(comm.comm, "a test");
  const bool meets = number == 2 || number == 3;
  if (complaint.empty()) complaint = rest.split(world, meets ? 0 : MXS_NO_COLOR, number);
  if (!complaint.empty() || !meets) return complaint;
  complaint = now.make(rest.comm);
  if (!complaint.empty()) return complaint;
  complaint = wanted("recover", mxs_optimizer_recover(now.optimizer, rank.optimizer, nullptr), MXS_INVALID_ARGUMENT,
                     "rank 1 recovers from an optimizer of another comm");
  return complaint.empty() ? now.steps_to(1) : complaint;
}

void ranks_of_two_failed_comms_are_refused(void **) {
  const std::string complaint = run_world(5, recovers_from_two_comms);
  assert_string_equal(complaint.c_str(), "");
}

std::string refusals_of_create(int number, mxs_comm *comm) {
  BackedUpRank rank;
  rank.backup = false;
  std::string complaint = rank.make(comm);
  if (!complaint.empty()) return complaint;
  mxs_optimizer_destroy(&rank.optimizer);
  mxs_optimizer_options options = MXS_OPTIMIZER_OPTIONS_INIT;
  mxs_optimizer *made = nullptr;
  const auto create = [&] { return mxs_optimizer_create(&made, rank.units.data(), rank.units.size(), &options); };
  options.backup = 2;
  complaint = wanted("create", create(), MXS_INVALID_ARGUMENT, "options.backup is 2");
  options.backup = number == 1;
  if (complaint.empty()) complaint = wanted("create", create(), MXS_MISMATCH, "options.backup");
  options.backup = 1;
  options.agree = [](void *, int64_t *, uint64_t) { return 0; };
  if (complaint.empty()) complaint = wanted("create", create(), MXS_NOT_BUILT, "options.agree");
  return complaint;
}

void backups_that_this_release_lacks_and_ranks_that_differ_are_refused(void **) {
  const std::string complaint = run_world(2, refusals_of_create);
  assert_string_equal(complaint.c_str(), "");
}

// ---- bytes, and what changes between steps ----

std::string counts_memory(mxs_comm *comm) {
  BackedUpRank rank;
  std::string complaint = rank.make(comm);
  if (!complaint.empty()) return complaint;
  mxs_memory counted = MXS_MEMORY_INIT, predicted = MXS_MEMORY_INIT, plain = MXS_MEMORY_INIT;
  mxs_memory_options options = MXS_MEMORY_OPTIONS_INIT;
  if (mxs_optimizer_memory(rank.optimizer, &counted) != MXS_OK ||
      mxs_plan_memory(rank.plan, rank.rank, &options, &plain) != MXS_OK)
    return failure("memory");
  options.backup = 1;
  if (mxs_plan_memory(rank.plan, rank.rank, &options, &predicted) != MXS_OK) return failure("memory");
  if (counted.backup != predicted.backup)
    return "backup is " + std::to_string(counted.backup) + " bytes, and was predicted as " +
           std::to_string(predicted.backup);
  if (plain.backup != 0 || predicted.rest != plain.rest || predicted.peak != plain.peak + predicted.backup)
    return "rest or peak is wrong";
  options.backup = 3;
  return wanted("mxs_plan_memory", mxs_plan_memory(rank.plan, rank.rank, &options, &plain), MXS_INVALID_ARGUMENT,
                "options.backup");
}

void its_bytes_are_predicted_to_the_byte(void **) {
  for (const int rank_count : mxs::test::world_sizes) {
    const std::string complaint = run_world(rank_count, [](int, mxs_comm *comm) { return counts_memory(comm); });
    assert_string_equal(complaint.c_str(), "");
  }
}

uint64_t backups_started(mxs_comm *comm) {
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs_comm_query_stats(comm, &stats);
  uint64_t calls = 0;
  for (const mxs_counter &counter : stats.counters[MXS_RESHARD]) calls += counter.calls;
  return calls;
}

// The first step makes one before it and one after; others one; a skipped one none.
std::string counts_backups(mxs_comm *comm) {
  BackedUpRank rank;
  rank.decomposes = false;
  rank.backend = MXS_BACKEND_REFERENCE;  // OpenBLAS allocates in small products
  std::string complaint = rank.make(comm);
  if (!complaint.empty()) return complaint;
  const auto expect = [&](const char *what, uint64_t count) {
    if (complaint.empty() && backups_started(comm) != count)
      complaint = std::string(what) + ": " + std::to_string(backups_started(comm)) + " backups were begun, not " +
                  std::to_string(count);
  };
  expect("create", 0);
  complaint = rank.steps_to(1);
  expect("the first step", 2);
  if (complaint.empty()) complaint = rank.steps_to(2);
  expect("the second step", 3);
  if (rank.backward(2, INFINITY) != MXS_OK) return failure("backward");
  const mxs_step step = rank.values();
  mxs_verdict verdict = MXS_VERDICT_INIT;
  if (mxs_optimizer_step(rank.optimizer, &step, &verdict) != MXS_OK || !verdict.skipped) return failure("skip");
  expect("a skipped step", 3);
  counting = true;
  if (complaint.empty()) complaint = rank.steps_to(5);
  counting = false;
  expect("three steps", 6);
  if (complaint.empty() && allocations > 0)
    complaint = std::to_string(allocations) + " allocations in steps with a backup";
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs_comm_query_stats(comm, &stats);
  if (complaint.empty() && stats.counters[MXS_RESHARD][MXS_PHASE_STEP].bytes_out != 0)
    complaint = "a backup's bytes are counted as the step's";
  return complaint;
}

void a_step_begins_one_backup_without_allocating_and_a_skipped_one_none(void **) {
  const std::string complaint = run_world(3, [](int, mxs_comm *comm) { return counts_backups(comm); });
  assert_string_equal(complaint.c_str(), "");
}

// Nobody is lost, in worlds down to one. The failed comm has a unit gathered and won't be destroyed before its
// optimizer; the new one has stepped by itself; it recovers twice, and again after steps; not while a unit is gathered.
std::string odd_orders(int number, mxs_comm *world) {
  OwnComm comm, rest;
  BackedUpRank rank, now;
  std::string complaint = comm.split(world, 0, number);
  if (complaint.empty()) complaint = rank.make(comm.comm);
  if (complaint.empty()) complaint = rank.steps_to(3);
  if (!complaint.empty()) return complaint;
  if (mxs_unit_gather(rank.units[0], nullptr) != MXS_OK) return failure("gather");
  if (mxs_unit_wait(rank.units[0], nullptr) != MXS_OK) return failure("wait");
  if (mxs_comm_barrier(world, nullptr) != MXS_OK) return failure("barrier");
  mxs_comm_abort(comm.comm, "a test");
  if (mxs_comm_shrink(&rest.comm, comm.comm, nullptr) != MXS_OK) return failure("shrink");
  complaint = wanted("destroy", mxs_comm_destroy(&comm.comm), MXS_HELD);
  if (complaint.empty()) complaint = now.make(rest.comm);
  if (complaint.empty()) complaint = now.steps_to(1);
  const auto recover = [&](mxs_status expected) {
    return wanted("recover", mxs_optimizer_recover(now.optimizer, rank.optimizer, nullptr), expected);
  };
  for (const uint64_t steps : {uint64_t{3}, uint64_t{3}, uint64_t{5}}) {
    if (complaint.empty()) complaint = recover(MXS_OK);
    if (complaint.empty()) complaint = now.compare(undisturbed().after[3]);
    if (complaint.empty()) complaint = now.steps_to(steps);
    if (complaint.empty()) complaint = now.compare(undisturbed().after[steps]);
  }
  if (!complaint.empty()) return complaint;
  if (mxs_unit_gather(now.units[1], nullptr) != MXS_OK) return failure("gather");
  complaint = recover(MXS_HELD);
  if (complaint.empty() && mxs_unit_wait(now.units[1], nullptr) != MXS_OK) return failure("wait");
  if (complaint.empty()) complaint = recover(MXS_HELD);
  if (complaint.empty() && mxs_unit_release(now.units[1], MXS_FREE, nullptr) != MXS_OK) return failure("release");
  if (complaint.empty()) complaint = recover(MXS_OK);
  rank.clear();
  if (complaint.empty()) complaint = wanted("destroy", mxs_comm_destroy(&comm.comm), MXS_OK);
  if (complaint.empty()) complaint = now.steps_to(steps_in_all);
  return complaint.empty() ? now.compare(undisturbed().after[steps_in_all]) : complaint;
}

void recoveries_in_odd_orders_give_the_same_bits(void **) {
  undisturbed();
  for (const int rank_count : {1, 2, 3}) {
    const std::string complaint = run_world(rank_count, odd_orders);
    assert_string_equal(complaint.c_str(), "");
  }
}

// What the new optimizer's own step mirrors is large enough to be on its way still when the recovery makes a backup.
std::string recovers_at_once(int number, mxs_comm *world) {
  OwnComm comm, rest;
  BackedUpRank rank, now;
  rank.longer = now.longer = 2'000'000;
  Record record;
  std::string complaint = comm.split(world, 0, number);
  if (complaint.empty()) complaint = rank.make(comm.comm);
  if (complaint.empty()) complaint = rank.steps_to(1);
  if (complaint.empty()) complaint = rank.record(&record);
  if (mxs_comm_barrier(world, nullptr) != MXS_OK) return failure("barrier");
  mxs_comm_abort(comm.comm, "a test");
  if (complaint.empty()) complaint = rest.split(world, 0, number);
  if (complaint.empty()) complaint = now.make(rest.comm);
  if (complaint.empty()) complaint = now.steps_to(2);
  if (complaint.empty() && mxs_optimizer_recover(now.optimizer, rank.optimizer, nullptr) != MXS_OK)
    return failure("recover");
  if (complaint.empty()) complaint = now.compare(record);
  return complaint.empty() ? now.steps_to(3) : complaint;
}

void a_recovery_right_after_a_step_waits_for_its_backup(void **) {
  for (const int rank_count : {2, 3}) {
    const std::string complaint = run_world(rank_count, recovers_at_once);
    assert_string_equal(complaint.c_str(), "");
  }
}

// Rank 1 alone changes something between two steps; the next step makes a backup of it before it steps.
std::string keeps_changes(int number, mxs_comm *world, bool of_state) {
  OwnComm comm, rest;
  std::string complaint = comm.split(world, 0, number);
  BackedUpRank rank, now;
  if (complaint.empty()) complaint = rank.make(comm.comm);
  if (complaint.empty()) complaint = rank.steps_to(2);
  if (!complaint.empty()) return complaint;
  if (number == 1 && of_state) {
    mxs_state_info info = MXS_STATE_INFO_INIT;
    if (mxs_optimizer_state(rank.optimizer, 0, &info) != MXS_OK) return failure("state");
    std::memset(info.view.data, 0, info.view.bytes);
  } else if (number == 1) {
    complaint = rank.for_each_shard([](const mxs_placement &, mxs_view &view) {
      std::memset(view.data, 0, view.bytes);
      return std::string();
    });
  }
  static std::mutex mutex;
  static Record record;
  if (complaint.empty()) complaint = rank.steps_to(3);
  {
    const std::lock_guard lock(mutex);
    if (complaint.empty()) complaint = rank.record(&record);
  }
  // One more agreement, which proves that step 3 is everywhere.
  if (complaint.empty()) complaint = lose(rank, {{1}, Moment::after_agreeing, 3});
  mxs_comm_barrier(world, nullptr);
  if (complaint.empty()) complaint = rest.split(world, number == 1 ? MXS_NO_COLOR : 0, number);
  if (!complaint.empty() || number == 1) return complaint;
  complaint = now.make(rest.comm);
  mxs_recovery recovery = MXS_RECOVERY_INIT;
  if (complaint.empty() && mxs_optimizer_recover(now.optimizer, rank.optimizer, &recovery) != MXS_OK)
    return failure("recover");
  if (complaint.empty() && recovery.step_number != 3) return "the step is " + std::to_string(recovery.step_number);
  return complaint.empty() ? now.compare(record) : complaint;
}

void what_one_rank_changes_between_steps_is_in_the_next_backup(void **) {
  for (const bool of_state : {false, true}) {
    const std::string complaint = run_world(
        3, [&](int number, mxs_comm *world) { return keeps_changes(number, world, of_state); });
    assert_string_equal(complaint.c_str(), "");
  }
}

// Nobody goes back to before a load.
std::string forgets(int number, mxs_comm *world) {
  OwnComm comm, rest;
  std::string complaint = comm.split(world, 0, number);
  BackedUpRank rank, now;
  if (complaint.empty()) complaint = rank.make(comm.comm);
  if (complaint.empty()) complaint = rank.steps_to(3);
  if (complaint.empty() && mxs_optimizer_set_step_number(rank.optimizer, 1) != MXS_OK) complaint = failure("set");
  mxs_comm_barrier(world, nullptr);
  mxs_comm_abort(comm.comm, "a test");
  if (complaint.empty()) complaint = rest.split(world, number == 1 ? MXS_NO_COLOR : 0, number);
  if (!complaint.empty() || number == 1) return complaint;
  complaint = now.make(rest.comm);
  if (!complaint.empty()) return complaint;
  return wanted("recover", mxs_optimizer_recover(now.optimizer, rank.optimizer, nullptr), MXS_NOT_FOUND,
                "the step number was set");
}

void a_step_number_that_is_set_ends_the_backups_before_it(void **) {
  const std::string complaint = run_world(3, forgets);
  assert_string_equal(complaint.c_str(), "");
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_lost_rank_of_every_world_is_restored_at_every_moment),
      cmocka_unit_test(rank_0_and_the_last_rank_may_go_too),
      cmocka_unit_test(several_ranks_may_go_at_once_where_no_keeper_does),
      cmocka_unit_test(one_loss_after_another_is_survived_down_to_one_rank),
      cmocka_unit_test(a_loss_right_after_a_recovery_is_survived),
      cmocka_unit_test(a_rank_that_owned_everything_is_restored_and_one_that_owned_nothing_is_not_missed),
      cmocka_unit_test(a_recovery_that_fails_is_tried_again_on_another_comm),
      cmocka_unit_test(a_rank_and_its_keeper_gone_are_named_and_nothing_changes),
      cmocka_unit_test(without_a_step_there_is_no_backup_and_that_is_said),
      cmocka_unit_test(misuse_is_refused_on_all_ranks_and_harms_nothing),
      cmocka_unit_test(ranks_of_two_failed_comms_are_refused),
      cmocka_unit_test(backups_that_this_release_lacks_and_ranks_that_differ_are_refused),
      cmocka_unit_test(its_bytes_are_predicted_to_the_byte),
      cmocka_unit_test(a_step_begins_one_backup_without_allocating_and_a_skipped_one_none),
      cmocka_unit_test(recoveries_in_odd_orders_give_the_same_bits),
      cmocka_unit_test(a_recovery_right_after_a_step_waits_for_its_backup),
      cmocka_unit_test(what_one_rank_changes_between_steps_is_in_the_next_backup),
      cmocka_unit_test(a_step_number_that_is_set_ends_the_backups_before_it),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
