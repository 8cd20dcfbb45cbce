// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.hpp"

#include <dlfcn.h>

#include <mutex>

#include "base/shared_library.hpp"
#include "base/status.hpp"

namespace mxs {

namespace {

constexpr char file_name[] = "libcuda.so.1";

// The version first: an old driver is told by its number rather than by what it lacks.
void find_version(Symbols &symbols, Driver *driver) {
  symbols.find(&driver->get_version, "cuDriverGetVersion");
  symbols.find(&driver->init, "cuInit");
  symbols.find(&driver->get_error_name, "cuGetErrorName");
  symbols.find(&driver->get_error_string, "cuGetErrorString");
}

void find_devices(Symbols &symbols, Driver *driver) {
  symbols.find(&driver->device_get_count, "cuDeviceGetCount");
  symbols.find(&driver->device_get, "cuDeviceGet");
  symbols.find(&driver->device_get_name, "cuDeviceGetName");
  symbols.find(&driver->device_total_memory, "cuDeviceTotalMem_v2");
  symbols.find(&driver->device_get_attribute, "cuDeviceGetAttribute");
  symbols.find(&driver->device_get_pci_bus_id, "cuDeviceGetPCIBusId");
  symbols.find(&driver->primary_context_retain, "cuDevicePrimaryCtxRetain");
  symbols.find(&driver->primary_context_release, "cuDevicePrimaryCtxRelease_v2");
  symbols.find(&driver->context_get_current, "cuCtxGetCurrent");
  symbols.find(&driver->context_push, "cuCtxPushCurrent_v2");
  symbols.find(&driver->context_pop, "cuCtxPopCurrent_v2");
  symbols.find(&driver->context_get_device, "cuCtxGetDevice");
  symbols.find(&driver->context_get_stream_priority_range, "cuCtxGetStreamPriorityRange");
}

void find_memory(Symbols &symbols, Driver *driver) {
  symbols.find(&driver->memory_get_info, "cuMemGetInfo_v2");
  symbols.find(&driver->memory_allocate, "cuMemAlloc_v2");
  symbols.find(&driver->memory_free, "cuMemFree_v2");
  symbols.find(&driver->host_allocate, "cuMemHostAlloc");
  symbols.find(&driver->host_free, "cuMemFreeHost");
  symbols.find(&driver->memory_get_granularity, "cuMemGetAllocationGranularity");
  symbols.find(&driver->memory_create, "cuMemCreate");
  symbols.find(&driver->memory_release, "cuMemRelease");
  symbols.find(&driver->address_reserve, "cuMemAddressReserve");
  symbols.find(&driver->address_free, "cuMemAddressFree");
  symbols.find(&driver->memory_map, "cuMemMap");
  symbols.find(&driver->memory_unmap, "cuMemUnmap");
  symbols.find(&driver->memory_set_access, "cuMemSetAccess");
  symbols.find(&driver->copy_async, "cuMemcpyAsync");
  symbols.find(&driver->set_bytes_async, "cuMemsetD8Async");
  symbols.find(&driver->pointer_get_attributes, "cuPointerGetAttributes");
}

void find_streams(Symbols &symbols, Driver *driver) {
  symbols.find(&driver->stream_create, "cuStreamCreateWithPriority");
  symbols.find(&driver->stream_destroy, "cuStreamDestroy_v2");
  symbols.find(&driver->stream_synchronize, "cuStreamSynchronize");
  symbols.find(&driver->stream_wait_event, "cuStreamWaitEvent");
  symbols.find(&driver->stream_is_capturing, "cuStreamIsCapturing");
  symbols.find(&driver->stream_get_context, "cuStreamGetCtx");
  symbols.find(&driver->exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  symbols.find(&driver->stream_wait_value, "cuStreamWaitValue32_v2");
  symbols.find(&driver->launch_host_function, "cuLaunchHostFunc");
  symbols.find(&driver->event_create, "cuEventCreate");
  symbols.find(&driver->event_destroy, "cuEventDestroy_v2");
  symbols.find(&driver->event_record, "cuEventRecord");
  symbols.find(&driver->event_query, "cuEventQuery");
  symbols.find(&driver->module_load_data, "cuModuleLoadData");
  symbols.find(&driver->module_get_function, "cuModuleGetFunction");
  symbols.find(&driver->launch_kernel, "cuLaunchKernel");
}

mxs_status lacks(const Symbols &symbols, const std::string &version) {
  return set_error(MXS_NO_DEVICE, "%s%s has no %s: it is no CUDA driver of 12.0 or newer, or a broken one", file_name,
                   version.c_str(), symbols.missing);
}

mxs_status load(Driver *driver) {
  void *const library = dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return set_error(MXS_NO_DEVICE, "the CUDA driver can't be loaded: %.300s; CUDA memory wants NVIDIA's driver "
                     "of CUDA 12.0 at least, which brings %s", dlerror(), file_name);
  Symbols symbols{library};
  find_version(symbols, driver);
  if (symbols.missing) return lacks(symbols, "");
  CUresult result = driver->get_version(&driver->version);
  if (result != CUDA_SUCCESS)
    return set_error(MXS_NO_DEVICE, "cuDriverGetVersion: %s", error_text(*driver, result).c_str());
  if (driver->version < driver_version_min)
    return set_error(MXS_NO_DEVICE, "the CUDA driver is %s, but %s is the oldest that the library can use; update the "
                     "driver", version_text(driver->version).c_str(), version_text(driver_version_min).c_str());
  find_devices(symbols, driver);
  find_memory(symbols, driver);
  find_streams(symbols, driver);
  if (symbols.missing) return lacks(symbols, " of CUDA " + version_text(driver->version));
  result = driver->init(0);
  if (result == CUDA_ERROR_NO_DEVICE) return set_error(MXS_NO_DEVICE, "the CUDA driver %s sees no GPU: cuInit: %s "
                                                       "(CUDA_VISIBLE_DEVICES hides GPUs, too)",
                                                       version_text(driver->version).c_str(),
                                                       error_text(*driver, result).c_str());
  if (result == CUDA_ERROR_NOT_INITIALIZED)
    return set_error(MXS_NO_DEVICE, "cuInit: %s; a forked child can't use CUDA once its parent has begun to",
                     error_text(*driver, result).c_str());
  if (result != CUDA_SUCCESS)
    return set_error(MXS_NO_DEVICE, "the CUDA driver %s does not begin: cuInit: %s",
                     version_text(driver->version).c_str(), error_text(*driver, result).c_str());
  return MXS_OK;
}

}  // namespace

mxs_status load_driver(const Driver **driver) {
  static std::mutex mutex;
  static Driver table;
  static bool is_loaded = false;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!is_loaded) {
    table = Driver{};
    const mxs_status status = load(&table);
    if (status != MXS_OK) return status;
    is_loaded = true;
  }
  *driver = &table;
  return MXS_OK;
}

std::string error_text(const Driver &driver, CUresult result) {
  const char *name = nullptr, *words = nullptr;
  const bool has_name = driver.get_error_name && driver.get_error_name(result, &name) == CUDA_SUCCESS && name;
  const bool has_words = driver.get_error_string && driver.get_error_string(result, &words) == CUDA_SUCCESS && words;
  std::string text = has_name ? name : "CUDA error " + std::to_string(static_cast<int>(result));
  if (has_words) text.append(" (").append(words).append(")");
  return text;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

mxs_status driver_failed(const Driver &driver, CUresult result, int device, const char *call, const char *what) {
  const mxs_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? MXS_OUT_OF_MEMORY : MXS_DEVICE_FAILED;
  return set_error(status, "%s on device %d: %s%s%s", call, device, error_text(driver, result).c_str(),
                   *what ? ": " : "", what);
}

}  // namespace mxs
