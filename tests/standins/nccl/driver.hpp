// SPDX-License-Identifier: Apache-2.0
// What the stand-in for NCCL uses of CUDA: the driver's functions, found in libcuda.so.1 when they are first wanted.
// That may be the stand-in beside this one or NVIDIA's; nothing here knows which.
#pragma once

#include <cuda.h>

namespace standin {

struct Driver {
  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDeviceGet) device_get = nullptr;
  decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&::cuDeviceGetPCIBusId) device_get_pci_bus_id = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) primary_context_retain = nullptr;
  decltype(&::cuCtxGetCurrent) context_get_current = nullptr;
  decltype(&::cuCtxGetDevice) context_get_device = nullptr;
  decltype(&::cuCtxPushCurrent) context_push = nullptr;
  decltype(&::cuCtxPopCurrent) context_pop = nullptr;
  decltype(&::cuMemAlloc) memory_allocate = nullptr;
  decltype(&::cuMemFree) memory_free = nullptr;
  decltype(&::cuMemHostRegister) host_register = nullptr;
  decltype(&::cuMemcpyAsync) copy_async = nullptr;
  decltype(&::cuPointerGetAttributes) pointer_get_attributes = nullptr;
  decltype(&::cuStreamWaitEvent) stream_wait_event = nullptr;
  decltype(&::cuStreamWaitValue32) stream_wait_value = nullptr;
  decltype(&::cuStreamIsCapturing) stream_is_capturing = nullptr;
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_capture_mode = nullptr;
  decltype(&::cuLaunchHostFunc) launch_host_function = nullptr;
  decltype(&::cuEventCreate) event_create = nullptr;
  decltype(&::cuEventDestroy) event_destroy = nullptr;
  decltype(&::cuEventRecord) event_record = nullptr;
  decltype(&::cuEventQuery) event_query = nullptr;
};

// nullptr: there is no driver, it lacks one of these, or it does not begin. Loads it the first time.
const Driver *driver();

// The context is current while it lives.
class Current {
 public:
  explicit Current(CUcontext context) { driver()->context_push(context); }
  ~Current() {
    CUcontext popped = nullptr;
    driver()->context_pop(&popped);
  }
  Current(const Current &) = delete;
  Current &operator=(const Current &) = delete;
};

}  // namespace standin
