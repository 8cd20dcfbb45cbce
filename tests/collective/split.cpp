// SPDX-License-Identifier: Apache-2.0
// Comms split off from a comm: every shape of grid, splits of splits, uneven groups, failures that stay where they
// belong, two comms in use at once, and nothing left behind.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "matrixshard/collective.h"
#include "matrixshard/comm.h"
#include "support/complaints.hpp"
#include "support/processes.hpp"
#include "support/transports.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using mxs::test::Body;
using mxs::test::error_of;
using mxs::test::expect;
using mxs::test::good;
using mxs::test::ProcessOptions;
using mxs::test::has_transport;
using mxs::test::run_processes;
using mxs::test::run_processes_bare;
using mxs::test::run_world;
using mxs::test::words;
using mxs::test::world_sizes;

namespace {

// A comm that goes with its scope.
struct Own {
  mxs_comm *comm = nullptr;
  Own() = default;
  Own(const Own &) = delete;
  ~Own() { mxs_comm_destroy(&comm); }
};

// The comm is what it should be, and bytes really travel: a sum, and a gather of 100 KB.
std::string works(mxs_comm *comm, int rank, const std::vector<int> &members) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return error_of("query");
  const int count = static_cast<int>(members.size());
  if (info.rank != rank || info.rank_count != count)
    return words("rank %d of %d, not %d of %d", info.rank, info.rank_count, rank, count);
  mxs_topology *topology = nullptr;
  if (mxs_comm_topology(comm, &topology) != MXS_OK) return error_of("topology");
  const int placed = mxs_topology_rank_count(topology);
  mxs_topology_destroy(&topology);
  if (placed != count) return words("the topology has %d ranks, not %d", placed, count);
  double who[1] = {static_cast<double>(members[static_cast<size_t>(rank)])};
  if (mxs_comm_sum(comm, who, 1, nullptr) != MXS_OK) return error_of("sum");
  double expected = 0;
  for (const int member : members) expected += member;
  if (who[0] != expected) return words("the sum of members is %g, not %g", who[0], expected);

  const uint64_t bytes = 100'003;
  mxs_layout *layout = nullptr;
  if (mxs_layout_create_even(&layout, bytes, 1, count) != MXS_OK) return error_of("layout");
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = MXS_GATHER;
  options.layout = layout;
  mxs_collective *gather = nullptr;
  mxs_status status = mxs_collective_create(&gather, comm, &options);
  const auto mark = [&](int of) { return static_cast<unsigned char>(members[static_cast<size_t>(of)] + 1); };
  const std::vector<unsigned char> mine(mxs_layout_owned_bytes(layout, rank), mark(rank));
  std::vector<unsigned char> all(bytes, 0xee);
  if (status == MXS_OK) status = mxs_collective_start(gather, mine.data(), all.data(), nullptr);
  if (status == MXS_OK) status = mxs_collective_wait(gather, nullptr);
  std::string complaint = status == MXS_OK ? "" : error_of("gather");
  uint64_t at = 0;
  for (int member = 0; complaint.empty() && member < count; ++member)
    for (uint64_t i = 0; i < mxs_layout_owned_bytes(layout, member); ++i, ++at)
      if (all[at] != mark(member)) complaint = words("byte %d is wrong", static_cast<int>(at));
  mxs_collective_destroy(&gather);
  mxs_layout_destroy(&layout);
  return complaint;
}

// The ranks of a parent for which `same` holds, in order.
template <class Same>
std::vector<int> members_where(int rank_count, Same &&same) {
  std::vector<int> members;
  for (int rank = 0; rank < rank_count; ++rank)
    if (same(rank)) members.push_back(rank);
  return members;
}

std::string split_and_use(mxs_comm *parent, int rank, int rank_count, int (*color)(int)) {
  Own own;
  if (mxs_comm_split(&own.comm, parent, color(rank), 0, nullptr) != MXS_OK) return error_of("split");
  if (color(rank) == MXS_NO_COLOR) return own.comm ? "there is a comm without a color" : "";
  const std::vector<int> members = members_where(rank_count, [&](int other) { return color(other) == color(rank); });
  int place = 0;
  while (members[static_cast<size_t>(place)] != rank) ++place;
  return works(own.comm, place, members);
}

