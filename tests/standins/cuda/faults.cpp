// SPDX-License-Identifier: Apache-2.0
// A job that touches memory that isn't there: what a GPU reports as CUDA_ERROR_ILLEGAL_ADDRESS is a SIGSEGV of the
// stream's thread here, which jumps back to where the job began. Faults of other threads go on to whoever handled them
// before; if they touched device memory, standard error says so first.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <unistd.h>

#include "driver.hpp"

namespace standin {

namespace {

thread_local sigjmp_buf *landing = nullptr;
thread_local const void *volatile fault_address = nullptr;
struct sigaction former_segv, former_bus;

// Without the lock of the driver, if somebody holds it: this thread may be the one.
void hint(const void *address) {
  char text[256];
  const char *what = "";
  if (driver().mutex.try_lock()) {
    const Place place = driver().memory.find(reinterpret_cast<uintptr_t>(address));
    if (place.kind == PlaceKind::device) what = ": device memory, which only copies and kernels reach";
    else if (place.is_range || place.kind == PlaceKind::nothing)
      what = ": CUDA memory that is freed, unmapped or overrun";
    driver().mutex.unlock();
  }
  if (!*what) return;
  const int length = std::snprintf(text, sizeof text, "stand-in CUDA: the host touched %p%s\n", address, what);
  static_cast<void>(!write(2, text, static_cast<size_t>(length)));
}

void on_fault(int signal, siginfo_t *info, void *machine) {
  if (landing) {
    fault_address = info->si_addr;
    siglongjmp(*landing, 1);
  }
  hint(info->si_addr);
  const struct sigaction &former = signal == SIGSEGV ? former_segv : former_bus;
  if (former.sa_flags & SA_SIGINFO) return former.sa_sigaction(signal, info, machine);
  if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) return former.sa_handler(signal);
  ::signal(signal, SIG_DFL);  // the instruction runs again, and ends the process
}

}  // namespace

void catch_faults() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &former_segv);
  sigaction(SIGBUS, &action, &former_bus);
}

CUresult run_guarded(const std::function<CUresult()> &body, const void **address) {
  sigjmp_buf here;
  if (sigsetjmp(here, 1) != 0) {
    landing = nullptr;
    *address = fault_address;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  landing = &here;
  const CUresult result = body();
  landing = nullptr;
  return result;
}

}  // namespace standin
