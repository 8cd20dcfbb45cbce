// SPDX-License-Identifier: Apache-2.0
// Copies and fills. Every pointer is looked up when the call is made, and again when the job runs: what was freed or
// unmapped in between is CUDA_ERROR_ILLEGAL_ADDRESS.
//
// A copy from or to host memory that isn't pinned returns when it is over, as the driver stages it.
#include <cstring>

#include "driver.hpp"

using namespace standin;

namespace {

enum class Side { any, host, device };

struct Copy {
  uintptr_t target = 0, source = 0;
  uint64_t bytes = 0;
  Side target_side = Side::any, source_side = Side::any;
  bool waits = false;
};

bool fits(const Place &place, Side side) {
  if (place.kind == PlaceKind::nothing) return false;
  if (side == Side::host) return place.kind != PlaceKind::device;
  if (side == Side::device) return place.kind != PlaceKind::host;  // pinned memory has the same address on the device
  return true;
}

bool overlap(const Copy &copy) {
  return copy.target < copy.source + copy.bytes && copy.source < copy.target + copy.bytes;
}

// Both ends are still there; with the lock.
bool stands(const Copy &copy) {
  const Memory &memory = driver().memory;
  return fits(memory.find(copy.target, copy.bytes), copy.target_side) &&
         fits(memory.find(copy.source, copy.bytes), copy.source_side);
}

CUresult check(const Copy &copy) {
  if (!copy.target || !copy.source) return CUDA_ERROR_INVALID_VALUE;
  if (!stands(copy)) return CUDA_ERROR_INVALID_VALUE;
  if (!overlap(copy)) return CUDA_SUCCESS;
  complain("a copy of %llu bytes from %p to %p overlaps itself", static_cast<unsigned long long>(copy.bytes),
           reinterpret_cast<void *>(copy.source), reinterpret_cast<void *>(copy.target));
  return CUDA_ERROR_INVALID_VALUE;
}

std::string words(const char *what, uint64_t bytes, uintptr_t target) {
  char text[96];
  std::snprintf(text, sizeof text, "%s of %llu bytes to %p", what, static_cast<unsigned long long>(bytes),
                reinterpret_cast<void *>(target));
  return text;
}

Job job_of(const Copy &copy) {
  Job job;
  job.kind = JobKind::device;
  job.name = words("copy", copy.bytes, copy.target);
  job.body = [copy] {
    Lock lock(driver().mutex);
    const bool is_there = stands(copy);
    lock.unlock();
    if (!is_there) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memcpy(reinterpret_cast<void *>(copy.target), reinterpret_cast<const void *>(copy.source), copy.bytes);
    return CUDA_SUCCESS;
  };
  return job;
}

bool is_pageable(const Copy &copy) {
  const Memory &memory = driver().memory;
  return memory.find(copy.target, copy.bytes).kind == PlaceKind::host ||
         memory.find(copy.source, copy.bytes).kind == PlaceKind::host;
}

CUresult copy_memory(const char *name, const Copy &copy, CUstream handle) {
  return call_in_context(name, [&](Lock &lock, Context &context) {
    const StreamPointer stream = find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (copy.bytes == 0) return CUDA_SUCCESS;
    CUresult result = check(copy);
    if (result == CUDA_SUCCESS && copy.waits) result = refuse_legacy(stream);
    if (result == CUDA_SUCCESS && copy.waits) result = refuse_in_capture();
    if (result != CUDA_SUCCESS) return result;
    TicketPointer ticket;
    result = enqueue(stream, job_of(copy), &ticket);
    if (result != CUDA_SUCCESS) return result;
    return ticket && (copy.waits || is_pageable(copy)) ? wait_for(lock, *stream->context, ticket) : CUDA_SUCCESS;
  });
}

uintptr_t address_of(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }

template <class Item>
CUresult fill_memory(const char *name, CUdeviceptr target, Item value, size_t count, CUstream handle, bool waits) {
  return call_in_context(name, [&](Lock &lock, Context &context) {
    const StreamPointer stream = find_stream(context, handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (count == 0) return CUDA_SUCCESS;
    const uint64_t bytes = count * sizeof value;
    if (target % sizeof value || !fits(driver().memory.find(target, bytes), Side::device))
      return CUDA_ERROR_INVALID_VALUE;
    if (waits)
      if (const CUresult refused = refuse_in_capture(); refused != CUDA_SUCCESS) return refused;
    Job job;
    job.kind = JobKind::device;
    job.name = words("fill", bytes, target);
    job.body = [=] {
      auto *const items = reinterpret_cast<Item *>(target);
      for (size_t i = 0; i < count; ++i) items[i] = value;
      return CUDA_SUCCESS;
    };
    TicketPointer ticket;
    const CUresult result = enqueue(stream, std::move(job), &ticket);
    return result == CUDA_SUCCESS && waits ? wait_for(lock, *stream->context, ticket) : result;
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return copy_memory("cuMemcpy", {target, source, bytes, Side::any, Side::any, true}, nullptr);
}

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy_memory("cuMemcpyAsync", {target, source, bytes, Side::any, Side::any, false}, stream);
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr target, const void *source, size_t bytes) {
  return copy_memory("cuMemcpyHtoD_v2", {target, address_of(source), bytes, Side::device, Side::host, true}, nullptr);
}

CUresult CUDAAPI cuMemcpyDtoH(void *target, CUdeviceptr source, size_t bytes) {
  return copy_memory("cuMemcpyDtoH_v2", {address_of(target), source, bytes, Side::host, Side::device, true}, nullptr);
}

CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr target, CUdeviceptr source, size_t bytes) {
  return copy_memory("cuMemcpyDtoD_v2", {target, source, bytes, Side::device, Side::device, false}, nullptr);
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t bytes, CUstream stream) {
  return copy_memory("cuMemcpyHtoDAsync_v2", {target, address_of(source), bytes, Side::device, Side::host, false},
                     stream);
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy_memory("cuMemcpyDtoHAsync_v2", {address_of(target), source, bytes, Side::host, Side::device, false},
                     stream);
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
  return copy_memory("cuMemcpyDtoDAsync_v2", {target, source, bytes, Side::device, Side::device, false}, stream);
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr target, CUcontext, CUdeviceptr source, CUcontext, size_t bytes,
                                   CUstream stream) {
  return copy_memory("cuMemcpyPeerAsync", {target, source, bytes, Side::device, Side::device, false}, stream);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream) {
  return fill_memory("cuMemsetD8Async", target, value, count, stream, false);
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_t count, CUstream stream) {
  return fill_memory("cuMemsetD16Async", target, value, count, stream, false);
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count, CUstream stream) {
  return fill_memory("cuMemsetD32Async", target, value, count, stream, false);
}

// Those without a stream don't wait for device memory either.
CUresult CUDAAPI cuMemsetD8(CUdeviceptr target, unsigned char value, size_t count) {
  return fill_memory("cuMemsetD8_v2", target, value, count, nullptr, false);
}

CUresult CUDAAPI cuMemsetD32(CUdeviceptr target, unsigned int value, size_t count) {
  return fill_memory("cuMemsetD32_v2", target, value, count, nullptr, false);
}

}  // extern "C"
