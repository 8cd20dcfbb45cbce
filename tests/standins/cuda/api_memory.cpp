// SPDX-License-Identifier: Apache-2.0
// Allocations, pinned and registered host memory, reserved addresses and blocks, what is known of a pointer.
#include <cstring>

#include "driver.hpp"

using namespace standin;

namespace {

// MXS_STANDIN_MEMORY and MXS_STANDIN_FAIL_ALLOCATION_AFTER.
bool has_room(int device, uint64_t bytes) {
  Driver &all = driver();
  int64_t &left = all.switches.allocations_left;
  if (left == 0) return false;
  if (left > 0) --left;
  const uint64_t used = all.memory.used_bytes(device);
  return used <= all.switches.memory_bytes && bytes <= all.switches.memory_bytes - used;
}

CUresult allocate(CUdeviceptr *address, uint64_t bytes, RangeKind kind, Context &context, unsigned flags) {
  if (!address || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult refused = refuse_in_capture(); refused != CUDA_SUCCESS) return refused;
  const bool counts = kind != RangeKind::pinned;
  if (!has_room(context.device, counts ? bytes : 0)) return CUDA_ERROR_OUT_OF_MEMORY;
  const uintptr_t made = driver().memory.allocate(kind, context.device, bytes, flags);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = made;
  return CUDA_SUCCESS;
}

CUresult free_one(Lock &lock, Context &context, uintptr_t address, RangeKind kind) {
  Memory &memory = driver().memory;
  if (const CUresult refused = refuse_in_capture(); refused != CUDA_SUCCESS) return refused;
  const Place place = memory.find(address);
  if (place.begin != address || !place.is_range) return CUDA_ERROR_INVALID_VALUE;
  Context &owner = kind == RangeKind::pinned ? context : *driver().contexts[static_cast<size_t>(place.device)];
  if (const CUresult result = wait_for_all(lock, owner); result != CUDA_SUCCESS) return result;
  const bool is_kind = (kind == RangeKind::pinned && place.kind == PlaceKind::pinned) ||
                       (kind == RangeKind::device && place.kind == PlaceKind::device) ||
                       (kind == RangeKind::managed && place.kind == PlaceKind::managed);
  if (!is_kind || !memory.begins(address, kind)) return CUDA_ERROR_INVALID_VALUE;
  const bool is_hurt = memory.overran(address);
  memory.free(address, kind);
  if (!is_hurt) return CUDA_SUCCESS;
  complain("bytes around the allocation of %llu bytes at %p were written", static_cast<unsigned long long>(place.bytes),
           reinterpret_cast<void *>(address));
  return owner.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
}

bool is_granular(uint64_t bytes) { return bytes > 0 && bytes % granule_bytes == 0; }

CUresult check_properties(const CUmemAllocationProp *properties) {
  if (!driver().switches.has_vmm) return CUDA_ERROR_NOT_SUPPORTED;
  if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  const int device = properties->location.id;
  return device >= 0 && static_cast<size_t>(device) < driver().contexts.size() ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_DEVICE;
}

// For calls of virtual memory management, which want no context.
template <class Body>
CUresult call_of_maps(const char *name, Body body) {
  return call(name, [&](Lock &lock) { return driver().switches.has_vmm ? body(lock) : CUDA_ERROR_NOT_SUPPORTED; });
}

bool is_accessible(const CUmemAccessDesc &description) {
  return description.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

// False: this place has no such attribute.
bool pointer_attribute(CUpointer_attribute name, const Place &place, uintptr_t address, void *value) {
  const bool is_device = place.kind == PlaceKind::device || place.kind == PlaceKind::managed;
  CUcontext owner = nullptr;
  if (place.device >= 0)
    owner = reinterpret_cast<CUcontext>(driver().contexts[static_cast<size_t>(place.device)].get());
  const auto put = [value](auto item) { std::memcpy(value, &item, sizeof item); };
  switch (name) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return put(owner), true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return put(is_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST), true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put(CUdeviceptr{address}), true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (place.kind == PlaceKind::device) return false;
      return put(reinterpret_cast<void *>(address)), true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put(place.number), true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put(unsigned{place.kind == PlaceKind::managed}), true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put(place.device), true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put(CUdeviceptr{place.begin}), true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put(size_t{place.bytes}), true;
    case CU_POINTER_ATTRIBUTE_MAPPED: return put(bool{place.kind != PlaceKind::nothing}), true;
    default: return false;
  }
}

size_t attribute_bytes(CUpointer_attribute name) {
  switch (name) {
    case CU_POINTER_ATTRIBUTE_MAPPED: return sizeof(bool);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return sizeof(unsigned);
    default: return sizeof(uint64_t);
  }
}

bool is_known(const Place &place) { return place.is_range && place.kind != PlaceKind::nothing; }

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  return call_in_context("cuMemGetInfo_v2", [&](Lock &, Context &context) {
    const uint64_t total = driver().switches.memory_bytes, used = driver().memory.used_bytes(context.device);
    if (free_bytes) *free_bytes = used < total ? total - used : 0;
    if (total_bytes) *total_bytes = total;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t bytes) {
  return call_in_context("cuMemAlloc_v2", [&](Lock &, Context &context) {
    return allocate(address, bytes, RangeKind::device, context, 0);
  });
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
  return call_in_context("cuMemAllocManaged", [&](Lock &, Context &context) {
    return allocate(address, bytes, RangeKind::managed, context, flags);
  });
}

// Waits for the device, as the driver does.
CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
  return call_in_context("cuMemFree_v2", [&](Lock &lock, Context &context) {
    if (address == 0) return CUDA_SUCCESS;
    const bool is_managed = driver().memory.find(address).kind == PlaceKind::managed;
    return free_one(lock, context, address, is_managed ? RangeKind::managed : RangeKind::device);
  });
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *begin, size_t *bytes, CUdeviceptr address) {
  return call_in_context("cuMemGetAddressRange_v2", [&](Lock &, Context &) {
    const Place place = driver().memory.find(address);
    if (!is_known(place)) return CUDA_ERROR_NOT_FOUND;
    if (begin) *begin = place.begin;
    if (bytes) *bytes = place.bytes;
    return CUDA_SUCCESS;
  });
}

// ---- host memory -------------------------------------------------------------------------------------------------

CUresult CUDAAPI cuMemHostAlloc(void **address, size_t bytes, unsigned int flags) {
  return call_in_context("cuMemHostAlloc", [&](Lock &, Context &context) {
    CUdeviceptr made = 0;
    if (!address) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = allocate(&made, bytes, RangeKind::pinned, context, flags);
    if (result == CUDA_SUCCESS) *address = reinterpret_cast<void *>(made);
    return result;
  });
}

CUresult CUDAAPI cuMemAllocHost(void **address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

CUresult CUDAAPI cuMemFreeHost(void *address) {
  return call_in_context("cuMemFreeHost", [&](Lock &lock, Context &context) {
    if (!address) return CUDA_ERROR_INVALID_VALUE;
    return free_one(lock, context, reinterpret_cast<uintptr_t>(address), RangeKind::pinned);
  });
}

CUresult CUDAAPI cuMemHostRegister(void *address, size_t bytes, unsigned int flags) {
  return call_in_context("cuMemHostRegister_v2", [&](Lock &, Context &) {
    if (!address || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = refuse_in_capture(); refused != CUDA_SUCCESS) return refused;
    return driver().memory.enter_registered(reinterpret_cast<uintptr_t>(address), bytes, flags)
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  });
}

CUresult CUDAAPI cuMemHostUnregister(void *address) {
  return call_in_context("cuMemHostUnregister", [&](Lock &lock, Context &context) {
    if (const CUresult refused = refuse_in_capture(); refused != CUDA_SUCCESS) return refused;
    if (const CUresult result = wait_for_all(lock, context); result != CUDA_SUCCESS) return result;
    return driver().memory.leave_registered(reinterpret_cast<uintptr_t>(address))
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  });
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *device, void *host, unsigned int flags) {
  return call_in_context("cuMemHostGetDevicePointer_v2", [&](Lock &, Context &) {
    const auto address = reinterpret_cast<uintptr_t>(host);
    if (!device || flags || driver().memory.find(address).kind != PlaceKind::pinned) return CUDA_ERROR_INVALID_VALUE;
    *device = address;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int *flags, void *host) {
  return call_in_context("cuMemHostGetFlags", [&](Lock &, Context &) {
    if (!flags || driver().memory.find(reinterpret_cast<uintptr_t>(host)).kind != PlaceKind::pinned)
      return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  });
}

// ---- reserved addresses and blocks -------------------------------------------------------------------------------

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                               CUmemAllocationGranularity_flags option) {
  return call_of_maps("cuMemGetAllocationGranularity", [&](Lock &) {
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
      return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = check_properties(properties);
    if (result == CUDA_SUCCESS) *granularity = granule_bytes;
    return result;
  });
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                     unsigned long long flags) {
  return call_of_maps("cuMemAddressReserve", [&](Lock &) {
    if (!address || flags || !is_granular(bytes) || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
    const uintptr_t made = driver().memory.reserve(bytes, alignment, wanted);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = made;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return call_of_maps("cuMemAddressFree", [&](Lock &) { return driver().memory.free_reserved(address, bytes); });
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                             unsigned long long flags) {
  return call_of_maps("cuMemCreate", [&](Lock &) {
    if (!handle || flags || !is_granular(bytes)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = check_properties(properties);
    if (result != CUDA_SUCCESS) return result;
    if (!has_room(properties->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUmemGenericAllocationHandle made = driver().memory.create_block(properties->location.id, bytes);
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = made;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  return call_of_maps("cuMemRelease", [&](Lock &) { return driver().memory.release_block(handle); });
}

// cuda.h of the offset: "currently must be zero".
CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
  return call_of_maps("cuMemMap", [&](Lock &) {
    if (flags || offset || !is_granular(bytes) || address % granule_bytes) return CUDA_ERROR_INVALID_VALUE;
    return driver().memory.map(address, bytes, handle);
  });
}

// Doesn't wait: a job that still uses the addresses fails.
CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return call_of_maps("cuMemUnmap", [&](Lock &) {
    if (!is_granular(bytes) || address % granule_bytes) return CUDA_ERROR_INVALID_VALUE;
    return driver().memory.unmap(address, bytes);
  });
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descriptions, size_t count) {
  return call_of_maps("cuMemSetAccess", [&](Lock &) {
    if (!is_granular(bytes) || address % granule_bytes || !descriptions || count == 0) return CUDA_ERROR_INVALID_VALUE;
    bool allows = false;
    for (size_t i = 0; i < count; ++i) {
      const int device = descriptions[i].location.id;
      if (descriptions[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      if (device < 0 || static_cast<size_t>(device) >= driver().contexts.size()) return CUDA_ERROR_INVALID_DEVICE;
      allows |= is_accessible(descriptions[i]);
    }
    return driver().memory.set_access(address, bytes, allows);
  });
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
  return call_of_maps("cuMemGetAccess", [&](Lock &) {
    if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
    const bool is_open = driver().memory.find(address).kind == PlaceKind::device;
    *flags = is_open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  return call_of_maps("cuMemRetainAllocationHandle", [&](Lock &) {
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    const CUmemGenericAllocationHandle found = driver().memory.retain_block_at(reinterpret_cast<uintptr_t>(address));
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    *handle = found;
    return CUDA_SUCCESS;
  });
}

// ---- pointers ----------------------------------------------------------------------------------------------------

CUresult CUDAAPI cuPointerGetAttribute(void *value, CUpointer_attribute name, CUdeviceptr address) {
  return call_in_context("cuPointerGetAttribute", [&](Lock &, Context &) {
    const Place place = driver().memory.find(address);
    if (!value || !is_known(place)) return CUDA_ERROR_INVALID_VALUE;
    return pointer_attribute(name, place, address, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

// Unknown pointers have attributes of zero here, which is no failure.
CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute *names, void **values,
                                        CUdeviceptr address) {
  return call("cuPointerGetAttributes", [&](Lock &) {
    if (!names || !values || count == 0) return CUDA_ERROR_INVALID_VALUE;
    const Place place = driver().memory.find(address);
    for (unsigned i = 0; i < count; ++i) {
      if (is_known(place) && pointer_attribute(names[i], place, address, values[i])) continue;
      const int32_t no_device = -2;
      if (names[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) std::memcpy(values[i], &no_device, sizeof no_device);
      else std::memset(values[i], 0, attribute_bytes(names[i]));
    }
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
