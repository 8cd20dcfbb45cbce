// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include <dlfcn.h>

namespace standin {

namespace {

template <class Function>
bool find(void *file, const char *symbol, Function *function) {
  *function = reinterpret_cast<Function>(dlsym(file, symbol));
  return *function != nullptr;
}

bool fill(void *file, Driver *driver) {
  return find(file, "cuInit", &driver->init) && find(file, "cuDeviceGet", &driver->device_get) &&
         find(file, "cuDeviceGetAttribute", &driver->device_get_attribute) &&
         find(file, "cuDeviceGetPCIBusId", &driver->device_get_pci_bus_id) &&
         find(file, "cuDevicePrimaryCtxRetain", &driver->primary_context_retain) &&
         find(file, "cuCtxGetCurrent", &driver->context_get_current) &&
         find(file, "cuCtxGetDevice", &driver->context_get_device) &&
         find(file, "cuCtxPushCurrent_v2", &driver->context_push) &&
         find(file, "cuCtxPopCurrent_v2", &driver->context_pop) &&
         find(file, "cuMemAlloc_v2", &driver->memory_allocate) && find(file, "cuMemFree_v2", &driver->memory_free) &&
         find(file, "cuMemHostRegister_v2", &driver->host_register) &&
         find(file, "cuMemcpyAsync", &driver->copy_async) &&
         find(file, "cuPointerGetAttributes", &driver->pointer_get_attributes) &&
         find(file, "cuStreamWaitEvent", &driver->stream_wait_event) &&
         find(file, "cuStreamWaitValue32_v2", &driver->stream_wait_value) &&
         find(file, "cuStreamIsCapturing", &driver->stream_is_capturing) &&
         find(file, "cuThreadExchangeStreamCaptureMode", &driver->exchange_capture_mode) &&
         find(file, "cuLaunchHostFunc", &driver->launch_host_function) &&
         find(file, "cuEventCreate", &driver->event_create) &&
         find(file, "cuEventDestroy_v2", &driver->event_destroy) &&
         find(file, "cuEventRecord", &driver->event_record) && find(file, "cuEventQuery", &driver->event_query);
}

}  // namespace

const Driver *driver() {
  static const Driver *const found = []() -> const Driver * {
    void *const file = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    static Driver table;
    if (!file || !fill(file, &table) || table.init(0) != CUDA_SUCCESS) return nullptr;
    return &table;
  }();
  return found;
}

}  // namespace standin
