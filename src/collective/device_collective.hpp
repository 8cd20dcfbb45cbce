// SPDX-License-Identifier: Apache-2.0
// A collective over device memory: an operation of the comm's queue, which begins at enqueue, in the caller's thread.
//
//   caller's stream    ... writes source ...| event                      wait_stream: waits for done ...| reads target
//   the comm's stream                         waits | copies, NCCL, sums | done
//
// Nobody waits on the host: the queue polls `done` when somebody calls or, with a progress thread, by itself, and finds
// asynchronous errors, dead peers and deadlines then. Messages of the routes `levels` and `staged` are carried by the
// host; the comm's stream waits for them by a flag in pinned memory.
#pragma once

#include <memory>

#include "collective/operation.hpp"
#include "device/device.hpp"
#include "layout/layout.hpp"
#include "matrixshard/types.h"

namespace mxs {

class Comm;

struct DeviceCollectiveOptions {
  int kind = 0;                    // MXS_GATHER, MXS_REDUCE, MXS_RESHARD
  const Layout *layout = nullptr;  // copied
  const Layout *target_layout = nullptr;  // reshard
  mxs_dtype dtype = MXS_F32;       // reduce: of the source
  bool rank_order = false, accumulate = false;  // reduce
};

class DeviceOperation : public Operation {
 public:
  bool uses_messages() const override { return false; }
  bool polls() const override { return true; }
  // Buffers of the start that is enqueued next; meanings as in mxs_collective_start, all in device memory. It begins
  // after what `stream` has got so far.
  virtual void prepare(const void *source, void *target, DeviceStream stream) = 0;
  // What `stream` gets from here on begins after the latest start is complete on the device.
  virtual mxs_status wait_stream(DeviceStream stream) = 0;
  virtual const char *algorithm() const = 0;  // "nccl broadcasts", "nccl reduces", "two-level", "staged chain", ...
  virtual uint64_t bytes_out() const = 0;     // of one start, as schedules count them
  virtual uint64_t bytes_in() const = 0;
  virtual uint64_t scratch_bytes() const = 0;  // of device memory
};

// Local after open_device, but for scratch memory; options are equal on all ranks.
mxs_status make_device_operation(std::unique_ptr<DeviceOperation> *operation, Comm &comm,
                                 const DeviceCollectiveOptions &options);

}  // namespace mxs
