/* SPDX-License-Identifier: Apache-2.0 */
// Device memory, copies and streams for tests of collectives, by the public interface and the driver. One rank's view.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "matrixshard/collective.h"
#include "matrixshard/cuda.h"
#include "support/complaints.hpp"

namespace mxs::test {

// A function of the driver that this process has loaded.
template <class Function>
Function driver(const char *name) {
  void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

// Device memory as a framework gets it: not the library's. The device's primary context is made current.
class FrameworkMemory {
 public:
  FrameworkMemory(int device, size_t bytes) {
    CUdevice handle = 0;
    CUcontext context = nullptr;
    const auto get = driver<CUresult (*)(CUdevice *, int)>("cuDeviceGet");
    const auto retain = driver<CUresult (*)(CUcontext *, CUdevice)>("cuDevicePrimaryCtxRetain");
    const auto set = driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
    const auto allocate = driver<CUresult (*)(CUdeviceptr *, size_t)>("cuMemAlloc_v2");
    CUdeviceptr address = 0;
    driver<CUresult (*)(unsigned)>("cuInit")(0);
    if (get(&handle, device) == CUDA_SUCCESS && retain(&context, handle) == CUDA_SUCCESS &&
        set(context) == CUDA_SUCCESS && allocate(&address, bytes ? bytes : 1) == CUDA_SUCCESS)
      data_ = reinterpret_cast<std::byte *>(address);
    context_ = context;
    set(nullptr);
  }
  FrameworkMemory(const FrameworkMemory &) = delete;
  ~FrameworkMemory() {
    driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent")(context_);
    if (data_) driver<CUresult (*)(CUdeviceptr)>("cuMemFree_v2")(reinterpret_cast<CUdeviceptr>(data_));
    driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent")(nullptr);
  }
  std::byte *data() const { return data_; }

 private:
  std::byte *data_ = nullptr;
  CUcontext context_ = nullptr;
};

class FrameworkStream {
 public:
  explicit FrameworkStream(int device) {
    CUdevice handle = 0;
    driver<CUresult (*)(unsigned)>("cuInit")(0);
    driver<CUresult (*)(CUdevice *, int)>("cuDeviceGet")(&handle, device);
    driver<CUresult (*)(CUcontext *, CUdevice)>("cuDevicePrimaryCtxRetain")(&context_, handle);
    const auto set = driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
    set(context_);
    driver<CUresult (*)(CUstream *, unsigned)>("cuStreamCreate")(&stream_, CU_STREAM_NON_BLOCKING);
    set(nullptr);
  }
  FrameworkStream(const FrameworkStream &) = delete;
  ~FrameworkStream() {
    const auto set = driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
    set(context_);
    if (stream_) driver<CUresult (*)(CUstream)>("cuStreamDestroy_v2")(stream_);
    set(nullptr);
  }
  CUstream handle() const { return stream_; }
  bool synchronize() const {
    const auto set = driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
    set(context_);
    const bool fine = driver<CUresult (*)(CUstream)>("cuStreamSynchronize")(stream_) == CUDA_SUCCESS;
    set(nullptr);
    return fine;
  }

 private:
  CUstream stream_ = nullptr;
  CUcontext context_ = nullptr;
};

inline int device_count() {
  mxs_cuda_info info = MXS_CUDA_INFO_INIT;
  return mxs_cuda_query(&info) == MXS_OK ? info.device_count : 0;
}

// Giving memory back waits for all of the context, and ranks that are threads may share it: one that has gone ahead
// would then wait on the device for one that waits in a free. So a thread keeps its memory until it ends, and lends it.
class LentMemory {
 public:
  LentMemory(int device, size_t bytes) {
    for (const std::unique_ptr<Block> &block : blocks())
      if (!block->lent && block->device == device && block->bytes >= bytes) block_ = block.get();
    if (!block_) {
      size_t size = size_t{1} << 16;
      while (size < bytes) size *= 2;
      blocks().push_back(std::make_unique<Block>(device, size));
      block_ = blocks().back().get();
    }
    block_->lent = true;
  }
  LentMemory(const LentMemory &) = delete;
  ~LentMemory() { block_->lent = false; }
  std::byte *data() const { return block_->memory.data(); }

 private:
  struct Block {
    Block(int device_index, size_t size) : device(device_index), bytes(size), memory(device_index, size) {}
    int device;
    size_t bytes;
    FrameworkMemory memory;
    bool lent = false;
  };
  static std::vector<std::unique_ptr<Block>> &blocks() {
    static thread_local std::vector<std::unique_ptr<Block>> kept;
    return kept;
  }
  Block *block_ = nullptr;
};

inline CUcontext context_of(int device) {
  CUdevice handle = 0;
  CUcontext context = nullptr;
  driver<CUresult (*)(unsigned)>("cuInit")(0);
  driver<CUresult (*)(CUdevice *, int)>("cuDeviceGet")(&handle, device);
  driver<CUresult (*)(CUcontext *, CUdevice)>("cuDevicePrimaryCtxRetain")(&context, handle);
  return context;
}

// Which one `comm` uses; 0 before the first collective in CUDA memory.
inline int device_of_comm(mxs_comm *comm) {
  mxs_comm_info info = MXS_COMM_INFO_INIT;
  mxs_comm_query(comm, &info);
  return info.device - 1;
}

// On a stream where there is one, else at once.
inline bool copy_to(void *target, const void *source, uint64_t bytes, CUstream stream = nullptr) {
  mxs_call call = MXS_CALL_INIT;
  call.stream = stream;
  return bytes == 0 || mxs_copy(target, source, bytes, stream ? &call : nullptr) == MXS_OK;
}

}  // namespace mxs::test
