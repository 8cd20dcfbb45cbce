// SPDX-License-Identifier: Apache-2.0
// cuInit, devices, primary contexts, and what is current on a thread.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver.hpp"

namespace standin {

namespace {

// CUDA_VISIBLE_DEVICES: numbers up to the first that doesn't exist, as the driver reads it.
std::vector<int> visible_devices(int device_count) {
  std::vector<int> visible;
  const char *text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!text) {
    for (int i = 0; i < device_count; ++i) visible.push_back(i);
    return visible;
  }
  while (*text) {
    char *end = nullptr;
    const long number = std::strtol(text, &end, 10);
    if (end == text || number < 0 || number >= device_count) break;
    visible.push_back(static_cast<int>(number));
    text = *end == ',' ? end + 1 : end;
    if (*end && *end != ',') break;
  }
  return visible;
}

Context *context_of(CUdevice device) {
  auto &contexts = driver().contexts;
  return device >= 0 && static_cast<size_t>(device) < contexts.size() ? contexts[static_cast<size_t>(device)].get()
                                                                      : nullptr;
}

CUcontext handle_of(Context *context) { return reinterpret_cast<CUcontext>(context); }

// Null if it is none of ours.
Context *context_at(CUcontext handle) {
  for (const auto &context : driver().contexts)
    if (handle_of(context.get()) == handle) return context.get();
  return nullptr;
}

std::string pci_address(CUdevice device) {
  const int physical = driver().visible[static_cast<size_t>(device)];
  const auto &given = driver().switches.pci_addresses;
  if (static_cast<size_t>(physical) < given.size()) return given[static_cast<size_t>(physical)];
  char text[32];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", 0x81 + physical);
  return text;
}

int pci_part(CUdevice device, int part) {
  unsigned domain = 0, bus = 0, number = 0;
  std::sscanf(pci_address(device).c_str(), "%x:%x:%x", &domain, &bus, &number);
  return static_cast<int>(part == 0 ? domain : part == 1 ? bus : number);
}

int attribute(CUdevice_attribute name, CUdevice device) {
  const Switches &switches = driver().switches;
  switch (name) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return switches.compute / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return switches.compute % 10;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 4;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 4 << 20;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 2;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: return 1;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: return 1;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: return 1;
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: return 1;
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: return switches.has_vmm;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return switches.has_vmm;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: return switches.has_wait_value;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: return pci_part(device, 0);
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return pci_part(device, 1);
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return pci_part(device, 2);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: return CU_COMPUTEMODE_DEFAULT;
    default: return 0;
  }
}

