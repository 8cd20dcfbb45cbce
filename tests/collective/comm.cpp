// SPDX-License-Identifier: Apache-2.0
// Comms of threads: worlds, agreements, failures, and what bad input gets.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "matrixshard/collective.h"
#include "matrixshard/comm.h"
#include "support/complaints.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using mxs::test::Body;
using mxs::test::error_of;
using mxs::test::expect;
using mxs::test::good;
using mxs::test::run_world;
using mxs::test::ThreadBootstrap;
using mxs::test::world_sizes;
using mxs::test::WorldOptions;

namespace {

bool good_in_all_worlds(const Body &body, const WorldOptions &options = {}) {
  for (const int rank_count : world_sizes)
    if (!good(run_world(rank_count, body, options))) return false;
  return true;
}

// ---- what a comm is ----

std::string query_agrees(int rank, mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  if (mxs_comm_query(comm, &info) != MXS_OK) return error_of("query");
  if (info.rank != rank || info.local_rank != rank) return "rank is wrong";
  if (info.node != 0 || info.node_count != 1 || info.local_rank_count != info.rank_count) return "node is wrong";
  if (info.thread_count != 1) return "thread_count is wrong";
  if (std::strcmp(info.bootstrap, "callbacks") != 0) return "bootstrap is wrong";
  const char *transports = info.rank_count == 1 ? "none" : "loopback";
  if (std::strcmp(info.transports, transports) != 0) return std::string("transports is ") + info.transports;
  mxs_topology *topology = nullptr;
  if (mxs_comm_topology(comm, &topology) != MXS_OK) return error_of("topology");
  const bool fits = mxs_topology_rank_count(topology) == info.rank_count && mxs_topology_node_count(topology) == 1;
  mxs_topology_destroy(&topology);
  return fits ? "" : "topology is wrong";
}

void a_comm_of_threads_knows_where_it_is(void **) { assert_true(good_in_all_worlds(query_agrees)); }

// ---- agreements ----

// Nobody leaves a barrier before everybody has come: each rank counts up before it.
bool barriers_hold() {
  for (const int rank_count : world_sizes) {
    std::atomic<int> come{0};
    const std::string complaint = run_world(rank_count, [&](int, mxs_comm *comm) -> std::string {
      for (int turn = 1; turn <= 200; ++turn) {
        come.fetch_add(1);
        if (mxs_comm_barrier(comm, nullptr) != MXS_OK) return error_of("barrier");
        if (come.load() < turn * rank_count) return "left barrier " + std::to_string(turn) + " too early";
        if (come.load() > turn * rank_count + rank_count - 1) return "a rank is two barriers ahead";
      }
      return "";
    });
    if (!good(complaint)) return false;
  }
  return true;
}

void nobody_leaves_a_barrier_before_all_have_come(void **) { assert_true(barriers_hold()); }

// In rank order, so the bits are those of a plain loop, though these terms don't add exactly.
double term(int rank, uint64_t i, int turn) { return 0.1 * (rank + 1) + 1e17 * (rank % 3 - 1) + 1.0 / (i + 3) + turn; }

std::string sums_in_rank_order(int rank, mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  for (const uint64_t count : {1, 2, 7, 64})
    for (int turn = 0; turn < 20; ++turn) {
      std::vector<double> values(count + 1, -77.0);
      for (uint64_t i = 0; i < count; ++i) values[i] = term(rank, i, turn);
      if (mxs_comm_sum(comm, values.data(), count, nullptr) != MXS_OK) return error_of("sum");
      for (uint64_t i = 0; i < count; ++i) {
        double expected = term(0, i, turn);
        for (int other = 1; other < info.rank_count; ++other) expected += term(other, i, turn);
        if (std::memcmp(&expected, &values[i], sizeof expected) != 0)
          return "value " + std::to_string(i) + " of " + std::to_string(count) + " is wrong";
      }
      if (values[count] != -77.0) return "wrote past the end";
    }
  return "";
}

void sums_have_the_bits_of_a_loop_in_rank_order(void **) { assert_true(good_in_all_worlds(sums_in_rank_order)); }

// Integers beyond what a double can hold, and beyond 64 bits: they wrap around.
std::string words_are_summed(int rank, mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  const auto word = [](int of, uint64_t i) { return static_cast<int64_t>((i + 1) * 0x4000000000000001u - of * 3u); };
  for (const uint64_t count : {1, 41, 64}) {
    std::vector<int64_t> words(count + 1, -77);
    for (uint64_t i = 0; i < count; ++i) words[i] = word(rank, i);
    if (mxs_comm_sum_words(comm, words.data(), count, nullptr) != MXS_OK) return error_of("sum");
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t expected = 0;
      for (int other = 0; other < info.rank_count; ++other) expected += static_cast<uint64_t>(word(other, i));
      if (words[i] != static_cast<int64_t>(expected)) return "word " + std::to_string(i) + " is wrong";
    }
    if (words[count] != -77) return "wrote past the end";
  }
  return "";
}