int all_alike(int) { return 7; }
int each_alone(int rank) { return rank; }
int halves(int rank) { return rank / 4; }
int quarters(int rank) { return rank / 2; }
int odd_and_even(int rank) { return rank % 2; }
int by_fours(int rank) { return rank % 4; }
int three_and_the_rest(int rank) { return rank < 3 ? 2147483647 : 0; }
int only_the_first(int rank) { return rank == 0 ? 0 : MXS_NO_COLOR; }
int all_but_the_first(int rank) { return rank == 0 ? MXS_NO_COLOR : 0; }
int nobody(int) { return MXS_NO_COLOR; }

int rank_count_of(mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  return info.rank_count;
}

std::string every_shape(int rank, mxs_comm *comm) {
  int (*const shapes[])(int) = {all_alike,    each_alone,         halves,         quarters,          odd_and_even,
                                by_fours,     three_and_the_rest, only_the_first, all_but_the_first, nobody};
  int number = 0;
  for (const auto shape : shapes) {
    const std::string complaint = split_and_use(comm, rank, rank_count_of(comm), shape);
    if (!complaint.empty()) return words("shape %d: ", number) + complaint;
    ++number;
  }
  return "";
}

bool threads_split() {
  for (const int rank_count : world_sizes)
    if (!good(run_world(rank_count, every_shape))) return false;
  return true;
}

void threads_split_into_groups_of_every_shape(void **) { assert_true(threads_split()); }

bool processes_split(const char *transport, const std::vector<int> &worlds, int (*const *shapes)(int)) {
  for (const int rank_count : worlds) {
    ProcessOptions options;
    options.transport = transport;
    const auto body = [=](int rank, mxs_comm *comm) -> std::string {
      for (auto shape = shapes; *shape; ++shape) {
        const std::string complaint = split_and_use(comm, rank, rank_count, *shape);
        if (!complaint.empty()) return complaint;
      }
      return "";
    };
    if (!good(run_processes(rank_count, body, options))) return false;
  }
  return true;
}

int (*const few_shapes[])(int) = {halves, odd_and_even, three_and_the_rest, all_but_the_first, nullptr};

void processes_split_over_shm(void **) { assert_true(processes_split(nullptr, {1, 4, 8}, few_shapes)); }

void processes_split_over_ucx(void **) {
  if (has_transport("ucx")) assert_true(processes_split("ucx", {4}, few_shapes));
}

// Nodes of 3 and 5: a group inside a node has shm alone, one across has both, or one rank of each and ucx alone.
bool two_nodes() {
  return good(run_processes_bare(8, [](int rank) -> std::string {
    setenv("MXS_NODE", rank < 3 ? "a" : "b", 1);
    Own world, inside, across;
    if (mxs_comm_create(&world.comm, nullptr) != MXS_OK) return error_of("create");
    if (mxs_comm_split(&inside.comm, world.comm, rank < 3, 0, nullptr) != MXS_OK) return error_of("split");
    mxs_comm_info info = MXS_COMM_INFO_INIT;
    mxs_comm_query(inside.comm, &info);
    if (info.node_count != 1 || std::strcmp(info.transports, "shm") != 0) return "inside is not joined by shm";
    if (std::strcmp(info.bootstrap, "torchrun") != 0) return std::string("bootstrap is ") + info.bootstrap;
    // {0 3}, {1 4}, and {2 5 6 7}.
    const int color = rank < 3 ? rank : rank < 5 ? rank - 3 : 2;
    if (mxs_comm_split(&across.comm, world.comm, color, 0, nullptr) != MXS_OK) return error_of("split across");
    mxs_comm_query(across.comm, &info);
    const char *const expected = color < 2 || rank == 2 ? "ucx" : "shm ucx";
    if (info.node_count != 2 || std::strcmp(info.transports, expected) != 0)
      return std::string("across is joined by ") + info.transports;
    const std::vector<int> members =
        color == 0 ? std::vector<int>{0, 3} : color == 1 ? std::vector<int>{1, 4} : std::vector<int>{2, 5, 6, 7};
    return works(across.comm, info.rank, members);
  }));
}

void groups_take_the_transports_that_they_need(void **) {
  if (has_transport("ucx")) assert_true(two_nodes());
}

// ---- order, nesting, life ----