// For calls about a device, which want no context.
template <class Body>
CUresult call_of_device(const char *name, CUdevice device, Body body) {
  return call(name, [&](Lock &lock) {
    Context *const context = context_of(device);
    return context ? body(lock, *context) : CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult begin() {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> begin_lock(mutex);
  Driver &all = driver();
  if (all.is_begun) return all.process == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  Lock lock(all.mutex);
  all.switches = switches_of_environment();
  all.visible = visible_devices(all.switches.device_count);
  if (all.visible.empty()) return CUDA_ERROR_NO_DEVICE;
  for (size_t i = 0; i < all.visible.size(); ++i) {
    all.contexts.push_back(std::make_unique<Context>());
    all.contexts.back()->device = static_cast<int>(i);
  }
  all.memory.set_guard(all.switches.guards);
  all.process = getpid();
  catch_faults();
  std::atexit(end_driver);
  __atomic_store_n(&all.is_begun, true, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

// The last reference is gone: streams, events and memory go with it.
CUresult destroy(Lock &lock, Context &context) {
  Driver &all = driver();
  end_streams(lock, context);
  std::erase_if(all.events, [&](const auto &item) { return item.second->context == &context; });
  std::erase_if(all.graphs, [&](const auto &item) { return item.second->context == &context; });
  std::erase_if(all.graph_execs, [&](const auto &item) { return item.second->context == &context; });
  for (const CUmodule module : context.modules) {
    for (const auto &[name, function] : all.modules[module]) all.functions.erase(function.get());
    all.modules.erase(module);
  }
  context.modules.clear();
  all.memory.free_all(context.device);
  context.legacy = nullptr;
  context.sticky = CUDA_SUCCESS;
  context.retained = 0;
  return CUDA_SUCCESS;
}

}  // namespace

}  // namespace standin

using namespace standin;

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) { return flags == 0 ? begin() : CUDA_ERROR_INVALID_VALUE; }

// The one call that wants no cuInit.
CUresult CUDAAPI cuDriverGetVersion(int *version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = driver().is_begun ? driver().switches.driver_version : switches_of_environment().driver_version;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *count) {
  return call("cuDeviceGetCount", [&](Lock &) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<int>(driver().contexts.size());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal) {
  return call_of_device("cuDeviceGet", ordinal, [&](Lock &, Context &) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetName(char *name, int length, CUdevice device) {
  return call_of_device("cuDeviceGetName", device, [&](Lock &, Context &) {
    if (!name || length < 1) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<size_t>(length), "Stand-in GPU");
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  return call_of_device("cuDeviceGetUuid_v2", device, [&](Lock &, Context &) {
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    std::memset(uuid->bytes, 0x51, sizeof uuid->bytes);
    uuid->bytes[15] = static_cast<char>(driver().visible[static_cast<size_t>(device)]);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice device) {
  return call_of_device("cuDeviceTotalMem_v2", device, [&](Lock &, Context &) {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    *bytes = driver().switches.memory_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute name, CUdevice device) {
  return call_of_device("cuDeviceGetAttribute", device, [&](Lock &, Context &) {
    if (!value || name < 1 || name >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    *value = attribute(name, device);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
  return call_of_device("cuDeviceGetPCIBusId", device, [&](Lock &, Context &) {
    if (!text || length < 1) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(text, static_cast<size_t>(length), "%s", pci_address(device).c_str());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
  return call("cuDeviceGetByPCIBusId", [&](Lock &) {
    if (!device || !text) return CUDA_ERROR_INVALID_VALUE;
    for (CUdevice i = 0; i < static_cast<int>(driver().contexts.size()); ++i)
      if (strcasecmp(pci_address(i).c_str(), text) == 0) {
        *device = i;
        return CUDA_SUCCESS;
      }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  return call_of_device("cuDeviceCanAccessPeer", device, [&](Lock &, Context &) {
    if (!can || !context_of(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer;
    return CUDA_SUCCESS;
  });
}

// ---- primary contexts --------------------------------------------------------------------------------------------

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice device) {
  return call_of_device("cuDevicePrimaryCtxRetain", device, [&](Lock &, Context &context) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    if (context.retained++ == 0) {
      context.legacy = make_stream(context, CU_STREAM_DEFAULT, 0);
      context.legacy->is_legacy = true;
    }
    *handle = handle_of(&context);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  return call_of_device("cuDevicePrimaryCtxRelease_v2", device, [&](Lock &lock, Context &context) {
    if (context.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (context.retained == 1) return destroy(lock, context);
    --context.retained;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
  return call_of_device("cuDevicePrimaryCtxReset_v2", device, [&](Lock &lock, Context &context) {
    return context.retained ? destroy(lock, context) : CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return call_of_device("cuDevicePrimaryCtxSetFlags_v2", device, [&](Lock &, Context &context) {
    context.flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *is_active) {
  return call_of_device("cuDevicePrimaryCtxGetState", device, [&](Lock &, Context &context) {
    if (!flags || !is_active) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    *is_active = context.retained > 0;
    return CUDA_SUCCESS;
  });
}

// ---- current -----------------------------------------------------------------------------------------------------

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *handle) {
  return call("cuCtxGetCurrent", [&](Lock &) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    *handle = handle_of(current_context());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle) {
  return call("cuCtxSetCurrent", [&](Lock &) {
    Context *const context = context_at(handle);
    if (handle && (!context || context->retained == 0)) return CUDA_ERROR_INVALID_CONTEXT;
    auto &stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext handle) {
  return call("cuCtxPushCurrent_v2", [&](Lock &) {
    Context *const context = context_at(handle);
    if (!context || context->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext *handle) {
  return call("cuCtxPopCurrent_v2", [&](Lock &) {
    if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle) *handle = handle_of(current_context());
    context_stack().pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device) {
  return call("cuCtxGetDevice", [&](Lock &) {
    if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    *device = current_context()->device;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int *version) {
  return call("cuCtxGetApiVersion", [&](Lock &) {
    if (handle && !context_at(handle)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int *flags) {
  return call_in_context("cuCtxGetFlags", [&](Lock &, Context &context) {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSynchronize(void) {
  return call_in_context("cuCtxSynchronize", [&](Lock &lock, Context &context) {
    const CUresult refused = refuse_in_capture();
    return refused == CUDA_SUCCESS ? wait_for_all(lock, context) : refused;
  });
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  return call_in_context("cuCtxGetStreamPriorityRange", [&](Lock &, Context &) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return call_in_context("cuCtxEnablePeerAccess", [&](Lock &, Context &context) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    return context_at(peer) && context_at(peer) != &context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  });
}

}  // extern "C"
