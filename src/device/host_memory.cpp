// SPDX-License-Identifier: Apache-2.0
// Asks the driver that a framework has loaded, by its function for pointers of any kind, which wants no context. Its
// types and numbers are those of cuda.h, which this library is built without.
#include "device/host_memory.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>

#include "base/status.hpp"

namespace mxs {

namespace {

using PointerAttributes = int (*)(unsigned count, const int *names, void **values, unsigned long long address);
constexpr int memory_type_name = 2, is_managed_name = 8;  // CU_POINTER_ATTRIBUTE_...
constexpr unsigned device_memory_type = 2;                // CU_MEMORYTYPE_DEVICE

PointerAttributes driver_function() {
  static std::atomic<PointerAttributes> known{nullptr};
  PointerAttributes function = known.load(std::memory_order_relaxed);
  if (function) return function;
  void *const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!driver) return nullptr;
  // It stays loaded: its own users don't unload it either.
  function = reinterpret_cast<PointerAttributes>(dlsym(driver, "cuPointerGetAttributes"));
  known.store(function, std::memory_order_relaxed);
  return function;
}

}  // namespace

mxs_status check_host_memory(const char *what, const void *memory) {
  const PointerAttributes attributes = memory ? driver_function() : nullptr;
  if (!attributes) return MXS_OK;
  unsigned type = 0;
  int managed = 0;
  const int names[] = {memory_type_name, is_managed_name};
  void *values[] = {&type, &managed};
  // A driver that nobody has begun refuses, and then there is no device memory.
  const bool answered = attributes(2, names, values, reinterpret_cast<uintptr_t>(memory)) == 0;
  if (!answered || type != device_memory_type || managed) return MXS_OK;
  return set_error(MXS_INVALID_ARGUMENT, "%s (%p) is memory of a CUDA device, but host memory is wanted here: pass "
                   "that, or create with memory MXS_CUDA", what, memory);
}

}  // namespace mxs