void words_are_summed_exactly(void **) { assert_true(good_in_all_worlds(words_are_summed)); }

std::string stats_count(int, mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  double value = 1;
  mxs_comm_phase(comm, MXS_PHASE_STEP);
  for (int turn = 0; turn < 3; ++turn) mxs_comm_sum(comm, &value, 1, nullptr);
  mxs_comm_phase(comm, MXS_PHASE_OTHER);
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  if (mxs_comm_query_stats(comm, &stats) != MXS_OK) return error_of("stats");
  const mxs_counter &counter = stats.counters[MXS_AGREE][MXS_PHASE_STEP];
  if (counter.calls != 3) return "calls is " + std::to_string(counter.calls);
  if (counter.bytes_out != 24u * static_cast<unsigned>(info.rank_count - 1)) return "bytes_out is wrong";
  if (stats.counters[MXS_AGREE][MXS_PHASE_OTHER].calls != 0) return "counted to the wrong phase";
  mxs_comm_reset_stats(comm);
  mxs_comm_query_stats(comm, &stats);
  return stats.counters[MXS_AGREE][MXS_PHASE_STEP].calls == 0 ? "" : "reset left something";
}

void agreements_are_counted_by_phase(void **) { assert_true(good_in_all_worlds(stats_count)); }

// ---- memory ----

std::string allocates(int, mxs_comm *comm) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4097}, uint64_t{3} << 20}) {
    void *memory = nullptr;
    if (mxs_comm_allocate(comm, bytes, MXS_HOST, &memory) != MXS_OK) return error_of("allocate");
    if (reinterpret_cast<uintptr_t>(memory) % (2 << 20) != 0) return "not on a 2 MiB border";
    auto *begin = static_cast<unsigned char *>(memory);
    for (uint64_t i = 0; i < bytes; ++i)
      if (begin[i] != 0) return "not zero";
    std::memset(memory, 0xa5, bytes);
    int local = 0;
    std::string complaint = expect(mxs_comm_free(comm, &local), MXS_INVALID_ARGUMENT, {"mxs_comm_allocate"});
    mxs_comm *handle = comm;
    if (complaint.empty()) complaint = expect(mxs_comm_destroy(&handle), MXS_HELD, {"1 buffers"});
    if (complaint.empty() && handle != comm) complaint = "a destroy that failed changed its argument";
    if (complaint.empty() && mxs_comm_free(comm, memory) != MXS_OK) complaint = error_of("free");
    if (!complaint.empty()) return complaint;
  }
  return "";
}

void shared_memory_is_zero_and_aligned_and_held(void **) { assert_true(good_in_all_worlds(allocates)); }

