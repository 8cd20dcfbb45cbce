// SPDX-License-Identifier: Apache-2.0
// A collective over device memory. A start puts its work on the comm's stream and, as an operation of the comm's queue,
// tells when it is over:
//
//   caller's stream    ... writes source ...| ready                      wait_stream: waits for done ...| reads target
//   the comm's stream                         waits | copies, NCCL, sums | done
//
// Nobody waits on the host: the queue polls `done` when somebody calls or, with a progress thread, by itself, and finds
// asynchronous errors, dead peers and deadlines then. A collective may be started again while earlier starts of it are
// in flight, since the stream orders them: a program that goes by streams alone is never held up. On the routes
// `levels` and `staged` the host carries messages, and the comm's stream waits for them by a flag in pinned memory;
// there a start waits until the one before it of the same collective is complete.
#pragma once

#include <memory>

#include "device/device.hpp"
#include "layout/layout.hpp"
#include "matrixshard/types.h"

namespace mxs {

class Comm;

struct DeviceCollectiveOptions {
  // MXS_GATHER, MXS_REDUCE, MXS_RESHARD; MXS_AGREE, on the route `whole` alone: a sum of int64 words over all ranks, in
  // place; the layout is these words without segments.
  int kind = 0;
  const Layout *layout = nullptr;  // copied
  const Layout *target_layout = nullptr;  // reshard
  mxs_dtype dtype = MXS_F32;       // reduce: of the source
  bool rank_order = false, accumulate = false;  // reduce
  uint64_t identity = 0;           // which of equal ones it is, the same on all ranks: part of the signature
  int unit = -1;                   // for the trace
};

class DeviceOperation {
 public:
  virtual ~DeviceOperation() = default;  // not in flight, or the comm has failed
  // Buffers as in mxs_collective_start, all in memory of the comm's device (check_device_buffer). The work begins after
  // what `stream` has got so far. *sequence: its number in the comm's queue, for Comm::wait. MXS_NOT_BUILT: the stream
  // is capturing. With 64 operations in flight it waits for the oldest.
  virtual mxs_status start(const void *source, void *target, DeviceStream stream, uint64_t *sequence) = 0;
  // What `stream` gets from here on begins after the latest start is complete on the device.
  virtual mxs_status wait_stream(DeviceStream stream) = 0;
  // A start is not known to be complete; Comm::progress looks.
  virtual bool in_flight() const = 0;
  virtual const char *algorithm() const = 0;  // "nccl broadcasts", "nccl reduces", "two-level", "staged chain", ...
  virtual const char *routes() const = 0;     // "nccl 7", "nccl 3, ucx 1": peers by what joins them
  virtual uint64_t bytes_out() const = 0;     // of one start, as schedules count them
  virtual uint64_t bytes_in() const = 0;
  virtual uint64_t message_count() const = 0;
  virtual uint64_t scratch_bytes() const = 0;  // of device memory
};

// Local after open_device, but for scratch memory; options are equal on all ranks.
mxs_status make_device_operation(std::unique_ptr<DeviceOperation> *operation, Comm &comm,
                                 const DeviceCollectiveOptions &options);

// MXS_INVALID_ARGUMENT unless memory of so many bytes begins and ends on the comm's device. what: "target", for the
// sentence. Nothing is wrong with 0 bytes.
mxs_status check_device_buffer(const Comm &comm, const char *what, const void *memory, uint64_t bytes);

}  // namespace mxs
