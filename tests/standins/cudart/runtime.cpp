// SPDX-License-Identifier: Apache-2.0
// A stand-in for the CUDA runtime, libcudart.so.13, as far as a program needs it that plays a framework: one that has
// memory, streams and events of its own in the primary contexts. It is the driver API under other names, over whichever
// libcuda.so.1 the loader finds.
//
// Errors: cudaError_t has the driver's numbers. The last one stays with the thread until cudaGetLastError() takes it.
#include <cuda_runtime_api.h>

#include <array>
#include <mutex>

#include "standins/cuda_functions.hpp"

using mxs::test::cuda;
using mxs::test::found;

namespace {

constexpr int devices_max = 64;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

cudaError_t tell(CUresult result) {
  const auto error = static_cast<cudaError_t>(result);
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

// Retained once for the process, and current on this thread from now on: what was current before doesn't come back.
CUresult use_device(int device) {
  static std::mutex mutex;
  static std::array<CUcontext, devices_max> contexts{};
  const std::lock_guard<std::mutex> lock(mutex);
  if (!cuda().init) return CUDA_ERROR_NO_DEVICE;
  CUresult result = cuda().init(0);
  if (result != CUDA_SUCCESS) return result;
  if (device < 0 || device >= devices_max) return CUDA_ERROR_INVALID_DEVICE;
  CUcontext &context = contexts[static_cast<size_t>(device)];
  if (!context) result = cuda().retain(&context, device);
  return result == CUDA_SUCCESS ? cuda().set_current(context) : result;
}

// A call of the driver in this thread's device.
template <class Body>
cudaError_t call(Body body) {
  const CUresult result = use_device(current_device);
  return tell(result == CUDA_SUCCESS ? body() : result);
}

CUdeviceptr address(const void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaGetDeviceCount(int *count) {
  if (!cuda().init) return tell(CUDA_ERROR_NO_DEVICE);
  const CUresult result = cuda().init(0);
  return tell(result == CUDA_SUCCESS ? cuda().count(count) : result);
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  const CUresult result = use_device(device);
  if (result == CUDA_SUCCESS) current_device = device;
  return tell(result);
}

cudaError_t CUDARTAPI cudaGetDevice(int *device) {
  if (!device) return tell(CUDA_ERROR_INVALID_VALUE);
  *device = current_device;
  return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
  return call([] { return cuda().synchronize(); });
}

// ---- memory ------------------------------------------------------------------------------------------------------

cudaError_t CUDARTAPI cudaMalloc(void **pointer, size_t bytes) {
  return call([&] {
    CUdeviceptr made = 0;
    if (!pointer) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = bytes ? cuda().allocate(&made, bytes) : CUDA_SUCCESS;  // nothing is no error here
    if (result == CUDA_SUCCESS) *pointer = reinterpret_cast<void *>(made);
    return result;
  });
}

cudaError_t CUDARTAPI cudaFree(void *pointer) {
  return call([&] { return cuda().free(address(pointer)); });
}

cudaError_t CUDARTAPI cudaMallocHost(void **pointer, size_t bytes) {
  return call([&] { return cuda().allocate_host(pointer, bytes, CU_MEMHOSTALLOC_PORTABLE); });
}

cudaError_t CUDARTAPI cudaFreeHost(void *pointer) {
  return call([&] { return cuda().free_host(pointer); });
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void *target, const void *source, size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  static const auto in = found<decltype(cuMemcpyHtoDAsync)>("cuMemcpyHtoDAsync_v2");
  static const auto out = found<decltype(cuMemcpyDtoHAsync)>("cuMemcpyDtoHAsync_v2");
  static const auto across = found<decltype(cuMemcpyDtoDAsync)>("cuMemcpyDtoDAsync_v2");
  return call([&] {
    switch (kind) {
      case cudaMemcpyHostToDevice: return in(address(target), source, bytes, stream);
      case cudaMemcpyDeviceToHost: return out(target, address(source), bytes, stream);
      case cudaMemcpyDeviceToDevice: return across(address(target), address(source), bytes, stream);
      default: return cuda().copy(address(target), address(source), bytes, stream);
    }
  });
}

cudaError_t CUDARTAPI cudaMemcpy(void *target, const void *source, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(target, source, bytes, kind, nullptr);
  return error == cudaSuccess ? call([] { return cuda().wait_stream(nullptr); }) : error;
}

cudaError_t CUDARTAPI cudaMemsetAsync(void *target, int value, size_t bytes, cudaStream_t stream) {
  return call([&] { return cuda().fill(address(target), static_cast<unsigned char>(value), bytes, stream); });
}

// ---- streams and events ------------------------------------------------------------------------------------------

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  return call([&] { return cuda().make_stream(stream, flags, 0); });
}

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithFlags(stream, 0); }

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  return call([&] { return cuda().end_stream(stream); });
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  return call([&] { return cuda().wait_stream(stream); });
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) {
  return call([&] { return cuda().query_stream(stream); });
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return call([&] { return cuda().wait_event(stream, event, flags); });
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  return call([&] { return cuda().make_event(event, flags); });
}

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  return call([&] { return cuda().end_event(event); });
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&] { return cuda().record(event, stream); });
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  return call([&] { return cuda().query_event(event); });
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  return call([&] { return cuda().wait_for_event(event); });
}

// ---- errors ------------------------------------------------------------------------------------------------------

cudaError_t CUDARTAPI cudaPeekAtLastError(void) { return last_error; }

cudaError_t CUDARTAPI cudaGetLastError(void) {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

const char *CUDARTAPI cudaGetErrorName(cudaError_t error) {
  const char *name = nullptr;
  const bool is_known = cuda().error_name && cuda().error_name(static_cast<CUresult>(error), &name) == CUDA_SUCCESS;
  return is_known ? name : "unrecognized error code";
}

const char *CUDARTAPI cudaGetErrorString(cudaError_t error) {
  const char *words = nullptr;
  const bool is_known =
      cuda().error_string && cuda().error_string(static_cast<CUresult>(error), &words) == CUDA_SUCCESS;
  return is_known ? words : "unrecognized error code";
}

}  // extern "C"
