/* SPDX-License-Identifier: Apache-2.0 */
// libcuda.so.1 as a program finds it: by dlopen, with the prototypes of cuda.h. A function that isn't there is nullptr.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <string>

namespace mxs::test {

inline void *cuda_library() {
  static void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library;
}

// found<decltype(cuMemAlloc)>("cuMemAlloc_v2")
template <class Function>
Function *found(const char *name) {
  return cuda_library() ? reinterpret_cast<Function *>(dlsym(cuda_library(), name)) : nullptr;
}

struct Cuda {
  decltype(&cuInit) init = found<decltype(cuInit)>("cuInit");
  decltype(&cuDeviceGetCount) count = found<decltype(cuDeviceGetCount)>("cuDeviceGetCount");
  decltype(&cuDeviceGetAttribute) attribute = found<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  decltype(&cuDevicePrimaryCtxRetain) retain = found<decltype(cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain");
  decltype(&cuDevicePrimaryCtxRelease) release =
      found<decltype(cuDevicePrimaryCtxRelease)>("cuDevicePrimaryCtxRelease_v2");
  decltype(&cuCtxSetCurrent) set_current = found<decltype(cuCtxSetCurrent)>("cuCtxSetCurrent");
  decltype(&cuCtxSynchronize) synchronize = found<decltype(cuCtxSynchronize)>("cuCtxSynchronize");
  decltype(&cuMemGetInfo) info = found<decltype(cuMemGetInfo)>("cuMemGetInfo_v2");
  decltype(&cuMemAlloc) allocate = found<decltype(cuMemAlloc)>("cuMemAlloc_v2");
  decltype(&cuMemFree) free = found<decltype(cuMemFree)>("cuMemFree_v2");
  decltype(&cuMemHostAlloc) allocate_host = found<decltype(cuMemHostAlloc)>("cuMemHostAlloc");
  decltype(&cuMemFreeHost) free_host = found<decltype(cuMemFreeHost)>("cuMemFreeHost");
  decltype(&cuMemHostRegister) enter_host = found<decltype(cuMemHostRegister)>("cuMemHostRegister_v2");
  decltype(&cuMemHostUnregister) leave_host = found<decltype(cuMemHostUnregister)>("cuMemHostUnregister");
  decltype(&cuMemAddressReserve) reserve = found<decltype(cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(&cuMemAddressFree) free_reserved = found<decltype(cuMemAddressFree)>("cuMemAddressFree");
  decltype(&cuMemCreate) create = found<decltype(cuMemCreate)>("cuMemCreate");
  decltype(&cuMemRelease) release_block = found<decltype(cuMemRelease)>("cuMemRelease");
  decltype(&cuMemMap) map = found<decltype(cuMemMap)>("cuMemMap");
  decltype(&cuMemUnmap) unmap = found<decltype(cuMemUnmap)>("cuMemUnmap");
  decltype(&cuMemSetAccess) set_access = found<decltype(cuMemSetAccess)>("cuMemSetAccess");
  decltype(&cuMemcpyAsync) copy = found<decltype(cuMemcpyAsync)>("cuMemcpyAsync");
  decltype(&cuMemcpyHtoD) copy_in = found<decltype(cuMemcpyHtoD)>("cuMemcpyHtoD_v2");
  decltype(&cuMemcpyDtoH) copy_out = found<decltype(cuMemcpyDtoH)>("cuMemcpyDtoH_v2");
  decltype(&cuMemsetD8Async) fill = found<decltype(cuMemsetD8Async)>("cuMemsetD8Async");
  decltype(&cuMemsetD32Async) fill_words = found<decltype(cuMemsetD32Async)>("cuMemsetD32Async");
  decltype(&cuPointerGetAttributes) pointer = found<decltype(cuPointerGetAttributes)>("cuPointerGetAttributes");
  decltype(&cuStreamCreateWithPriority) make_stream =
      found<decltype(cuStreamCreateWithPriority)>("cuStreamCreateWithPriority");
  decltype(&cuStreamDestroy) end_stream = found<decltype(cuStreamDestroy)>("cuStreamDestroy_v2");
  decltype(&cuStreamSynchronize) wait_stream = found<decltype(cuStreamSynchronize)>("cuStreamSynchronize");
  decltype(&cuStreamQuery) query_stream = found<decltype(cuStreamQuery)>("cuStreamQuery");
  decltype(&cuStreamWaitEvent) wait_event = found<decltype(cuStreamWaitEvent)>("cuStreamWaitEvent");
  decltype(&cuStreamWaitValue32) wait_value = found<decltype(cuStreamWaitValue32)>("cuStreamWaitValue32_v2");
  decltype(&cuStreamWriteValue32) write_value = found<decltype(cuStreamWriteValue32)>("cuStreamWriteValue32_v2");
  decltype(&cuLaunchHostFunc) call_host = found<decltype(cuLaunchHostFunc)>("cuLaunchHostFunc");
  decltype(&cuEventCreate) make_event = found<decltype(cuEventCreate)>("cuEventCreate");
  decltype(&cuEventDestroy) end_event = found<decltype(cuEventDestroy)>("cuEventDestroy_v2");
  decltype(&cuEventRecord) record = found<decltype(cuEventRecord)>("cuEventRecord");
  decltype(&cuEventQuery) query_event = found<decltype(cuEventQuery)>("cuEventQuery");
  decltype(&cuEventSynchronize) wait_for_event = found<decltype(cuEventSynchronize)>("cuEventSynchronize");
  decltype(&cuEventElapsedTime) elapsed = found<decltype(cuEventElapsedTime)>("cuEventElapsedTime_v2");
  decltype(&cuStreamBeginCapture) begin_capture = found<decltype(cuStreamBeginCapture)>("cuStreamBeginCapture_v2");
  decltype(&cuStreamEndCapture) end_capture = found<decltype(cuStreamEndCapture)>("cuStreamEndCapture");
  decltype(&cuStreamIsCapturing) is_capturing = found<decltype(cuStreamIsCapturing)>("cuStreamIsCapturing");
  decltype(&cuGraphInstantiate) instantiate = found<decltype(cuGraphInstantiate)>("cuGraphInstantiateWithFlags");
  decltype(&cuGraphLaunch) launch_graph = found<decltype(cuGraphLaunch)>("cuGraphLaunch");
  decltype(&cuGraphDestroy) end_graph = found<decltype(cuGraphDestroy)>("cuGraphDestroy");
  decltype(&cuGraphExecDestroy) end_exec = found<decltype(cuGraphExecDestroy)>("cuGraphExecDestroy");
  decltype(&cuModuleLoadData) load_module = found<decltype(cuModuleLoadData)>("cuModuleLoadData");
  decltype(&cuModuleGetFunction) find_function = found<decltype(cuModuleGetFunction)>("cuModuleGetFunction");
  decltype(&cuLaunchKernel) launch = found<decltype(cuLaunchKernel)>("cuLaunchKernel");
  decltype(&cuGetErrorName) error_name = found<decltype(cuGetErrorName)>("cuGetErrorName");
  decltype(&cuGetErrorString) error_string = found<decltype(cuGetErrorString)>("cuGetErrorString");
  decltype(&cuGetProcAddress) find = found<decltype(cuGetProcAddress)>("cuGetProcAddress_v2");

  // Device 0's context, current on this thread. "": done.
  std::string begin(CUcontext *context, int device = 0) const {
    if (!init) return "libcuda.so.1 has no cuInit";
    if (init(0) != CUDA_SUCCESS) return "cuInit fails";
    if (retain(context, device) != CUDA_SUCCESS) return "cuDevicePrimaryCtxRetain fails";
    return set_current(*context) == CUDA_SUCCESS ? "" : "cuCtxSetCurrent fails";
  }
};

inline const Cuda &cuda() {
  static const Cuda table;
  return table;
}

// Collects what isn't as it should be: the first is told.
class Expect {
 public:
  void is(CUresult result, CUresult wanted, const char *what) {
    if (result == wanted || !complaint_.empty()) return;
    const char *got_name = "?", *wanted_name = "?";
    cuda().error_name(result, &got_name);
    cuda().error_name(wanted, &wanted_name);
    complaint_ = std::string(what) + ": " + got_name + " instead of " + wanted_name;
  }
  void ok(CUresult result, const char *what) { is(result, CUDA_SUCCESS, what); }
  void that(bool holds, const char *what) {
    if (!holds && complaint_.empty()) complaint_ = std::string("not so: ") + what;
  }
  const std::string &complaint() const { return complaint_; }
  bool holds() const {
    if (!complaint_.empty()) std::fprintf(stderr, "%s\n", complaint_.c_str());
    return complaint_.empty();
  }

 private:
  std::string complaint_;
};

}  // namespace mxs::test
