// SPDX-License-Identifier: Apache-2.0
// Names of errors, functions by their names, and the stand-in's own doors.
#include "doors.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "driver.hpp"

using namespace standin;

namespace {

struct Error {
  CUresult result;
  const char *name, *words;
};

constexpr Error errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

// By the name without a version, the newest first: since which driver it is there.
struct Symbol {
  const char *name, *exported;
  int since;
};

constexpr Symbol symbols[] = {
    {"cuInit", "cuInit", 2000},
    {"cuDriverGetVersion", "cuDriverGetVersion", 2020},
    {"cuDeviceGetCount", "cuDeviceGetCount", 2000},
    {"cuDeviceGet", "cuDeviceGet", 2000},
    {"cuDeviceGetName", "cuDeviceGetName", 2000},
    {"cuDeviceGetUuid", "cuDeviceGetUuid_v2", 11040},
    {"cuDeviceTotalMem", "cuDeviceTotalMem_v2", 3020},
    {"cuDeviceGetAttribute", "cuDeviceGetAttribute", 2000},
    {"cuDeviceGetPCIBusId", "cuDeviceGetPCIBusId", 4010},
    {"cuDeviceGetByPCIBusId", "cuDeviceGetByPCIBusId", 4010},
    {"cuDeviceCanAccessPeer", "cuDeviceCanAccessPeer", 4000},
    {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 7000},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", 11000},
    {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", 11000},
    {"cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags_v2", 11000},
    {"cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxGetState", 7000},
    {"cuCtxGetCurrent", "cuCtxGetCurrent", 4000},
    {"cuCtxSetCurrent", "cuCtxSetCurrent", 4000},
    {"cuCtxPushCurrent", "cuCtxPushCurrent_v2", 4000},
    {"cuCtxPopCurrent", "cuCtxPopCurrent_v2", 4000},
    {"cuCtxGetDevice", "cuCtxGetDevice", 2000},
    {"cuCtxGetApiVersion", "cuCtxGetApiVersion", 3020},
    {"cuCtxGetFlags", "cuCtxGetFlags", 7000},
    {"cuCtxSynchronize", "cuCtxSynchronize", 2000},
    {"cuCtxGetStreamPriorityRange", "cuCtxGetStreamPriorityRange", 5050},
    {"cuCtxEnablePeerAccess", "cuCtxEnablePeerAccess", 4000},
    {"cuMemGetInfo", "cuMemGetInfo_v2", 3020},
    {"cuMemAlloc", "cuMemAlloc_v2", 3020},
    {"cuMemAllocManaged", "cuMemAllocManaged", 6000},
    {"cuMemFree", "cuMemFree_v2", 3020},
    {"cuMemGetAddressRange", "cuMemGetAddressRange_v2", 3020},
    {"cuMemHostAlloc", "cuMemHostAlloc", 2020},
    {"cuMemAllocHost", "cuMemAllocHost_v2", 3020},
    {"cuMemFreeHost", "cuMemFreeHost", 2000},
    {"cuMemHostRegister", "cuMemHostRegister_v2", 6050},
    {"cuMemHostUnregister", "cuMemHostUnregister", 4000},
    {"cuMemHostGetDevicePointer", "cuMemHostGetDevicePointer_v2", 3020},
    {"cuMemHostGetFlags", "cuMemHostGetFlags", 2030},
    {"cuMemGetAllocationGranularity", "cuMemGetAllocationGranularity", 10020},
    {"cuMemAddressReserve", "cuMemAddressReserve", 10020},
    {"cuMemAddressFree", "cuMemAddressFree", 10020},
    {"cuMemCreate", "cuMemCreate", 10020},
    {"cuMemRelease", "cuMemRelease", 10020},
    {"cuMemMap", "cuMemMap", 10020},
    {"cuMemUnmap", "cuMemUnmap", 10020},
    {"cuMemSetAccess", "cuMemSetAccess", 10020},
    {"cuMemGetAccess", "cuMemGetAccess", 10020},
    {"cuMemRetainAllocationHandle", "cuMemRetainAllocationHandle", 11000},
    {"cuPointerGetAttribute", "cuPointerGetAttribute", 4000},
    {"cuPointerGetAttributes", "cuPointerGetAttributes", 7000},
    {"cuMemcpy", "cuMemcpy", 4000},
    {"cuMemcpyAsync", "cuMemcpyAsync", 4000},
    {"cuMemcpyHtoD", "cuMemcpyHtoD_v2", 3020},
    {"cuMemcpyDtoH", "cuMemcpyDtoH_v2", 3020},
    {"cuMemcpyDtoD", "cuMemcpyDtoD_v2", 3020},
    {"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", 3020},
    {"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", 3020},
    {"cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", 3020},
    {"cuMemcpyPeerAsync", "cuMemcpyPeerAsync", 4000},
    {"cuMemsetD8", "cuMemsetD8_v2", 3020},
    {"cuMemsetD32", "cuMemsetD32_v2", 3020},
    {"cuMemsetD8Async", "cuMemsetD8Async", 3020},
    {"cuMemsetD16Async", "cuMemsetD16Async", 3020},
    {"cuMemsetD32Async", "cuMemsetD32Async", 3020},
    {"cuStreamCreate", "cuStreamCreate", 2000},
    {"cuStreamCreateWithPriority", "cuStreamCreateWithPriority", 5050},
    {"cuStreamDestroy", "cuStreamDestroy_v2", 4000},
    {"cuStreamSynchronize", "cuStreamSynchronize", 2000},
    {"cuStreamQuery", "cuStreamQuery", 2000},
    {"cuStreamWaitEvent", "cuStreamWaitEvent", 3020},
    {"cuStreamGetFlags", "cuStreamGetFlags", 5050},
    {"cuStreamGetPriority", "cuStreamGetPriority", 5050},
    {"cuStreamGetCtx", "cuStreamGetCtx", 9020},
    {"cuStreamGetDevice", "cuStreamGetDevice", 12080},
    {"cuStreamWaitValue32", "cuStreamWaitValue32_v2", 11070},
    {"cuStreamWaitValue64", "cuStreamWaitValue64_v2", 11070},
    {"cuStreamWriteValue32", "cuStreamWriteValue32_v2", 11070},
    {"cuStreamWriteValue64", "cuStreamWriteValue64_v2", 11070},
    {"cuLaunchHostFunc", "cuLaunchHostFunc", 10000},
    {"cuEventCreate", "cuEventCreate", 2000},
    {"cuEventDestroy", "cuEventDestroy_v2", 4000},
    {"cuEventRecord", "cuEventRecord", 2000},
    {"cuEventRecordWithFlags", "cuEventRecordWithFlags", 11010},
    {"cuEventQuery", "cuEventQuery", 2000},
    {"cuEventSynchronize", "cuEventSynchronize", 2000},
    {"cuEventElapsedTime", "cuEventElapsedTime_v2", 12080},
    {"cuEventElapsedTime", "cuEventElapsedTime", 2000},
    {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010},
    {"cuStreamEndCapture", "cuStreamEndCapture", 10000},
    {"cuStreamIsCapturing", "cuStreamIsCapturing", 10000},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", 12030},
    {"cuThreadExchangeStreamCaptureMode", "cuThreadExchangeStreamCaptureMode", 10010},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    {"cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", 11040},
    {"cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams", 12000},
    {"cuGraphLaunch", "cuGraphLaunch", 10000},
    {"cuGraphUpload", "cuGraphUpload", 11010},
    {"cuGraphExecDestroy", "cuGraphExecDestroy", 10000},
    {"cuGraphDestroy", "cuGraphDestroy", 10000},
    {"cuGraphGetNodes", "cuGraphGetNodes", 10000},
    {"cuModuleLoadData", "cuModuleLoadData", 2000},
    {"cuModuleUnload", "cuModuleUnload", 2000},
    {"cuModuleGetFunction", "cuModuleGetFunction", 2000},
    {"cuFuncSetAttribute", "cuFuncSetAttribute", 9000},
    {"cuLaunchKernel", "cuLaunchKernel", 4000},
    {"cuGetErrorName", "cuGetErrorName", 6000},
    {"cuGetErrorString", "cuGetErrorString", 6000},
    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000},
};

const Error *error_of(CUresult result) {
  const auto found = std::find_if(std::begin(errors), std::end(errors),
                                  [&](const Error &error) { return error.result == result; });
  return found == std::end(errors) ? nullptr : found;
}

// nullptr: there is none, or none that is old enough.
void *find_symbol(const char *name, int version, CUdriverProcAddressQueryResult *status) {
  const Switches &switches = driver().switches;
  *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  for (const Symbol &symbol : symbols) {
    if (std::strcmp(symbol.name, name) != 0) continue;
    if (switches.missing.count(symbol.name) || switches.missing.count(symbol.exported)) continue;
    *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (symbol.since > version || symbol.since > switches.driver_version) continue;
    *status = CU_GET_PROC_ADDRESS_SUCCESS;
    Dl_info own{};
    dladdr(reinterpret_cast<const void *>(&cuInit), &own);
    void *const self = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return self ? dlsym(self, symbol.exported) : nullptr;
  }
  return nullptr;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGetErrorName(CUresult result, const char **name) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const Error *const error = error_of(result);
  *name = error ? error->name : nullptr;
  return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult result, const char **words) {
  if (!words) return CUDA_ERROR_INVALID_VALUE;
  const Error *const error = error_of(result);
  *words = error ? error->words : nullptr;
  return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *status) {
  if (!name || !function || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  *function = find_symbol(name, version, &found);
  if (status) *status = found;
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#undef cuGetProcAddress
// As it was before 12.0.
__attribute__((visibility("default"))) CUresult CUDAAPI cuGetProcAddress(const char *name, void **function,
                                                                         int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

// ---- doors -------------------------------------------------------------------------------------------------------

int mxs_standin_set_switch(const char *name, const char *value) {
  Driver &all = driver();
  const Lock lock(all.mutex);
  if (!name || !set_switch(&all.switches, name, value)) return CUDA_ERROR_INVALID_VALUE;
  if (!all.is_begun) return value ? setenv(name, value, 1) : unsetenv(name);  // cuInit will read it
  all.memory.set_guard(all.switches.guards);
  return CUDA_SUCCESS;
}

int mxs_standin_is_device(const void *pointer, size_t bytes, int *device) {
  const Lock lock(driver().mutex);
  const Place place = driver().memory.find(reinterpret_cast<uintptr_t>(pointer), bytes);
  if (device) *device = place.device;
  return place.kind == PlaceKind::device;
}

}  // extern "C"
