// SPDX-License-Identifier: Apache-2.0
// Ranks that call different things: an error on all of them that names two, never a hang, over every transport. The
// comm's deadline is a minute, and nothing but the mismatch may end it.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "cases.hpp"
#include "support/processes.hpp"
#include "support/transports.hpp"
#include "support/unit_model.hpp"
#include "support/world.hpp"

#include "support/cmocka_all.h"

using namespace mxs::test;

namespace {

// Two gathers between which no message is amiss: in each, one rank only sends, and to another one. And reduces alike.
struct Calls {
  TestLayout of_first{"all of rank 0", 1}, of_last{"all of the last rank", 1};
  OwnedCollective gather_first, gather_last, gather_twin, reduce_f32, reduce_bf16;
  std::vector<std::byte> memory[4];

  int rank_count = 0;

  std::string make_all(mxs_comm *comm, int its_rank_count) {
    rank_count = its_rank_count;
    of_first.add(0, 4096);
    of_last.add(rank_count - 1, 4096);
    Case each;
    each.layout = &of_first;
    if (make(&gather_first, comm, each, rank_count) != MXS_OK) return error_of("create");
    if (make(&gather_twin, comm, each, rank_count) != MXS_OK) return error_of("create");
    each.kind = MXS_REDUCE;
    if (make(&reduce_f32, comm, each, rank_count) != MXS_OK) return error_of("create");
    each.dtype = MXS_BF16;
    if (make(&reduce_bf16, comm, each, rank_count) != MXS_OK) return error_of("create");
    each.kind = MXS_GATHER;
    each.layout = &of_last;
    if (make(&gather_last, comm, each, rank_count) != MXS_OK) return error_of("create");
    for (std::vector<std::byte> &each_memory : memory) each_memory.resize(16384);
    return "";
  }

