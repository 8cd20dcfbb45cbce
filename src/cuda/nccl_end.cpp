// SPDX-License-Identifier: Apache-2.0
#include "cuda/nccl_end.hpp"

#include <mutex>
#include <vector>

#include "cuda/nccl_call.hpp"

namespace mxs {

namespace {

constexpr uint64_t wait_ns = 100'000'000, patience_ns = 30'000'000'000;

struct Retired {
  const NcclLibrary *nccl;
  const Driver *driver;
  CUcontext context;
  NcclComm comm;
  uint64_t end_ns;
};

struct Retirement {
  std::mutex mutex;
  std::vector<Retired> all;
};

// Never destroyed: at the end of the process the driver may be gone before.
Retirement &retirement() {
  static Retirement *const only = new Retirement;
  return *only;
}

// True: it is gone.
bool end_now(const Retired &retired) {
  const CurrentContext current(*retired.driver, retired.context);
  int state = nccl_success;
  const int result = retired.nccl->comm_get_async_error(retired.comm, &state);
  const bool is_in_progress = result == nccl_success && state == nccl_in_progress;
  if (is_in_progress && now_ns() < retired.end_ns) return false;
  if (result == nccl_success && state == nccl_success) retired.nccl->comm_destroy(retired.comm);
  else retired.nccl->comm_abort(retired.comm);
  return true;
}

}  // namespace

void retire_nccl_comm(const NcclLibrary &nccl, const Driver &driver, CUcontext context, NcclComm comm) {
  const Retired retired = {&nccl, &driver, context, comm, now_ns() + patience_ns};
  {
    const CurrentContext current(driver, context);
    const int result = nccl.comm_finalize(comm);
    if (result != nccl_success && result != nccl_in_progress) {
      nccl.comm_abort(comm);
      return;
    }
  }
  Poll poll(wait_ns);
  do {
    if (end_now(retired)) return;
    sweep_retired_nccl_comms();  // of this communicator's other ranks, if they are threads of this process
  } while (poll.wait());
  Retirement &place = retirement();
  const std::lock_guard<std::mutex> lock(place.mutex);
  place.all.push_back(retired);
}

void sweep_retired_nccl_comms() {
  Retirement &place = retirement();
  const std::lock_guard<std::mutex> lock(place.mutex);
  for (size_t i = 0; i < place.all.size();) {
    if (end_now(place.all[i])) place.all.erase(place.all.begin() + static_cast<std::ptrdiff_t>(i));
    else ++i;
  }
}

}  // namespace mxs
