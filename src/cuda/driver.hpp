// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, libcuda.so.1, as a table of functions that is filled when the driver is loaded: nothing of NVIDIA's
// is linked. Names are those that the driver exports for ever, version and all (cuMemAlloc_v2), so that a table made
// with any toolkit's headers from 12.0 on means the same functions.
#pragma once

#include <cuda.h>

#include <string>

#include "matrixshard/status.h"

namespace mxs {

struct Driver {
  int version = 0;  // 13000 is 13.0

  // ---- the library and errors ----
  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDriverGetVersion) get_version = nullptr;
  decltype(&::cuGetErrorName) get_error_name = nullptr;
  decltype(&::cuGetErrorString) get_error_string = nullptr;

  // ---- devices and contexts ----
  decltype(&::cuDeviceGetCount) device_get_count = nullptr;
  decltype(&::cuDeviceGet) device_get = nullptr;
  decltype(&::cuDeviceGetName) device_get_name = nullptr;
  decltype(&::cuDeviceTotalMem) device_total_memory = nullptr;
  decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&::cuDeviceGetPCIBusId) device_get_pci_bus_id = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) primary_context_retain = nullptr;
  decltype(&::cuDevicePrimaryCtxRelease) primary_context_release = nullptr;
  decltype(&::cuCtxGetCurrent) context_get_current = nullptr;
  decltype(&::cuCtxPushCurrent) context_push = nullptr;
  decltype(&::cuCtxPopCurrent) context_pop = nullptr;
  decltype(&::cuCtxGetDevice) context_get_device = nullptr;
  decltype(&::cuCtxGetStreamPriorityRange) context_get_stream_priority_range = nullptr;

  // ---- memory ----
  decltype(&::cuMemGetInfo) memory_get_info = nullptr;
  decltype(&::cuMemAlloc) memory_allocate = nullptr;
  decltype(&::cuMemFree) memory_free = nullptr;
  decltype(&::cuMemHostAlloc) host_allocate = nullptr;
  decltype(&::cuMemFreeHost) host_free = nullptr;
  decltype(&::cuMemGetAllocationGranularity) memory_get_granularity = nullptr;
  decltype(&::cuMemCreate) memory_create = nullptr;
  decltype(&::cuMemRelease) memory_release = nullptr;
  decltype(&::cuMemAddressReserve) address_reserve = nullptr;
  decltype(&::cuMemAddressFree) address_free = nullptr;
  decltype(&::cuMemMap) memory_map = nullptr;
  decltype(&::cuMemUnmap) memory_unmap = nullptr;
  decltype(&::cuMemSetAccess) memory_set_access = nullptr;
  decltype(&::cuMemcpyAsync) copy_async = nullptr;
  decltype(&::cuMemsetD8Async) set_bytes_async = nullptr;
  decltype(&::cuPointerGetAttributes) pointer_get_attributes = nullptr;

  // ---- streams and events ----
  decltype(&::cuStreamCreateWithPriority) stream_create = nullptr;
  decltype(&::cuStreamDestroy) stream_destroy = nullptr;
  decltype(&::cuStreamSynchronize) stream_synchronize = nullptr;
  decltype(&::cuStreamWaitEvent) stream_wait_event = nullptr;
  decltype(&::cuStreamIsCapturing) stream_is_capturing = nullptr;
  decltype(&::cuStreamGetCtx) stream_get_context = nullptr;
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_capture_mode = nullptr;
  decltype(&::cuStreamWaitValue32) stream_wait_value = nullptr;
  decltype(&::cuLaunchHostFunc) launch_host_function = nullptr;
  decltype(&::cuEventCreate) event_create = nullptr;
  decltype(&::cuEventDestroy) event_destroy = nullptr;
  decltype(&::cuEventRecord) event_record = nullptr;
  decltype(&::cuEventQuery) event_query = nullptr;

  // ---- kernels ----
  decltype(&::cuModuleLoadData) module_load_data = nullptr;
  decltype(&::cuModuleGetFunction) module_get_function = nullptr;
  decltype(&::cuLaunchKernel) launch_kernel = nullptr;
};

constexpr int driver_version_min = 12000;

// Loads and initializes it, once; what failed is tried again by the next call. MXS_NO_DEVICE: there is no driver, it is
// older than CUDA 12.0, it lacks a function, or it does not begin; the sentence says which.
mxs_status load_driver(const Driver **driver);

// "CUDA_ERROR_INVALID_VALUE (invalid argument)"
std::string error_text(const Driver &driver, CUresult result);

// "12.4" of 12040
std::string version_text(int version);

// MXS_DEVICE_FAILED, or MXS_OUT_OF_MEMORY, with "CALL on device N: ERROR". `what` names the thing, and may be empty.
mxs_status driver_failed(const Driver &driver, CUresult result, int device, const char *call, const char *what = "");

}  // namespace mxs