std::string different_sizes_are_found(int rank, mxs_comm *comm) {
  void *memory = &comm;
  std::string complaint = expect(mxs_comm_allocate(comm, rank == 2 ? 100 : 200, MXS_HOST, &memory), MXS_MISMATCH,
                                 {"rank 2", "mxs_comm_allocate"});
  if (complaint.empty() && memory != &comm) complaint = "an output changed on failure";
  // The comm is usable after that.
  if (complaint.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) complaint = error_of("barrier");
  return complaint;
}

void a_rank_that_allocates_another_size_is_named_on_all(void **) {
  assert_true(good(run_world(4, different_sizes_are_found)));
}

// ---- failures ----

bool abort_wakes() {
  for (const int rank_count : {1, 2, 4, 8}) {
    const std::string complaint = run_world(rank_count, [&](int rank, mxs_comm *comm) -> std::string {
      if (rank == rank_count - 1) {
        // From a thread of its own, while the others wait.
        std::thread([&] { mxs_comm_abort(comm, "enough of it"); }).join();
        return expect(mxs_comm_barrier(comm, nullptr), MXS_ABORTED, {"enough of it"});
      }
      const std::string first = expect(mxs_comm_barrier(comm, nullptr), MXS_ABORTED, {"enough of it", "rank"});
      if (!first.empty()) return first;
      return expect(mxs_comm_barrier(comm, nullptr), MXS_ABORTED, {"enough of it"});  // kept
    });
    if (!good(complaint)) return false;
  }
  return true;
}

void an_abort_wakes_all_ranks_with_its_reason(void **) { assert_true(abort_wakes()); }

bool own_thread_is_woken() {
  return good(run_world(2, [](int rank, mxs_comm *comm) -> std::string {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (rank == 0) mxs_comm_abort(comm, "stop");
    });
    // A barrier may complete before the abort comes; one is ended by it.
    mxs_status status = MXS_OK;
    while (status == MXS_OK) status = mxs_comm_barrier(comm, nullptr);
    other.join();
    return expect(status, MXS_ABORTED, {"stop"});
  }));
}

void an_abort_from_another_thread_wakes_its_own_rank(void **) { assert_true(own_thread_is_woken()); }

std::string misses_rank_1(int rank, mxs_comm *comm, std::atomic<int> *given_up) {
  if (rank == 1) {
    // Comes to nothing until the others have given up; it hears of that.
    while (given_up->load() < 2) std::this_thread::yield();
    return expect(mxs_comm_barrier(comm, nullptr), MXS_TIMED_OUT, {"rank 1"});
  }
  mxs_call call = MXS_CALL_INIT;
  call.timeout_ns = 400'000'000;
  const mxs_status status = mxs_comm_barrier(comm, &call);
  const std::string complaint = expect(status, MXS_TIMED_OUT, {"waiting for rank 1"});
  given_up->fetch_add(1);
  return complaint;
}

bool absence_is_named() {
  std::atomic<int> given_up{0};
  return good(run_world(3, [&](int rank, mxs_comm *comm) { return misses_rank_1(rank, comm, &given_up); }));
}

void a_rank_that_never_comes_is_named_at_the_deadline(void **) { assert_true(absence_is_named()); }

std::string mixes_calls(int rank, mxs_comm *comm) {
  double values[2] = {1, 2};
  const mxs_status status =
      rank == 1 ? mxs_comm_sum(comm, values, 2, nullptr) : mxs_comm_barrier(comm, nullptr);
  std::string complaint = expect(status, MXS_MISMATCH);
  if (complaint.empty()) complaint = expect(mxs_comm_barrier(comm, nullptr), MXS_MISMATCH);
  return complaint;
}

void ranks_in_different_calls_get_an_error_not_a_hang(void **) { assert_true(good(run_world(2, mixes_calls))); }