std::string by_key(int rank, mxs_comm *comm) {
  const int count = rank_count_of(comm);
  Own reversed, equal;
  if (mxs_comm_split(&reversed.comm, comm, 0, -rank, nullptr) != MXS_OK) return error_of("split");
  std::vector<int> members;
  for (int other = count; other-- > 0;) members.push_back(other);
  std::string complaint = works(reversed.comm, count - 1 - rank, members);
  if (!complaint.empty()) return complaint;
  // Odd ranks first, and by the parent's rank among equal keys.
  if (mxs_comm_split(&equal.comm, comm, 0, rank % 2 == 0, nullptr) != MXS_OK) return error_of("split");
  members.clear();
  for (int other = 1; other < count; other += 2) members.push_back(other);
  for (int other = 0; other < count; other += 2) members.push_back(other);
  return works(equal.comm, rank % 2 ? rank / 2 : count / 2 + rank / 2, members);
}

void ranks_are_ordered_by_key_and_then_by_rank(void **) {
  for (const int rank_count : world_sizes) assert_true(good(run_world(rank_count, by_key)));
}

// 8 -> 4 -> 2 -> 1, each parent destroyed before its child is used.
std::string nest(int rank, mxs_comm *comm) {
  Own four, two, one;
  if (mxs_comm_split(&four.comm, comm, rank / 4, 0, nullptr) != MXS_OK) return error_of("split in 4");
  if (mxs_comm_split(&two.comm, four.comm, rank % 4 / 2, 0, nullptr) != MXS_OK) return error_of("split in 2");
  if (mxs_comm_destroy(&four.comm) != MXS_OK) return error_of("destroy");
  const int first = rank - rank % 2;
  const std::string complaint = works(two.comm, rank % 2, {first, first + 1});
  if (!complaint.empty()) return complaint;
  if (mxs_comm_split(&one.comm, two.comm, rank % 2, 0, nullptr) != MXS_OK) return error_of("split in 1");
  if (mxs_comm_destroy(&two.comm) != MXS_OK) return error_of("destroy");
  return works(one.comm, 0, {rank});
}

void a_split_can_be_split_and_outlives_its_parent(void **) {
  assert_true(good(run_world(8, nest)));
  assert_true(good(run_processes(8, nest)));
}

