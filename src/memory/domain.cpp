// SPDX-License-Identifier: Apache-2.0
// What local ranks do with their control regions once these are mapped: claim work, post, wait.
#include "memory/domain.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdio>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "memory/control.hpp"

namespace mxs {

namespace {

// The words of SharedWork: 40 bits of sequence, 24 of count. 2^39 operations may lie between two uses of a slot.
constexpr int count_bits = 24;
constexpr uint64_t count_mask = (uint64_t{1} << count_bits) - 1;

constexpr uint64_t first_word(uint64_t sequence) { return sequence << count_bits; }
constexpr uint32_t count_of(uint64_t word) { return static_cast<uint32_t>(word & count_mask); }

// > 0: the word belongs to a later operation, < 0: to an earlier one.
constexpr int64_t lead(uint64_t word, uint64_t sequence) {
  return static_cast<int64_t>((word & ~count_mask) - first_word(sequence));
}

// Spinning beyond this gained nothing on a quiet machine; with more ranks than cores each turn of it is lost to the
// rank that is waited for (prototype, 4 ranks on 2 cores: 9.6 microseconds a round with 50 spins and 20 yields, 551
// with 20,000 spins).
constexpr int spins_with_cores = 1500, spins_when_crowded = 50, yields_when_crowded = 20;

}  // namespace

int Domain::local_rank_of(int rank) const {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found != ranks_.end() && *found == rank ? static_cast<int>(found - ranks_.begin()) : -1;
}

DomainControl &Domain::control(int local_rank) const {
  return *reinterpret_cast<DomainControl *>(control_.at(local_rank));
}

SharedCounter &Domain::counter(int local_rank, int index) const {
  assert(index >= 0 && index < counter_count);
  return control(local_rank).counters[index];
}

std::atomic<uint64_t> &Domain::parameter(int local_rank, uint64_t sequence, int index) const {
  assert(index >= 0 && index < parameter_count);
  return control(local_rank).parameters[sequence % operation_window][index];
}

SharedWork &Domain::work(uint64_t sequence) const { return control(0).works[sequence % operation_window]; }

uint32_t Domain::claim(uint64_t sequence, uint32_t count) {
  assert(count <= chunk_count_max);
  std::atomic<uint64_t> &claimed = work(sequence).claimed;
  uint64_t word = claimed.load(std::memory_order_acquire);
  while (true) {
    const int64_t ahead = lead(word, sequence);
    const uint32_t taken = ahead < 0 ? 0 : count_of(word);
    if (ahead > 0 || taken >= count) return count;
    if (claimed.compare_exchange_weak(word, first_word(sequence) + taken + 1, std::memory_order_acq_rel)) return taken;
  }
}

void Domain::finish(uint64_t sequence, uint32_t count) {
  std::atomic<uint64_t> &finished = work(sequence).finished;
  uint64_t word = finished.load(std::memory_order_relaxed), next = 0;
  do {
    assert(lead(word, sequence) <= 0);
    next = (lead(word, sequence) < 0 ? first_word(sequence) : word) + 1;
  } while (!finished.compare_exchange_weak(word, next, std::memory_order_acq_rel));
  if (count_of(next) == count) post();
}

bool Domain::finished(uint64_t sequence, uint32_t count) const {
  const uint64_t word = work(sequence).finished.load(std::memory_order_acquire);
  const int64_t ahead = lead(word, sequence);
  return count == 0 || ahead > 0 || (ahead == 0 && count_of(word) >= count);
}

void Domain::post() {
  note_core();
  DomainControl &shared = control(0);
  shared.event.fetch_add(1, std::memory_order_seq_cst);
  // A waiter counts itself before it compares the event word; so either it sees the new event, or it is seen here.
  if (shared.waiters.load(std::memory_order_seq_cst) != 0)
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&shared.event), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Domain::nudge() { control(0).event.fetch_add(1, std::memory_order_acq_rel); }

uint64_t Domain::event() const { return control(0).event.load(std::memory_order_seq_cst); }

void Domain::relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// A load of the thread's own memory where libc keeps it there (restartable sequences), else a vDSO call.
void Domain::note_core() {
  const int core = sched_getcpu() + 1;
  std::atomic<int32_t> &noted = control(local_rank_).core;
  if (noted.load(std::memory_order_relaxed) != core) noted.store(core, std::memory_order_relaxed);
}

bool Domain::shares_its_core() const {
  const int core = control(local_rank_).core.load(std::memory_order_relaxed);
  for (int local = 0; local < local_count_; local++)
    if (local != local_rank_ && core > 0 && control(local).core.load(std::memory_order_relaxed) == core) return true;
  return false;
}

// Ranks that are not bound may meet on one core, though there are enough, and a wake brings them together: it prefers
// the waker's core. Then whoever spins keeps the awaited one from running. mxs-perf gather -b 4K --layout k:2, 2 ranks
// on 2 cores that others use as well: 51 microseconds (the whole spin, then a sleep) without this look, 3.8 with it.
void Domain::pause(uint64_t seen, uint64_t at_most_ns) {
  note_core();
  bool crowded = crowded_;
  DomainControl &shared = control(0);
  const auto changed = [&] { return shared.event.load(std::memory_order_acquire) != static_cast<uint32_t>(seen); };
  for (int spin = 0; spin < spin_count_; spin++) {
    if (changed()) return;
    relax();
    if (spin != spins_when_crowded) continue;
    crowded = crowded || shares_its_core();
    if (crowded) break;
  }
  for (int turn = 0; crowded && turn < yields_when_crowded; turn++) {
    if (changed()) return;
    sched_yield();
  }
  const uint64_t sleep_ns = std::min(at_most_ns, slice_ns);
  if (sleep_ns == 0 || interrupted_.load(std::memory_order_acquire)) return;
  const timespec time = {static_cast<time_t>(sleep_ns / 1'000'000'000), static_cast<long>(sleep_ns % 1'000'000'000)};
  shared.waiters.fetch_add(1, std::memory_order_seq_cst);
  // Not FUTEX_PRIVATE: the word is the same page under different addresses in different processes.
  if (!changed())
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&shared.event), FUTEX_WAIT, static_cast<uint32_t>(seen), &time,
            nullptr, 0);
  shared.waiters.fetch_sub(1, std::memory_order_seq_cst);
}

mxs_status Domain::check_wait(uint64_t deadline_ns, int waits_for) {
  if (interrupted_.load(std::memory_order_acquire)) return set_error(MXS_ABORTED, "the comm was aborted");
  const mxs_status status = check_peers(waits_for);
  if (status != MXS_OK || now_ns() < deadline_ns) return status;
  if (waits_for < 0) return set_error(MXS_TIMED_OUT, "timed out waiting for local ranks");
  return set_error(MXS_TIMED_OUT, "timed out waiting for rank %d, which is alive", waits_for);
}

void Domain::announce_failure(const char *reason) {
  if (announced_.exchange(true)) return;
  std::snprintf(control(local_rank_).reason, sizeof DomainControl::reason, "%s", reason ? reason : "no reason given");
  control(local_rank_).failed.store(1, std::memory_order_release);
  post();
}

void Domain::interrupt() {
  interrupted_.store(true, std::memory_order_release);
  post();
}

// Cores are counted over all ranks: each may be bound to one of its own.
void Domain::settle() {
  cpu_set_t all = control(local_rank_).cores;
  for (int local = 0; local < local_count_; local++) CPU_OR(&all, &all, &control(local).cores);
  crowded_ = local_count_ > CPU_COUNT(&all);
  spin_count_ = crowded_ ? spins_when_crowded : spins_with_cores;
}

}  // namespace mxs