bool create_waits_with_a_deadline() {
  ThreadBootstrap bootstrap(2);  // rank 1 never comes
  const mxs_bootstrap callbacks = bootstrap.of(0);
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.bootstrap = &callbacks;
  options.timeout_ns = 300'000'000;
  mxs_comm *comm = nullptr;
  const mxs_status status = mxs_comm_create(&comm, &options);
  return good(expect(status, MXS_TIMED_OUT, {"rank 0 of 2"})) && comm == nullptr && bootstrap.requests_alive() == 0;
}

void create_gives_up_at_its_deadline(void **) { assert_true(create_waits_with_a_deadline()); }

// Every rank gets the error of the one that passed nonsense, so nobody hangs.
bool bad_options_are_everybodys() {
  ThreadBootstrap bootstrap(3);
  std::vector<std::string> complaints(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      const mxs_bootstrap callbacks = bootstrap.of(rank);
      mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
      options.bootstrap = &callbacks;
      options.timeout_ns = 60'000'000'000;
      options.transport = rank == 1 ? "pigeon" : nullptr;
      mxs_comm *comm = nullptr;
      complaints[static_cast<size_t>(rank)] =
          expect(mxs_comm_create(&comm, &options), MXS_INVALID_ARGUMENT, {"pigeon", "loopback"});
      if (comm) complaints[static_cast<size_t>(rank)] = "there is a comm";
    });
  for (std::thread &thread : threads) thread.join();
  for (const std::string &complaint : complaints)
    if (!good(complaint)) return false;
  return true;
}

void nonsense_on_one_rank_is_an_error_on_all(void **) { assert_true(bad_options_are_everybodys()); }

// ---- threads of one family ----

struct Pair {
  mxs_layout *layout = nullptr;
  mxs_collective *collectives[2] = {nullptr, nullptr};
  ~Pair() {
    for (mxs_collective *&collective : collectives) mxs_collective_destroy(&collective);
    mxs_layout_destroy(&layout);
  }
};

// The family's thread starts gathers in turns; another waits for each, a third one tests and reads statistics.
std::string waited_for_elsewhere(int rank, mxs_comm *comm, const char *algorithm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  constexpr uint64_t bytes = 40'000;
  constexpr int turns = 60;
  Pair pair;
  if (mxs_layout_create_even(&pair.layout, bytes, 4, info.rank_count) != MXS_OK) return error_of("layout");
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.kind = MXS_GATHER;
  options.layout = pair.layout;
  options.algorithm = algorithm;
  void *targets[2] = {nullptr, nullptr};
  for (int i = 0; i < 2; ++i) {
    if (mxs_collective_create(&pair.collectives[i], comm, &options) != MXS_OK) return error_of("create");
    if (mxs_comm_allocate(comm, bytes, MXS_HOST, &targets[i]) != MXS_OK) return error_of("allocate");
  }
  std::atomic<mxs_request> started{0};
  std::atomic<bool> over{false};
  std::string waiter_says;
  std::thread waiter([&] {
    for (mxs_request next = 1; next <= turns && waiter_says.empty();) {
      if (started.load() < next) {
        if (over.load()) return;
        std::this_thread::yield();
        continue;
      }
      if (mxs_comm_wait(comm, next, nullptr) != MXS_OK) waiter_says = error_of("comm wait");
      if (mxs_comm_test(comm, next) != MXS_OK) waiter_says = "waited for, but not complete";
      ++next;
    }
  });
  std::thread looker([&] {
    while (!over.load()) {
      mxs_comm_stats stats = MXS_COMM_STATS_INIT;
      mxs_comm_query_stats(comm, &stats);
      mxs_comm_test(comm, started.load());
      std::this_thread::yield();
    }
  });
  std::string complaint;
  for (int turn = 0; turn < turns && complaint.empty(); ++turn) {
    mxs_collective *collective = pair.collectives[turn % 2];
    if (turn >= 2 && mxs_collective_wait(collective, nullptr) != MXS_OK) complaint = error_of("wait");
    mxs_call call = MXS_CALL_INIT;
    mxs_request request = 0;
    call.request_out = &request;
    if (complaint.empty() && mxs_collective_start(collective, nullptr, targets[turn % 2], &call) != MXS_OK)
      complaint = error_of("start");
    else
      started.store(request);
  }
  waiter.join();
  over.store(true);
  looker.join();
  for (mxs_collective *collective : pair.collectives)
    if (complaint.empty() && mxs_collective_wait(collective, nullptr) != MXS_OK) complaint = error_of("last wait");
  if (complaint.empty()) complaint = waiter_says;
  for (void *target : targets) mxs_comm_free(comm, target);
  (void)rank;
  return complaint;
}

