// SPDX-License-Identifier: Apache-2.0
// Around NCCL's calls: waiting for what is in progress, and sentences of failures.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "cuda/nccl_library.hpp"

namespace mxs {

constexpr uint64_t nccl_timeout_default_ns = 300'000'000'000;  // as comm.h's

// Beside NCCL's results.
constexpr int ended_by_abort = -1, ended_by_deadline = -2;

// Waits in steps that grow from 20 us to 1 ms.
class Poll {
 public:
  explicit Poll(uint64_t timeout_ns) : end_ns_(now_ns() + (timeout_ns ? timeout_ns : nccl_timeout_default_ns)) {}
  // False: the time is over.
  bool wait();

 private:
  uint64_t end_ns_, step_ns_ = 20'000;
};

// MXS_PEER_FAILED for ncclRemoteError, else MXS_DEVICE_FAILED; with NCCL's words. `what` says which call, and of whom.
mxs_status nccl_failed(const NcclLibrary &nccl, int result, NcclComm comm, const char *what);

}  // namespace mxs
