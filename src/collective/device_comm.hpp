// SPDX-License-Identifier: Apache-2.0
// DeviceComm: what a comm has for CUDA memory: its device, a stream of its own, NCCL groups, and how ranks are joined.
// Made at the first collective, unit or allocation in CUDA memory, by all ranks together.
//
//   whole   all ranks by NCCL: one node, or MXS_ROUTE=nccl
//   levels  NCCL inside each node, messages between nodes: rail r joins the ranks with local rank r of every node, and
//           carries share r of what leaves its node. Wants nodes with equal numbers of ranks
//   staged  messages only, by way of pinned host memory (UCX may take device memory directly): no NCCL, or
//           MXS_ROUTE=messages
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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
  virtual std::string describe() const = 0;  // "nccl 2.30.4", "nccl 2.30.4 in nodes, ucx between", "staged over shm"
  // All ranks by NCCL, for the agreement of a step: nullptr where there is no such group.
  virtual DeviceGroup *group() const = 0;
};

// Collective, in the same order on all ranks. What fails on one rank fails on all, with that rank's sentence. The
// second time it is there already.
mxs_status open_device(Comm &comm);
// nullptr before.
DeviceComm *device_of(const Comm &comm);

}  // namespace mxs
