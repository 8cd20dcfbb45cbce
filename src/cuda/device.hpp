// SPDX-License-Identifier: Apache-2.0
// CudaDevice: Device over the driver.
//
//   device.cpp   making one, what it is, failures
//   memory.cpp   device and pinned memory; blocks and ranges of virtual memory management
//   streams.cpp  streams, events, copies
//   module.cpp   the kernels' image and launches
//   ranges.cpp   NVTX
//   linear.cpp   which linear algebra
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/context.hpp"
#include "cuda/driver.hpp"
#include "device/device.hpp"
#include "device/group.hpp"
#include "device/kernels.hpp"
#include "device/linear.hpp"
#include "matrixshard/kernels.h"

namespace mxs {

inline CUdeviceptr device_pointer(const void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline std::byte *bytes_at(CUdeviceptr pointer) { return reinterpret_cast<std::byte *>(pointer); }
inline CUstream stream_of(DeviceStream stream) { return static_cast<CUstream>(stream); }
inline CUevent event_of(DeviceEvent event) { return static_cast<CUevent>(event); }

// "0000:3b:00.0", in small letters.
mxs_status read_pci_address(const Driver &driver, int index, std::string *address);

// The kernels of one device, found by name.
class KernelImage {
 public:
  void load_all(const Driver &driver);
  // The names that `kernel` may have are those of kernels.cu; the pointers stay valid, as literals do.
  mxs_status find(const Driver &driver, const DeviceInfo &info, const char *kernel, CUfunction *function);

 private:
  struct Entry {
    std::atomic<const char *> name{nullptr};
    CUfunction function = nullptr;
  };
  static constexpr size_t entries_max = 256;  // of names by their addresses

  mxs_status load(const Driver &driver, const DeviceInfo &info);
  std::mutex mutex_;
  CUmodule module_ = nullptr;
  std::array<Entry, entries_max> entries_;  // filled from the front and never changed; read without the lock
};

class CudaDevice final : public Device {
 public:
  // Retains the primary context, for the life of the process.
  static mxs_status make(std::unique_ptr<CudaDevice> *device, const Driver &driver, int index);

  const DeviceInfo &info() const override { return info_; }
  DeviceKernels &kernels() override { return *kernels_; }
  const Driver &driver() const { return driver_; }
  CUcontext context() const { return context_; }

  mxs_status allocate(uint64_t bytes, DeviceMemory *memory) override;
  mxs_status allocate_pinned(uint64_t bytes, PinnedMemory *memory) override;
  void free(std::byte *data) override;
  void free_pinned(std::byte *data) override;
  mxs_status create_block(uint64_t bytes, std::unique_ptr<DeviceBlock> *block) override;
  mxs_status reserve(uint64_t bytes, std::unique_ptr<DeviceRange> *range) override;
  mxs_status free_bytes(uint64_t *bytes) override;

  mxs_status create_stream(DeviceStream *stream) override;
  void destroy_stream(DeviceStream stream) override;
  mxs_status create_event(DeviceEvent *event) override;
  void destroy_event(DeviceEvent event) override;
  mxs_status record(DeviceEvent event, DeviceStream stream) override;
  mxs_status wait(DeviceStream stream, DeviceEvent event) override;
  mxs_status query(DeviceEvent event) override;
  mxs_status synchronize(DeviceStream stream) override;
  mxs_status is_capturing(DeviceStream stream, bool *capturing) override;
  mxs_status wait_value(DeviceStream stream, const uint32_t *flag, uint32_t value) override;
  mxs_status call_host(DeviceStream stream, void (*function)(void *context), void *context) override;

  mxs_status copy(void *target, const void *source, uint64_t bytes, DeviceStream stream) override;
  mxs_status zero(void *target, uint64_t bytes, DeviceStream stream) override;
  mxs_status launch(const char *kernel, const void *arguments, size_t bytes, uint32_t blocks, uint32_t threads,
                    DeviceStream stream) override;

  void push_range(const char *name) override;
  void pop_range() override;

  mxs_status make_group(std::unique_ptr<DeviceGroup> *group, const GroupOptions &options) override;
  mxs_status make_orthogonalizer(std::unique_ptr<DeviceOrthogonalizer> *orthogonalizer, int64_t rows, int64_t columns,
                                 uint64_t count_most, const NewtonSchulzRecipe &recipe,
                                 const OrthogonalizerChoice &choice) override;
  mxs_status make_linear(std::unique_ptr<DeviceLinear> *linear, mxs_backend backend) override;

  // Runs call() with the context current: MXS_OK, or the failure of the function of the driver called `name`; what()
  // tells more, for the sentence, and is only called for it.
  template <class Call, class What>
  mxs_status run(const char *name, Call &&call, What &&what) const {
    const CurrentContext current(driver_, context_);
    const CUresult result = current.result() == CUDA_SUCCESS ? call() : current.result();
    return result == CUDA_SUCCESS ? MXS_OK : failed(result, name, what());
  }
  template <class Call>
  mxs_status run(const char *name, Call &&call) const {
    return run(name, call, [] { return std::string(); });
  }
  mxs_status failed(CUresult result, const char *call, const std::string &what) const;
  // Of an allocation: names what was asked for and what is free.
  mxs_status out_of_memory(const char *call, uint64_t bytes) const;

 private:
  CudaDevice(const Driver &driver, int index) : driver_(driver) { info_.index = index; }
  mxs_status look();
  mxs_status look_at_maps();

  const Driver &driver_;
  DeviceInfo info_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmemAllocationProp block_properties_{};
  KernelImage image_;
  std::unique_ptr<DeviceKernels> kernels_;
};

}  // namespace mxs