  // A start may find the comm failed already; the wait says the same.
  void start(const OwnedCollective &which, int slot) {
    mxs_collective_start(which.value, memory[slot].data(), memory[slot + 1].data(), nullptr);
  }
};

using Wrong = mxs_status (*)(int rank, mxs_comm *comm, Calls &calls);

mxs_status other_layout(int rank, mxs_comm *, Calls &calls) {
  const OwnedCollective &mine = rank == 0 ? calls.gather_first : calls.gather_last;
  calls.start(mine, 0);
  return mxs_collective_wait(mine.value, nullptr);
}

mxs_status other_dtype(int rank, mxs_comm *, Calls &calls) {
  const OwnedCollective &mine = rank == 0 ? calls.reduce_f32 : calls.reduce_bf16;
  calls.start(mine, 0);
  return mxs_collective_wait(mine.value, nullptr);
}

mxs_status other_kind(int rank, mxs_comm *, Calls &calls) {
  const OwnedCollective &mine = rank == 0 ? calls.gather_first : calls.reduce_f32;
  calls.start(mine, 0);
  return mxs_collective_wait(mine.value, nullptr);
}

// Equal in all that can be said of them: only who was created first tells.
mxs_status its_twin(int rank, mxs_comm *, Calls &calls) {
  const OwnedCollective &mine = rank == 0 ? calls.gather_first : calls.gather_twin;
  calls.start(mine, 0);
  return mxs_collective_wait(mine.value, nullptr);
}

// In memory that all ranks map, where no message goes.
mxs_status its_twin_in_memory(int rank, mxs_comm *comm, Calls &calls) {
  void *shared = nullptr;
  mxs_status status = mxs_comm_allocate(comm, 16384, MXS_HOST, &shared);
  if (status != MXS_OK) return status;
  const OwnedCollective &mine = rank == 0 ? calls.gather_first : calls.gather_twin;
  mxs_collective_start(mine.value, nullptr, shared, nullptr);
  mxs_collective_wait(mine.value, nullptr);
  mxs_comm_free(comm, shared);
  return mxs_comm_barrier(comm, nullptr);  // says what the wait said
}

// Each of these would take the other's bytes for an answer.
mxs_status sum_meets_create(int rank, mxs_comm *comm, Calls &calls) {
  int64_t word = 5;
  if (rank == 0) return mxs_comm_sum_words(comm, &word, 1, nullptr);
  OwnedCollective other;
  Case each;
  each.layout = &calls.of_first;
  return make(&other, comm, each, calls.rank_count);
}

mxs_status sum_meets_other_sum(int rank, mxs_comm *comm, Calls &) {
  int64_t words[2] = {5, 6};
  double values[2] = {5, 6};
  return rank == 0 ? mxs_comm_sum_words(comm, words, 2, nullptr) : mxs_comm_sum(comm, values, 2, nullptr);
}

mxs_status longer_sum(int rank, mxs_comm *comm, Calls &) {
  double values[3] = {5, 6, 7};
  return mxs_comm_sum(comm, values, rank == 0 ? 3 : 2, nullptr);
}

// Two units of one shape with one owner: their layouts are equal.
mxs_status other_unit(int rank, mxs_comm *comm, const char *algorithm, int gather) {
  Model model;
  for (int unit = 0; unit < 2; ++unit) model.add(unit ? "second" : "first", unit, {64, 64}).fixed_owner = 1;
  model.finish();
  Units units;
  mxs_unit_options options = MXS_UNIT_OPTIONS_INIT;
  options.algorithm = algorithm;
  options.gather = gather;
  if (!units.make(comm, model, &options).empty()) return MXS_INTERNAL;
  mxs_unit *unit = units.units[rank == 0 ? 0 : 1];
  mxs_status status = mxs_unit_gather(unit, nullptr);
  if (status == MXS_OK) status = mxs_unit_wait(unit, nullptr);
  return status == MXS_OK ? mxs_comm_barrier(comm, nullptr) : status;
}

mxs_status other_unit_chosen(int rank, mxs_comm *comm, Calls &) {
  return other_unit(rank, comm, nullptr, MXS_GATHER_BY_COPY);
}

mxs_status other_unit_flat(int rank, mxs_comm *comm, Calls &) {
  return other_unit(rank, comm, "flat", MXS_GATHER_BY_COPY);
}

mxs_status other_unit_by_reference(int rank, mxs_comm *comm, Calls &) {
  return other_unit(rank, comm, nullptr, MXS_GATHER_BY_REFERENCE);
}

mxs_status other_order(int rank, mxs_comm *, Calls &calls) {
  const OwnedCollective &first = rank == 0 ? calls.gather_first : calls.gather_last;
  const OwnedCollective &second = rank == 0 ? calls.gather_last : calls.gather_first;
  calls.start(first, 0);
  calls.start(second, 2);
  const mxs_status status = mxs_collective_wait(first.value, nullptr);
  return status == MXS_OK ? mxs_collective_wait(second.value, nullptr) : status;
}

// One more on rank 0, that is, skipped by the others.
mxs_status one_more(int rank, mxs_comm *comm, Calls &calls) {
  if (rank == 0) {
    calls.start(calls.reduce_f32, 0);
    const mxs_status status = mxs_collective_wait(calls.reduce_f32.value, nullptr);
    if (status != MXS_OK) return status;
  }
  return mxs_comm_barrier(comm, nullptr);
}

std::string run(int rank, int rank_count, mxs_comm *comm, Wrong wrong) {
  Calls calls;
  const std::string complaint = calls.make_all(comm, rank_count);
  if (!complaint.empty()) return complaint;
  // A rank that only sends may be through in good faith; it learns of it in its next call.
  mxs_status status = wrong(rank, comm, calls);
  if (status == MXS_OK) status = mxs_comm_barrier(comm, nullptr);
  return expect(status, MXS_MISMATCH, {"rank 0", "in the same order"});
}

bool found_over(const char *transport, Wrong wrong) {
  if (!has_transport(transport)) return true;
  ProcessOptions options;
  options.transport = transport;
  for (const int rank_count : {2, 3})
    if (!good(run_processes(rank_count, [&](int rank, mxs_comm *comm) { return run(rank, rank_count, comm, wrong); },
                            options)))
      return false;
  return true;
}

bool found_by_threads(Wrong wrong) {
  for (const int rank_count : {2, 3})
    if (!good(run_world(rank_count, [&](int rank, mxs_comm *comm) { return run(rank, rank_count, comm, wrong); })))
      return false;
  return true;
}

// Rank 0 waits in a gather for rank 1, which waits in the reduce before it for rank 2, which never comes.
std::string gives_up(int rank, mxs_comm *comm, std::atomic<int> *given_up) {
  TestLayout of_middle("all of rank 1", 1);
  of_middle.add(1, 4096);
  Case each;
  each.layout = &of_middle;
  each.algorithm = "flat";
  OwnedCollective gather, reduce;
  if (make(&gather, comm, each, 3) != MXS_OK) return error_of("create");
  each.kind = MXS_REDUCE;
  if (make(&reduce, comm, each, 3) != MXS_OK) return error_of("create");
  std::vector<std::byte> source(4096), sums(4096), whole(4096);
  if (rank == 2) {  // without a call until the others have given up
    while (given_up->load() < 2) usleep(10'000);
    return "";
  }
  if (mxs_collective_start(reduce.value, source.data(), sums.data(), nullptr) != MXS_OK) return error_of("start");
  mxs_call call = MXS_CALL_INIT;
  call.timeout_ns = 1'500'000'000;
  if (rank == 0) {
    if (mxs_collective_wait(reduce.value, nullptr) != MXS_OK) return error_of("wait");
    if (mxs_collective_start(gather.value, nullptr, whole.data(), nullptr) != MXS_OK) return error_of("start");
    const mxs_status status = mxs_collective_wait(gather.value, &call);
    given_up->fetch_add(1);
    return expect(status, MXS_TIMED_OUT,
                  {"waiting for rank 1", "rank 1 was in operation", "(reduce); rank 0 is in operation", "(gather)"});
  }
  const mxs_status status = mxs_collective_wait(reduce.value, nullptr);
  given_up->fetch_add(1);
  return expect(status, MXS_TIMED_OUT, {"rank 0"});
}

bool the_deadline_tells() {
  if (!has_transport("ucx")) return true;
  void *memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto *given_up = new (memory) std::atomic<int>(0);
  ProcessOptions options;
  options.transport = "ucx";
  const bool is_good = good(run_processes(3, [&](int rank, mxs_comm *comm) { return gives_up(rank, comm, given_up); },
                                          options));
  munmap(memory, 4096);
  return is_good;
}

template <Wrong wrong>
void is_found_over_ucx(void **) { assert_true(found_over("ucx", wrong)); }
template <Wrong wrong>
void is_found_over_shm(void **) { assert_true(found_over("shm", wrong)); }
template <Wrong wrong>
void is_found_by_threads(void **) { assert_true(found_by_threads(wrong)); }
void the_deadline_says_where_the_other_is(void **) { assert_true(the_deadline_tells()); }

template <Wrong wrong>
CMUnitTest over_ucx(const char *name) { return {name, is_found_over_ucx<wrong>, nullptr, nullptr, nullptr}; }
template <Wrong wrong>
CMUnitTest over_shm(const char *name) { return {name, is_found_over_shm<wrong>, nullptr, nullptr, nullptr}; }
template <Wrong wrong>
CMUnitTest by_threads(const char *name) { return {name, is_found_by_threads<wrong>, nullptr, nullptr, nullptr}; }

}  // namespace

// Processes first: a fork copies no threads.
int main() {
  const CMUnitTest tests[] = {
      over_ucx<other_layout>("another_layout_is_found_over_ucx"),
      over_ucx<other_unit_flat>("another_unit_of_equal_layout_is_found_over_ucx"),
      over_ucx<its_twin>("a_twin_of_equal_layout_is_found_over_ucx"),
      over_ucx<sum_meets_create>("a_sum_that_meets_a_create_is_found_over_ucx"),
      over_ucx<sum_meets_other_sum>("a_sum_that_meets_another_is_found_over_ucx"),
      over_ucx<longer_sum>("a_longer_sum_is_found_over_ucx"),
      over_ucx<other_dtype>("another_dtype_is_found_over_ucx"),
      over_ucx<other_kind>("another_kind_is_found_over_ucx"),
      over_ucx<other_order>("another_order_is_found_over_ucx"),
      over_ucx<one_more>("one_more_is_found_over_ucx"),
      over_shm<other_layout>("another_layout_is_found_over_shm"),
      over_shm<other_unit_by_reference>("another_unit_by_reference_is_found_over_shm"),
      over_shm<other_unit_flat>("another_unit_of_equal_layout_is_found_over_shm"),
      over_shm<other_unit_chosen>("another_unit_in_mapped_memory_is_found_over_shm"),
      over_shm<its_twin>("a_twin_of_equal_layout_is_found_over_shm"),
      over_shm<its_twin_in_memory>("a_twin_in_mapped_memory_is_found_over_shm"),
      over_shm<sum_meets_create>("a_sum_that_meets_a_create_is_found_over_shm"),
      over_shm<sum_meets_other_sum>("a_sum_that_meets_another_is_found_over_shm"),
      over_shm<longer_sum>("a_longer_sum_is_found_over_shm"),
      over_shm<other_dtype>("another_dtype_is_found_over_shm"),
      over_shm<other_kind>("another_kind_is_found_over_shm"),
      over_shm<other_order>("another_order_is_found_over_shm"),
      over_shm<one_more>("one_more_is_found_over_shm"),
      cmocka_unit_test(the_deadline_says_where_the_other_is),
      by_threads<other_layout>("another_layout_is_found_by_threads"),
      by_threads<other_unit_by_reference>("another_unit_by_reference_is_found_by_threads"),
      by_threads<other_unit_flat>("another_unit_of_equal_layout_is_found_by_threads"),
      by_threads<other_unit_chosen>("another_unit_in_mapped_memory_is_found_by_threads"),
      by_threads<its_twin>("a_twin_of_equal_layout_is_found_by_threads"),
      by_threads<its_twin_in_memory>("a_twin_in_mapped_memory_is_found_by_threads"),
      by_threads<sum_meets_create>("a_sum_that_meets_a_create_is_found_by_threads"),
      by_threads<sum_meets_other_sum>("a_sum_that_meets_another_is_found_by_threads"),
      by_threads<longer_sum>("a_longer_sum_is_found_by_threads"),
      by_threads<other_dtype>("another_dtype_is_found_by_threads"),
      by_threads<other_kind>("another_kind_is_found_by_threads"),
      by_threads<other_order>("another_order_is_found_by_threads"),
      by_threads<one_more>("one_more_is_found_by_threads"),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
