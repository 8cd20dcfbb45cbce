// SPDX-License-Identifier: Apache-2.0
// DeviceGroup: ranks joined by one NCCL communicator, non-blocking and abortable. Its calls put work on a stream and
// return; they come from one thread at a time, in the same order on all ranks. What one call lists is one NCCL group.
//
// Counts are in elements of `dtype`; parts of zero elements are left out on all ranks alike.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/device.hpp"
#include "matrixshard/types.h"

namespace mxs {

struct GroupPart {
  int root = 0;                  // rank within the group
  const void *source = nullptr;  // broadcast: read at the root only. May be target (in place)
  void *target = nullptr;        // reduce: written at the root only
  uint64_t count = 0;
  mxs_dtype dtype = MXS_F32;     // MXS_U8: bytes
};

struct GroupMessage {
  int peer = 0;
  void *data = nullptr;          // of a send it is only read
  uint64_t bytes = 0;
};

struct GroupOptions {
  int rank = 0, rank_count = 1;
  // All-gather over the group's ranks, for the unique id; called inside make_group only. A rank that fails earlier
  // takes part all the same, so that all fail alike.
  std::function<mxs_status(const void *source, void *target, size_t bytes)> gather;
  void *existing = nullptr;      // an ncclComm_t of the caller's, of these ranks in this order; borrowed
  uint64_t timeout_ns = 0;       // of making it
  std::function<mxs_status()> poll;  // while it waits: has a peer died? A failure ends it
};

class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;  // finalizes if nothing failed, else aborts; waits for neither peers nor the device
  virtual int rank() const = 0;
  virtual int rank_count() const = 0;
  virtual int version() const = 0;   // 23004

  virtual mxs_status broadcast(const std::vector<GroupPart> &parts, DeviceStream stream) = 0;
  virtual mxs_status reduce(const std::vector<GroupPart> &parts, DeviceStream stream) = 0;  // sums
  virtual mxs_status exchange(const std::vector<GroupMessage> &sends, const std::vector<GroupMessage> &receives,
                              DeviceStream stream) = 0;
  // In place, integers that wrap around.
  virtual mxs_status sum(int64_t *words, uint64_t count, DeviceStream stream) = 0;
  virtual mxs_status sum(float *values, uint64_t count, DeviceStream stream) = 0;

  // Asynchronous errors: MXS_OK, or MXS_DEVICE_FAILED / MXS_PEER_FAILED with NCCL's sentence. Cheap.
  virtual mxs_status check() = 0;
  // Ends what is in flight: streams go on with undefined contents. Once; from any thread. Every later call fails.
  virtual void abort() = 0;

  // User buffers that collectives will use again and again; where this NCCL has none, does nothing.
  virtual mxs_status register_buffer(void *data, uint64_t bytes) = 0;
  virtual void deregister_buffers() = 0;
};

}  // namespace mxs
