// SPDX-License-Identifier: Apache-2.0
// A thread with a name, deaf to the program's signals.
#pragma once

#include <pthread.h>

#include <csignal>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/status.hpp"

namespace mxs {

// MXS_SYSTEM: there are no more to be had. MXS_OUT_OF_MEMORY.
template <class Body>
mxs_status start_io_thread(std::thread *thread, const char *name, Body &&body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  mxs_status status = MXS_OK;
  try {
    *thread = std::thread(std::forward<Body>(body));
    pthread_setname_np(thread->native_handle(), name);
  } catch (const std::bad_alloc &) {
    status = set_error(MXS_OUT_OF_MEMORY, "out of host memory for the thread %s", name);
  } catch (const std::system_error &error) {
    status = set_error(MXS_SYSTEM, "can't start the thread %s, which reads and writes files: %s; see the limits of "
                       "threads and memory", name, error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace mxs