bool world_goes_first() {
  return good(run_processes_bare(4, [](int rank) -> std::string {
    Own world, half;
    if (mxs_comm_create(&world.comm, nullptr) != MXS_OK) return error_of("create");
    if (mxs_comm_split(&half.comm, world.comm, rank / 2, 0, nullptr) != MXS_OK) return error_of("split");
    if (mxs_comm_destroy(&world.comm) != MXS_OK) return error_of("destroy");
    usleep(static_cast<useconds_t>(rank) * 20'000);
    const int first = rank - rank % 2;
    return works(half.comm, rank % 2, {first, first + 1});
  }));
}

void the_world_may_be_destroyed_first(void **) { assert_true(world_goes_first()); }

int open_files() {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (folder && readdir(folder)) ++count;
  if (folder) closedir(folder);
  return count;
}

int lines_of(const char *path) {
  std::ifstream file(path);
  int count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

int threads() {
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  while (folder && readdir(folder)) ++count;
  if (folder) closedir(folder);
  return count;
}

// 64 at once, then 64 one after the other; the first rounds may leave what a library keeps for ever.
std::string many(int rank, mxs_comm *comm) {
  int files = 0, maps = 0, tasks = 0;
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<Own> alive(turn == 0 ? 1 : 64);
    for (Own &own : alive)
      if (mxs_comm_split(&own.comm, comm, rank / 2, 0, nullptr) != MXS_OK) return error_of("split");
    const int first = rank - rank % 2;
    for (Own &own : alive) {
      double sum[1] = {static_cast<double>(rank)};
      if (mxs_comm_sum(own.comm, sum, 1, nullptr) != MXS_OK) return error_of("sum");
      if (sum[0] != 2 * first + 1) return "a sum is wrong";
    }
    alive.clear();
    if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
    const int files_now = open_files(), maps_now = lines_of("/proc/self/maps"), tasks_now = threads();
    if (turn == 2 && files_now != files) return words("%d files are open, %d were", files_now, files);
    if (turn == 2 && tasks_now != tasks) return words("%d threads, %d were", tasks_now, tasks);
    // The heap may take another map; 64 comms that stay would be hundreds.
    if (turn == 2 && maps_now > maps + 8) return words("%d maps, %d were", maps_now, maps);
    files = files_now, maps = maps_now, tasks = tasks_now;
  }
  return "";
}

void many_splits_leave_nothing_behind(void **) { assert_true(good(run_processes(4, many))); }

bool few_over_ucx() {
  ProcessOptions options;
  options.transport = "ucx";
  return good(run_processes(2, [](int rank, mxs_comm *comm) -> std::string {
    int files = 0;
    for (int turn = 0; turn < 8; ++turn) {
      Own own;
      if (mxs_comm_split(&own.comm, comm, 0, 0, nullptr) != MXS_OK) return error_of("split");
      double sum[1] = {static_cast<double>(rank)};
      if (mxs_comm_sum(own.comm, sum, 1, nullptr) != MXS_OK) return error_of("sum");
      if (mxs_comm_destroy(&own.comm) != MXS_OK) return error_of("destroy");
      if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
      if (turn == 2) files = open_files();
      if (turn > 2 && open_files() > files + 2) return words("%d files are open, %d were", open_files(), files);
    }
    return "";
  }, options));
}

void splits_over_ucx_leave_no_files(void **) {
  if (has_transport("ucx")) assert_true(few_over_ucx());
}

// ---- at once ----

// Two comms of each rank, each driven by a thread of its own; operations of the parent are in flight meanwhile, too.
std::string at_once(int rank, mxs_comm *comm) {
  Own shards, replicas;
  if (mxs_comm_split(&shards.comm, comm, rank / 2, 0, nullptr) != MXS_OK) return error_of("split");
  if (mxs_comm_split(&replicas.comm, comm, rank % 2, 0, nullptr) != MXS_OK) return error_of("split");
  const std::vector<int> row = members_where(4, [&](int other) { return other / 2 == rank / 2; });
  const std::vector<int> column = members_where(4, [&](int other) { return other % 2 == rank % 2; });
  std::string first, second;
  std::thread thread([&] {
    for (int turn = 0; turn < 20 && first.empty(); ++turn) first = works(shards.comm, rank % 2, row);
  });
  for (int turn = 0; turn < 30 && second.empty(); ++turn) second = works(replicas.comm, rank / 2, column);
  thread.join();
  return first.empty() ? second : first;
}

bool used_at_once(const char *transport) {
  ProcessOptions options;
  options.transport = transport;
  return good(run_processes(4, at_once, options));
}

void two_comms_work_at_once_in_two_threads(void **) {
  assert_true(good(run_world(4, at_once)));
  assert_true(used_at_once(nullptr));
  if (has_transport("ucx")) assert_true(used_at_once("ucx"));
}

// ---- failures ----

std::string bad_arguments(int rank, mxs_comm *comm) {
  Own own;
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  std::string complaint = expect(mxs_comm_split(&own.comm, nullptr, 0, 0, nullptr), MXS_INVALID_ARGUMENT, {"parent"});
  // One rank is wrong: all are told, and all go on.
  const bool wrong = rank == rank_count_of(comm) - 1;
  const std::string who = wrong ? "" : words("rank %d", rank_count_of(comm) - 1);
  if (complaint.empty())
    complaint = expect(mxs_comm_split(&own.comm, comm, wrong ? -2 : 0, 0, nullptr), MXS_INVALID_ARGUMENT,
                       {"color is -2", who});
  if (complaint.empty())
    complaint = expect(mxs_comm_split(wrong ? nullptr : &own.comm, comm, 0, 0, nullptr), MXS_INVALID_ARGUMENT,
                       {"comm is NULL", who});
  options.size = wrong ? 3 : sizeof options;
  if (complaint.empty())
    complaint = expect(mxs_comm_split(&own.comm, comm, 0, 0, &options), MXS_INVALID_ARGUMENT, {"options.size", who});
  options.size = sizeof options;
  options.thread_count = wrong ? -1 : 0;
  if (complaint.empty())
    complaint = expect(mxs_comm_split(&own.comm, comm, 0, 0, &options), MXS_INVALID_ARGUMENT, {"thread_count", who});
  options.thread_count = 0;
  mxs_bootstrap bootstrap = MXS_BOOTSTRAP_INIT;
  options.bootstrap = wrong ? &bootstrap : nullptr;
  if (complaint.empty())
    complaint = expect(mxs_comm_split(&own.comm, comm, 0, 0, &options), MXS_INVALID_ARGUMENT, {"bootstrap", who});
  if (own.comm) return "there is a comm";
  return complaint.empty() ? split_and_use(comm, rank, rank_count_of(comm), odd_and_even) : complaint;
}

void what_one_rank_may_not_ask_all_are_refused(void **) {
  for (const int rank_count : {1, 2, 4}) assert_true(good(run_world(rank_count, bad_arguments)));
}

// The group {1, 3} can't agree on a transport; {0, 2} has its comm, and the parent goes on.
std::string one_group_fails(int rank, mxs_comm *comm) {
  Own own;
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.transport = rank == 3 ? "loopback" : rank == 1 ? "shm" : nullptr;
  const mxs_status status = mxs_comm_split(&own.comm, comm, rank % 2, 0, &options);
  std::string complaint;
  if (rank % 2) complaint = expect(status, MXS_MISMATCH, {"transport"});
  else if (status != MXS_OK) complaint = error_of("split");
  else complaint = works(own.comm, rank / 2, {0, 2});
  if (rank % 2 && own.comm) return "there is a comm";
  // An unknown name: refused in its group, too.
  options.transport = rank == 0 ? "pigeon" : nullptr;
  Own second;
  if (complaint.empty() && rank % 2 == 0)
    complaint = expect(mxs_comm_split(&second.comm, comm, 0, 0, &options), MXS_INVALID_ARGUMENT, {"pigeon"});
  else if (complaint.empty() && mxs_comm_split(&second.comm, comm, 1, 0, &options) != MXS_OK)
    complaint = error_of("second split");
  return complaint.empty() ? split_and_use(comm, rank, 4, quarters) : complaint;
}

void a_group_that_fails_leaves_the_others_alone(void **) { assert_true(good(run_world(4, one_group_fails))); }

std::string somebody_never_comes(int rank, mxs_comm *comm) {
  Own own;
  if (rank == 1) return "";
  return expect(mxs_comm_split(&own.comm, comm, 0, 0, nullptr), MXS_TIMED_OUT, {"rank 1"});
}

bool never_comes() {
  mxs::test::WorldOptions options;
  options.comm_timeout_seconds = 0.5;
  // Rank 1 leaves in good order only after the others have given up.
  std::atomic<int> done{0};
  return good(run_world(3, [&](int rank, mxs_comm *comm) {
    const std::string complaint = somebody_never_comes(rank, comm);
    if (rank != 1) done.fetch_add(1);
    while (rank == 1 && done.load() < 2) usleep(10'000);
    return complaint;
  }, options));
}

void a_rank_that_never_comes_is_named_at_the_deadline(void **) { assert_true(never_comes()); }

// One rank would wait for ever, the others give up at once: it ends with them.
std::string deadlines_far_apart(int rank, mxs_comm *comm) {
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.timeout_ns = rank == 1 ? UINT64_MAX : 1;
  mxs_comm *split = nullptr;
  const mxs_status status = mxs_comm_split(&split, comm, 0, 0, &options);
  if (status == MXS_OK) return mxs_comm_destroy(&split), "a comm was made within a nanosecond";
  return split ? "a comm beside a failure" : "";
}

void nobody_waits_for_ranks_that_have_given_up(void **) { assert_true(good(run_processes(4, deadlines_far_apart))); }

std::string failed_parent(int, mxs_comm *comm) {
  Own own;
  mxs_comm_abort(comm, "enough");
  return expect(mxs_comm_split(&own.comm, comm, 0, 0, nullptr), MXS_ABORTED, {"enough"});
}

void a_failed_parent_is_not_split(void **) { assert_true(good(run_world(3, failed_parent))); }

// Rank 3's half is aborted there: rank 2 hears why, the other half and the world never do.
std::string abort_half(int rank, mxs_comm *comm) {
  Own half;
  if (mxs_comm_split(&half.comm, comm, rank / 2, 0, nullptr) != MXS_OK) return error_of("split");
  std::string complaint;
  if (rank == 3) mxs_comm_abort(half.comm, "no more of this half");
  if (rank == 2) complaint = expect(mxs_comm_barrier(half.comm, nullptr), MXS_ABORTED, {"rank 1", "no more of this"});
  if (rank < 2) complaint = works(half.comm, rank, {0, 1});
  if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("the world");
  if (complaint.empty() && rank < 2) complaint = works(half.comm, rank, {0, 1});
  return complaint.empty() ? split_and_use(comm, rank, 4, odd_and_even) : complaint;
}

bool halves_are_aborted(const char *transport) {
  ProcessOptions options;
  options.transport = transport;
  return good(run_processes(4, abort_half, options));
}

void a_failure_reaches_the_ranks_of_its_comm_only(void **) {
  assert_true(good(run_world(4, abort_half)));
  assert_true(halves_are_aborted(nullptr));
  // No shared memory tells here, but the store.
  if (has_transport("ucx")) assert_true(halves_are_aborted("ucx"));
}

// The world fails, its halves live on.
std::string abort_world(int rank, mxs_comm *comm) {
  Own half;
  if (mxs_comm_split(&half.comm, comm, rank / 2, 0, nullptr) != MXS_OK) return error_of("split");
  if (rank == 1) mxs_comm_abort(comm, "the world is over");
  std::string complaint = expect(mxs_comm_barrier(comm, nullptr), MXS_ABORTED, {"the world is over"});
  const int first = rank - rank % 2;
  for (int turn = 0; turn < 3 && complaint.empty(); ++turn) complaint = works(half.comm, rank % 2, {first, first + 1});
  return complaint;
}

void a_failure_of_the_parent_leaves_its_children_alone(void **) {
  assert_true(good(run_world(4, abort_world)));
  ProcessOptions options;
  assert_true(good(run_processes(4, abort_world, options)));
  options.transport = "ucx";
  if (has_transport("ucx")) assert_true(good(run_processes(4, abort_world, options)));
}

// Rank 3 is killed: its half is told within seconds, the other half goes on, whatever joins them.
bool killed(const char *transport) {
  ProcessOptions options;
  options.transport = transport;
  options.may_die = 3;
  return good(run_processes_bare(4, [=](int rank) -> std::string {
    mxs_comm_options comm_options = MXS_COMM_OPTIONS_INIT;
    comm_options.transport = transport;
    Own world, half;
    if (mxs_comm_create(&world.comm, &comm_options) != MXS_OK) return error_of("create");
    if (mxs_comm_split(&half.comm, world.comm, rank / 2, 0, nullptr) != MXS_OK) return error_of("split");
    if (mxs_comm_destroy(&world.comm) != MXS_OK) return error_of("destroy");
    if (rank == 3) {
      usleep(200'000);
      raise(SIGKILL);
    }
    if (rank == 2) return expect(mxs_comm_barrier(half.comm, nullptr), MXS_PEER_FAILED, {"rank 1"});
    for (int turn = 0; turn < 20; ++turn) {
      const std::string complaint = works(half.comm, rank, {0, 1});
      if (!complaint.empty()) return complaint;
      usleep(50'000);
    }
    return "";
  }, options));
}

void a_death_reaches_the_ranks_of_its_comms_only(void **) {
  assert_true(killed(nullptr));
  if (has_transport("ucx")) assert_true(killed("ucx"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(threads_split_into_groups_of_every_shape),
      cmocka_unit_test(processes_split_over_shm),
      cmocka_unit_test(processes_split_over_ucx),
      cmocka_unit_test(groups_take_the_transports_that_they_need),
      cmocka_unit_test(ranks_are_ordered_by_key_and_then_by_rank),
      cmocka_unit_test(a_split_can_be_split_and_outlives_its_parent),
      cmocka_unit_test(the_world_may_be_destroyed_first),
      cmocka_unit_test(many_splits_leave_nothing_behind),
      cmocka_unit_test(splits_over_ucx_leave_no_files),
      cmocka_unit_test(two_comms_work_at_once_in_two_threads),
      cmocka_unit_test(what_one_rank_may_not_ask_all_are_refused),
      cmocka_unit_test(a_group_that_fails_leaves_the_others_alone),
      cmocka_unit_test(a_rank_that_never_comes_is_named_at_the_deadline),
      cmocka_unit_test(nobody_waits_for_ranks_that_have_given_up),
      cmocka_unit_test(a_failed_parent_is_not_split),
      cmocka_unit_test(a_failure_reaches_the_ranks_of_its_comm_only),
      cmocka_unit_test(a_failure_of_the_parent_leaves_its_children_alone),
      cmocka_unit_test(a_death_reaches_the_ranks_of_its_comms_only),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
