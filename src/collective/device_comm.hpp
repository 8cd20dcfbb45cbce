// SPDX-License-Identifier: Apache-2.0
// DeviceComm: what a comm has for CUDA memory: its device, a stream of its own, NCCL groups, and how ranks are joined.
// Made at the first collective, unit or allocation in CUDA memory, by all ranks together.
//
//   whole   all ranks by NCCL: one node, or MXS_ROUTE=nccl
//   levels  NCCL inside each node, messages between nodes: rail r joins the ranks with local rank r of every node, and
//           carries share r of what leaves its node. Wants nodes with equal numbers of ranks
//   staged  messages only, by way of pinned host memory: no NCCL, or MXS_ROUTE=messages
//
// A comm of one rank is `whole`, and has no group.
#pragma once

#include <cstdint>
#include <memory>

#include "device/device.hpp"
#include "device/group.hpp"

namespace mxs {

class Comm;

enum class DeviceRoute { whole, levels, staged };

class DeviceComm {
 public:
  virtual ~DeviceComm() = default;
  virtual Device &device() const = 0;
  // Where collectives run, one after the other, in the order of their starts.
  virtual DeviceStream stream() const = 0;
  virtual DeviceRoute route() const = 0;
  // "nccl 2.30.4", "nccl 2.30.4 in nodes, ucx between", "staged over shm"
  virtual const char *describe() const = 0;
  // All ranks by NCCL, for the agreement of a step: nullptr where there is no such group.
  virtual DeviceGroup *group() const = 0;
  // After a failure of the comm: NCCL is aborted, and the stream waits for no message any more. Any thread.
  virtual void abort() = 0;

  // Memory of mxs_comm_allocate. Local.
  virtual mxs_status allocate(uint64_t bytes, void **memory) = 0;  // zeroed
  virtual bool owns(const void *memory) const = 0;
  virtual void free(void *memory) = 0;
  virtual int buffer_count() const = 0;
};

// Collective, in the same order on all ranks. What fails on one rank fails on all, with that rank's sentence. The
// second time it is there already.
mxs_status open_device(Comm &comm);
// nullptr before.
DeviceComm *device_of(const Comm &comm);

}  // namespace mxs
