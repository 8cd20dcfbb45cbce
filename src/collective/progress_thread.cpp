// SPDX-License-Identifier: Apache-2.0
#include "collective/progress_thread.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "base/status.hpp"
#include "collective/comm.hpp"

namespace mxs {

namespace {

// While a caller makes progress itself; it rings when it leaves.
constexpr uint64_t caller_sleep_ns = 50'000'000;

// Of the cores, those that this process may use; none: as before.
void bind_to(const std::vector<int> &cores) {
  cpu_set_t allowed, near;
  CPU_ZERO(&near);
  if (cores.empty() || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (const int core : cores)
    if (core >= 0 && core < CPU_SETSIZE && CPU_ISSET(static_cast<size_t>(core), &allowed))
      CPU_SET(static_cast<size_t>(core), &near);
  if (CPU_COUNT(&near) > 0) sched_setaffinity(0, sizeof near, &near);
}

}  // namespace

mxs_status ProgressThread::start(const std::vector<int> &cores) {
  bell_ = File(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (bell_.get() < 0) return set_error(MXS_SYSTEM, "no event file for the progress thread: %s", std::strerror(errno));
  // The program's signals are for its own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  mxs_status status = MXS_OK;
  try {
    thread_ = std::thread([this, cores] { run(cores); });
    pthread_setname_np(thread_.native_handle(), "mxs-progress");
  } catch (const std::system_error &error) {
    status = set_error(MXS_SYSTEM, "can't start the progress thread: %s; see the limits of threads and memory, or set "
                       "MXS_PROGRESS=manual", error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

ProgressThread::~ProgressThread() {
  if (!thread_.joinable()) return;
  stopped_.store(true, std::memory_order_release);
  ring();
  if (comm_.local) comm_.local->post();  // it may sleep there
  thread_.join();
}

// Either this exchange comes after the thread's: then it sees that it sleeps. Or before: then the thread, which looks
// for work after its own, sees all that was done before this.
void ProgressThread::ring() {
  if (!asleep_.exchange(false, std::memory_order_acq_rel)) return;
  const uint64_t one = 1;
  static_cast<void>(!write(bell_.get(), &one, sizeof one));  // can't fail short of 2^64 - 1 rings
}

void ProgressThread::rest(int file, uint64_t at_most_ns, bool idle) {
  asleep_.exchange(true, std::memory_order_acq_rel);
  if (!stopped() && !(idle && comm_.wants_progress())) {
    pollfd files[2] = {{bell_.get(), POLLIN, 0}, {file, POLLIN, 0}};
    const timespec timeout = {static_cast<time_t>(at_most_ns / 1'000'000'000u),
                              static_cast<long>(at_most_ns % 1'000'000'000u)};
    ppoll(files, file >= 0 ? 2 : 1, at_most_ns == UINT64_MAX ? nullptr : &timeout, nullptr);
  }
  // A ring that was under way is heard now or at the next rest, which it then cuts short.
  if (asleep_.exchange(false, std::memory_order_acq_rel)) return;
  uint64_t rings = 0;
  static_cast<void>(!read(bell_.get(), &rings, sizeof rings));
}

void ProgressThread::run(const std::vector<int> &cores) {
  bind_to(cores);
  while (!stopped()) {
    if (comm_.wants_progress()) {
      const mxs_status status = fenced([this] { return comm_.carry(this); });
      if (status != MXS_OK && !comm_.failed()) comm_.fail(status);
    } else {
      rest(-1, comm_.queue.idle() || comm_.failed() ? UINT64_MAX : caller_sleep_ns, true);
    }
  }
}

}  // namespace mxs