std::string is_held_by_a_collective(int, mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  Pair pair;
  if (mxs_layout_create_even(&pair.layout, 1000, 4, info.rank_count) != MXS_OK) return error_of("layout");
  mxs_collective_options options = MXS_COLLECTIVE_OPTIONS_INIT;
  options.layout = pair.layout;
  if (mxs_collective_create(&pair.collectives[0], comm, &options) != MXS_OK) return error_of("create");
  mxs_comm *handle = comm;
  const std::string complaint = expect(mxs_comm_destroy(&handle), MXS_HELD, {"1 units, collectives"});
  return handle == comm ? complaint : "a destroy that failed changed its argument";
}

void a_comm_is_not_destroyed_under_its_collective(void **) {
  assert_true(good_in_all_worlds(is_held_by_a_collective));
}

void other_threads_may_wait_and_test_at_any_time(void **) {
  for (const char *algorithm : {"flat", "fanout"})
    for (const int rank_count : {1, 2, 3})
      assert_true(good(run_world(rank_count, [=](int rank, mxs_comm *comm) {
        return rank_count == 1 && std::strcmp(algorithm, "fanout") == 0 ? ""
                                                                        : waited_for_elsewhere(rank, comm, algorithm);
      })));
}

// ---- several comms ----

std::string two_comms(int rank, mxs_comm *comm, ThreadBootstrap &bootstrap, int rank_count) {
  const mxs_bootstrap callbacks = bootstrap.of(rank);
  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.bootstrap = &callbacks;
  options.thread_count = 1;
  mxs_comm *second = nullptr;
  if (mxs_comm_create(&second, &options) != MXS_OK) return error_of("second create");
  std::string complaint;
  for (int turn = 0; turn < 50 && complaint.empty(); ++turn) {
    double a = rank + turn, b = 2 * rank;
    if (mxs_comm_sum(comm, &a, 1, nullptr) != MXS_OK || mxs_comm_sum(second, &b, 1, nullptr) != MXS_OK)
      complaint = error_of("sum");
    const double ranks = rank_count * (rank_count - 1) / 2.0;
    if (a != ranks + turn * rank_count || b != 2 * ranks) complaint = "sums got mixed";
  }
  // Failing one leaves the other alone.
  if (complaint.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) complaint = error_of("barrier");
  if (complaint.empty() && rank == 0) mxs_comm_abort(second, "only this one");
  if (complaint.empty()) complaint = expect(mxs_comm_barrier(second, nullptr), MXS_ABORTED);
  if (complaint.empty() && mxs_comm_barrier(comm, nullptr) != MXS_OK) complaint = error_of("barrier");
  if (mxs_comm_destroy(&second) != MXS_OK) complaint = error_of("destroy");
  return complaint;
}

bool two_at_once() {
  for (const int rank_count : {1, 2, 4}) {
    ThreadBootstrap bootstrap(rank_count);
    if (!good(run_world(rank_count, [&](int rank, mxs_comm *comm) {
          return two_comms(rank, comm, bootstrap, rank_count);
        })))
      return false;
  }
  return true;
}

void two_comms_at_once_do_not_disturb_each_other(void **) { assert_true(two_at_once()); }

// ---- bad input ----

