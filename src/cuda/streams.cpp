// SPDX-License-Identifier: Apache-2.0
// Streams, events, and what is put on a stream.
#include <cinttypes>
#include <cstdio>

#include "base/status.hpp"
#include "cuda/device.hpp"

namespace mxs {

namespace {

std::string bytes_to(uint64_t bytes, const void *target) {
  char text[64];
  std::snprintf(text, sizeof text, "%" PRIu64 " bytes to %p", bytes, target);
  return text;
}

std::string bytes_between(uint64_t bytes, const void *target, const void *source) {
  char text[32];
  std::snprintf(text, sizeof text, ", from %p", source);
  return bytes_to(bytes, target) + text;
}

}  // namespace

mxs_status CudaDevice::create_stream(DeviceStream *stream) {
  CUstream made = nullptr;
  const mxs_status status = run("cuStreamCreateWithPriority", [&] {
    int least = 0, greatest = 0;  // lower numbers come first
    const CUresult result = driver_.context_get_stream_priority_range(&least, &greatest);
    return result == CUDA_SUCCESS ? driver_.stream_create(&made, CU_STREAM_NON_BLOCKING, greatest) : result;
  });
  if (status == MXS_OK) *stream = made;
  return status;
}

void CudaDevice::destroy_stream(DeviceStream stream) {
  const CurrentContext current(driver_, context_);
  if (stream && current.result() == CUDA_SUCCESS) driver_.stream_destroy(stream_of(stream));
}

mxs_status CudaDevice::create_event(DeviceEvent *event) {
  CUevent made = nullptr;
  const mxs_status status = run("cuEventCreate", [&] { return driver_.event_create(&made, CU_EVENT_DISABLE_TIMING); });
  if (status == MXS_OK) *event = made;
  return status;
}

void CudaDevice::destroy_event(DeviceEvent event) {
  const CurrentContext current(driver_, context_);
  if (event && current.result() == CUDA_SUCCESS) driver_.event_destroy(event_of(event));
}

mxs_status CudaDevice::record(DeviceEvent event, DeviceStream stream) {
  return run("cuEventRecord", [&] { return driver_.event_record(event_of(event), stream_of(stream)); });
}

mxs_status CudaDevice::wait(DeviceStream stream, DeviceEvent event) {
  return run("cuStreamWaitEvent", [&] { return driver_.stream_wait_event(stream_of(stream), event_of(event), 0); });
}

mxs_status CudaDevice::query(DeviceEvent event) {
  const CurrentContext current(driver_, context_);
  const RelaxedCapture relaxed(driver_);
  CUresult result = current.result();
  if (result == CUDA_SUCCESS) result = driver_.event_query(event_of(event));
  if (result == CUDA_ERROR_NOT_READY) return MXS_IN_PROGRESS;
  return result == CUDA_SUCCESS ? MXS_OK : failed(result, "cuEventQuery", "");
}

mxs_status CudaDevice::synchronize(DeviceStream stream) {
  return run("cuStreamSynchronize", [&] { return driver_.stream_synchronize(stream_of(stream)); });
}

// A caller's stream comes here before anything is put on it: one of another device is refused while nothing is lost.
mxs_status CudaDevice::is_capturing(DeviceStream stream, bool *capturing) {
  CUcontext owner = context_;
  if (stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) {
    const mxs_status known =
        run("cuStreamGetCtx", [&] { return driver_.stream_get_context(stream_of(stream), &owner); });
    if (known != MXS_OK) return known;
  }
  if (owner != context_)
    return set_error(MXS_INVALID_ARGUMENT, "call.stream, %p, is not a stream of device %d (%s): it belongs to another "
                     "device, or to a context that is not the device's primary one", stream, info_.index,
                     info_.name.c_str());
  CUstreamCaptureStatus found = CU_STREAM_CAPTURE_STATUS_NONE;
  const mxs_status status =
      run("cuStreamIsCapturing", [&] { return driver_.stream_is_capturing(stream_of(stream), &found); });
  if (status == MXS_OK) *capturing = found != CU_STREAM_CAPTURE_STATUS_NONE;
  return status;
}

mxs_status CudaDevice::wait_value(DeviceStream stream, const uint32_t *flag, uint32_t value) {
  if (!info_.waits_values)
    return set_error(MXS_NOT_BUILT, "streams of device %d (%s) can't wait for a value in memory", info_.index,
                     info_.name.c_str());
  return run("cuStreamWaitValue32", [&] {
    return driver_.stream_wait_value(stream_of(stream), device_pointer(flag), value, CU_STREAM_WAIT_VALUE_GEQ);
  });
}

mxs_status CudaDevice::call_host(DeviceStream stream, void (*function)(void *context), void *context) {
  return run("cuLaunchHostFunc", [&] { return driver_.launch_host_function(stream_of(stream), function, context); });
}

mxs_status CudaDevice::copy(void *target, const void *source, uint64_t bytes, DeviceStream stream) {
  if (bytes == 0) return MXS_OK;
  return run("cuMemcpyAsync", [&] {
    return driver_.copy_async(device_pointer(target), device_pointer(source), bytes, stream_of(stream));
  }, [&] { return bytes_between(bytes, target, source); });
}

mxs_status CudaDevice::zero(void *target, uint64_t bytes, DeviceStream stream) {
  if (bytes == 0) return MXS_OK;
  return run("cuMemsetD8Async", [&] {
    return driver_.set_bytes_async(device_pointer(target), 0, bytes, stream_of(stream));
  }, [&] { return bytes_to(bytes, target); });
}

}  // namespace mxs
