// SPDX-License-Identifier: Apache-2.0
#include "base/team.hpp"

#include <signal.h>
#include <unistd.h>

#include <new>
#include <system_error>

#include "base/status.hpp"

namespace mxs {

namespace {

// About 20 microseconds: passes of one step follow each other sooner than that.
constexpr int spins = 2000;

// Until value differs from `old`.
void wait_for_change(const std::atomic<uint32_t> &value, uint32_t old) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

// Workers inherit the mask: signals are for the program's own threads.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals &) = delete;
  BlockedSignals &operator=(const BlockedSignals &) = delete;

 private:
  sigset_t before_;
};

}  // namespace

mxs_status Team::create(std::unique_ptr<Team> *team, int size) {
  std::unique_ptr<Team> made(new Team(size));
  made->creator_ = getpid();
  const BlockedSignals blocked;
  try {
    made->workers_.reserve(static_cast<size_t>(size - 1));
    for (int member = 1; member < size; ++member)
      made->workers_.emplace_back([inner = made.get(), member] { inner->serve(member); });
  } catch (const std::system_error &) {
    return set_error(MXS_OUT_OF_MEMORY, "the system gives %zu of %d worker threads; ask for fewer",
                     made->workers_.size(), size - 1);
  }
  *team = std::move(made);
  return MXS_OK;
}

Team::~Team() {
  if (getpid() != creator_) {  // threads of the parent: neither joinable nor there, and detach throws
    for (std::thread &worker : workers_) new (&worker) std::thread;
    return;
  }
  ends_ = true;
  job_number_.fetch_add(1, std::memory_order_release);
  job_number_.notify_all();
  for (std::thread &worker : workers_) worker.join();
}

void Team::take_parts(int member) {
  for (size_t part = next_part_.fetch_add(1, std::memory_order_relaxed); part < part_count_;
       part = next_part_.fetch_add(1, std::memory_order_relaxed))
    work_(context_, part, member);
}

void Team::serve(int member) {
  for (uint32_t seen = 0;; ++seen) {
    wait_for_change(job_number_, seen);
    if (ends_) return;
    take_parts(member);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

void Team::run_work(size_t part_count, Work work, void *context) {
  if (workers_.empty() || part_count <= 1 || getpid() != creator_) {
    for (size_t part = 0; part < part_count; ++part) work(context, part, 0);
    return;
  }
  work_ = work;
  context_ = context;
  part_count_ = part_count;
  next_part_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  job_number_.fetch_add(1, std::memory_order_release);
  job_number_.notify_all();
  take_parts(0);
  for (uint32_t left = busy_.load(std::memory_order_acquire); left != 0; left = busy_.load(std::memory_order_acquire))
    wait_for_change(busy_, left);
}

}  // namespace mxs