void nulls_and_wrong_sizes_are_refused(void **) {
  mxs_comm *none = nullptr;
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_stats stats = MXS_COMM_STATS_INIT;
  mxs_topology *topology = nullptr;
  void *memory = nullptr;
  double value = 0;
  assert_int_equal(mxs_comm_create(nullptr, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_destroy(nullptr), MXS_OK);
  assert_int_equal(mxs_comm_destroy(&none), MXS_OK);
  assert_int_equal(mxs_comm_query(nullptr, &info), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_query_stats(nullptr, &stats), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_topology(nullptr, &topology), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_barrier(nullptr, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_sum(nullptr, &value, 1, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_test(nullptr, 0), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_wait(nullptr, 0, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_abort(nullptr, nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_phase(nullptr, 0), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_reset_stats(nullptr), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_allocate(nullptr, 1, MXS_HOST, &memory), MXS_INVALID_ARGUMENT);
  assert_int_equal(mxs_comm_free(nullptr, nullptr), MXS_INVALID_ARGUMENT);

  mxs_comm_options options = MXS_COMM_OPTIONS_INIT;
  options.size = 3;
  assert_int_equal(mxs_comm_create(&none, &options), MXS_INVALID_ARGUMENT);
  options.size = sizeof options;
  options.thread_count = -1;
  assert_int_equal(mxs_comm_create(&none, &options), MXS_INVALID_ARGUMENT);
  mxs_bootstrap bootstrap = MXS_BOOTSTRAP_INIT;
  options.thread_count = 0;
  options.bootstrap = &bootstrap;
  assert_int_equal(mxs_comm_create(&none, &options), MXS_INVALID_ARGUMENT);  // a world of 0
  bootstrap.rank_count = 2;
  bootstrap.rank = 2;
  assert_int_equal(mxs_comm_create(&none, &options), MXS_INVALID_ARGUMENT);  // outside of it
  bootstrap.rank = 0;
  assert_int_equal(mxs_comm_create(&none, &options), MXS_INVALID_ARGUMENT);  // no functions
  bootstrap.size = 1;
  assert_int_equal(mxs_comm_create(&none, &options), MXS_INVALID_ARGUMENT);
  assert_null(none);
}

std::string refuses_nonsense(int, mxs_comm *comm) {
  void *memory = nullptr;
  double values[65] = {};
  int64_t words[65] = {};
  mxs_call call = MXS_CALL_INIT, streamed = MXS_CALL_INIT, wrong = MXS_CALL_INIT;
  streamed.stream = &call;
  wrong.size = 5;
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  info.size = 2;
  const struct {
    const char *what;
    mxs_status got, wanted;
  } cases[] = {
      {"sum of NULL", mxs_comm_sum(comm, nullptr, 1, &call), MXS_INVALID_ARGUMENT},
      {"sum of 0", mxs_comm_sum(comm, values, 0, &call), MXS_INVALID_ARGUMENT},
      {"sum of 65", mxs_comm_sum(comm, values, 65, &call), MXS_INVALID_ARGUMENT},
      {"sum of 2^63", mxs_comm_sum(comm, values, uint64_t{1} << 63, &call), MXS_INVALID_ARGUMENT},
      {"words of NULL", mxs_comm_sum_words(comm, nullptr, 1, &call), MXS_INVALID_ARGUMENT},
      {"0 words", mxs_comm_sum_words(comm, words, 0, &call), MXS_INVALID_ARGUMENT},
      {"65 words", mxs_comm_sum_words(comm, words, 65, &call), MXS_INVALID_ARGUMENT},
      {"words of no comm", mxs_comm_sum_words(nullptr, words, 1, &call), MXS_INVALID_ARGUMENT},
      {"a stream", mxs_comm_barrier(comm, &streamed), MXS_INVALID_ARGUMENT},
      {"a wrong call size", mxs_comm_barrier(comm, &wrong), MXS_INVALID_ARGUMENT},
      {"a wrong info size", mxs_comm_query(comm, &info), MXS_INVALID_ARGUMENT},
      {"info NULL", mxs_comm_query(comm, nullptr), MXS_INVALID_ARGUMENT},
      {"stats NULL", mxs_comm_query_stats(comm, nullptr), MXS_INVALID_ARGUMENT},
      {"topology NULL", mxs_comm_topology(comm, nullptr), MXS_INVALID_ARGUMENT},
      {"phase -1", mxs_comm_phase(comm, -1), MXS_INVALID_ARGUMENT},
      {"phase 4", mxs_comm_phase(comm, 4), MXS_INVALID_ARGUMENT},
      {"a request of the future", mxs_comm_wait(comm, 99, &call), MXS_INVALID_ARGUMENT},
      {"a test of the future", mxs_comm_test(comm, 99), MXS_INVALID_ARGUMENT},
      {"request 0", mxs_comm_wait(comm, 0, &call), MXS_OK},
      {"test 0", mxs_comm_test(comm, 0), MXS_OK},
      {"allocate to NULL", mxs_comm_allocate(comm, 1, MXS_HOST, nullptr), MXS_INVALID_ARGUMENT},
      {"allocate 0", mxs_comm_allocate(comm, 0, MXS_HOST, &memory), MXS_INVALID_ARGUMENT},
      {"allocate 2^63", mxs_comm_allocate(comm, uint64_t{1} << 63, MXS_HOST, &memory), MXS_INVALID_ARGUMENT},
      {"allocate kind 7", mxs_comm_allocate(comm, 1, 7, &memory), MXS_INVALID_ARGUMENT},
      {"free NULL", mxs_comm_free(comm, nullptr), MXS_OK},
  };
  for (const auto &entry : cases)
    if (entry.got != entry.wanted) return std::string(entry.what) + " gives " + mxs_status_name(entry.got);
  if (memory) return "an output changed on failure";
  // Here there is a GPU or there is none.
  const mxs_status status = mxs_comm_allocate(comm, 1, MXS_CUDA, &memory);
  if (status == MXS_OK) return mxs_comm_free(comm, memory) == MXS_OK ? "" : "free of CUDA memory";
  if (memory) return "an output changed on failure";
  return status == MXS_NOT_BUILT || status == MXS_NO_DEVICE ? "" : std::string("CUDA gives ") + mxs_status_name(status);
}

void nonsense_to_a_living_comm_is_refused(void **) { assert_true(good_in_all_worlds(refuses_nonsense)); }

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_comm_of_threads_knows_where_it_is),
      cmocka_unit_test(nobody_leaves_a_barrier_before_all_have_come),
      cmocka_unit_test(sums_have_the_bits_of_a_loop_in_rank_order),
      cmocka_unit_test(words_are_summed_exactly),
      cmocka_unit_test(agreements_are_counted_by_phase),
      cmocka_unit_test(shared_memory_is_zero_and_aligned_and_held),
      cmocka_unit_test(a_rank_that_allocates_another_size_is_named_on_all),
      cmocka_unit_test(an_abort_wakes_all_ranks_with_its_reason),
      cmocka_unit_test(an_abort_from_another_thread_wakes_its_own_rank),
      cmocka_unit_test(a_rank_that_never_comes_is_named_at_the_deadline),
      cmocka_unit_test(ranks_in_different_calls_get_an_error_not_a_hang),
      cmocka_unit_test(create_gives_up_at_its_deadline),
      cmocka_unit_test(nonsense_on_one_rank_is_an_error_on_all),
      cmocka_unit_test(a_comm_is_not_destroyed_under_its_collective),
      cmocka_unit_test(other_threads_may_wait_and_test_at_any_time),
      cmocka_unit_test(two_comms_at_once_do_not_disturb_each_other),
      cmocka_unit_test(nulls_and_wrong_sizes_are_refused),
      cmocka_unit_test(nonsense_to_a_living_comm_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
