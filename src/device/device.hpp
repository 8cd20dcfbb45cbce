// SPDX-License-Identifier: Apache-2.0
// Device: one GPU of this process, as the core library sees it. Everything that knows CUDA is in libmatrixshard_cuda.so
// (src/cuda), which fills these classes and is loaded at the first use of CUDA memory (library.cpp); the core needs no
// symbol of it.
//
//   Device        memory, streams, events, copies, launches; over the CUDA driver API and the device's primary context,
//                 which is what the CUDA runtime and PyTorch use, too
//   DeviceGroup   ranks joined by NCCL (group.hpp)
//   DeviceKernels element passes and sums (kernels.hpp)
//
// Handles: a stream is a CUstream = cudaStream_t, nullptr the legacy default stream; an event is a CUevent. Every call
// makes the device's context current and puts back what was. A failure is a status with a sentence that names call,
// error and device. Nothing here waits for the device but synchronize(), allocations and what says so.
//
// Threads: any, unless said otherwise. Forked children must not come here: callers check first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "matrixshard/status.h"

namespace mxs {

using DeviceStream = void *;  // CUstream
using DeviceEvent = void *;   // CUevent

struct DeviceInfo {
  int index = 0;
  std::string name;         // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  uint64_t total_bytes = 0;
  std::string pci_address;   // "0000:3b:00.0"
  int multiprocessors = 0;
  bool maps_memory = false;   // virtual memory management: cuMemAddressReserve, cuMemMap
  bool waits_values = false;  // cuStreamWaitValue32
  uint64_t granule_bytes = 0;  // of maps; 0 without them
};

class Device;

// Device memory by cuMemAlloc, at 256 bytes at least. Movable.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(Device *device, std::byte *data, uint64_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  DeviceMemory(DeviceMemory &&other) noexcept { swap(other); }
  DeviceMemory &operator=(DeviceMemory &&other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceMemory();
  std::byte *data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory &other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device *device_ = nullptr;
  std::byte *data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Pinned host memory (cuMemHostAlloc, portable, mapped), which copies reach without staging. Movable.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(Device *device, std::byte *data, uint64_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  PinnedMemory(PinnedMemory &&other) noexcept { swap(other); }
  PinnedMemory &operator=(PinnedMemory &&other) noexcept {
    swap(other);
    return *this;
  }
  ~PinnedMemory();
  std::byte *data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(PinnedMemory &other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device *device_ = nullptr;
  std::byte *data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Physical memory that ranges are mapped onto (cuMemCreate); may be mapped at several addresses at a time.
class DeviceBlock {
 public:
  virtual ~DeviceBlock() = default;
  virtual uint64_t bytes() const = 0;
};

// Addresses without memory of their own (cuMemAddressReserve). Blocks must outlive their maps.
class DeviceRange {
 public:
  virtual ~DeviceRange() = default;  // unmaps
  virtual std::byte *data() const = 0;
  virtual uint64_t bytes() const = 0;
  // All multiples of the granule, block_offset 0 (the driver has no other yet); the part must not be mapped. Readable
  // and writable by this device.
  virtual mxs_status map(uint64_t offset, DeviceBlock &block, uint64_t block_offset, uint64_t bytes) = 0;
  // Exactly a part that one map() made. Nothing on the device may still use it.
  virtual mxs_status unmap(uint64_t offset, uint64_t bytes) = 0;
};

enum class PointerKind { host, pinned, managed, device };
struct PointerInfo {
  PointerKind kind = PointerKind::host;
  int device = -1;  // of device and managed memory
};

class DeviceGroup;
class DeviceKernels;
struct GroupOptions;
class DeviceLinear;
class DeviceOrthogonalizer;
struct NewtonSchulzRecipe;
struct OrthogonalizerChoice;

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo &info() const = 0;
  virtual DeviceKernels &kernels() = 0;

  // ---- memory ----
  // MXS_OUT_OF_MEMORY names what was asked for, and what is free. bytes 0: empty.
  virtual mxs_status allocate(uint64_t bytes, DeviceMemory *memory) = 0;
  virtual mxs_status allocate_pinned(uint64_t bytes, PinnedMemory *memory) = 0;
  virtual void free(std::byte *data) = 0;         // waits for the device, as cuMemFree does
  virtual void free_pinned(std::byte *data) = 0;
  virtual mxs_status create_block(uint64_t bytes, std::unique_ptr<DeviceBlock> *block) = 0;  // multiples of the granule
  virtual mxs_status reserve(uint64_t bytes, std::unique_ptr<DeviceRange> *range) = 0;
  virtual mxs_status free_bytes(uint64_t *bytes) = 0;

  // ---- streams and events ----
  virtual mxs_status create_stream(DeviceStream *stream) = 0;  // non-blocking, of the highest priority
  virtual void destroy_stream(DeviceStream stream) = 0;        // accepts nullptr
  virtual mxs_status create_event(DeviceEvent *event) = 0;     // without timing
  virtual void destroy_event(DeviceEvent event) = 0;           // accepts nullptr
  virtual mxs_status record(DeviceEvent event, DeviceStream stream) = 0;
  virtual mxs_status wait(DeviceStream stream, DeviceEvent event) = 0;  // the stream waits, not the caller
  virtual mxs_status query(DeviceEvent event) = 0;  // MXS_OK: over (or never recorded); MXS_IN_PROGRESS; else a failure
  virtual mxs_status synchronize(DeviceStream stream) = 0;
  // MXS_INVALID_ARGUMENT: it is not a stream of this device.
  virtual mxs_status is_capturing(DeviceStream stream, bool *capturing) = 0;
  // The stream goes on once *flag (pinned memory) is at least `value`, as a cyclic number of 32 bits. MXS_NOT_BUILT
  // where info().waits_values is false.
  virtual mxs_status wait_value(DeviceStream stream, const uint32_t *flag, uint32_t value) = 0;
  // function runs on a thread of the driver, and must call nothing of CUDA.
  virtual mxs_status call_host(DeviceStream stream, void (*function)(void *context), void *context) = 0;

  // ---- work ----
  // Any two of host and device memory. Host memory that is not pinned is borrowed as CUDA does it.
  virtual mxs_status copy(void *target, const void *source, uint64_t bytes, DeviceStream stream) = 0;
  virtual mxs_status zero(void *target, uint64_t bytes, DeviceStream stream) = 0;
  // A kernel of src/cuda/kernels by its name, with one struct as its argument, which is copied at once.
  virtual mxs_status launch(const char *kernel, const void *arguments, size_t bytes, uint32_t blocks, uint32_t threads,
                            DeviceStream stream) = 0;

  // ---- ranges of NVTX, for profilers; cheap without one ----
  virtual void push_range(const char *name) = 0;
  virtual void pop_range() = 0;

  // ---- NCCL: group.hpp ----
  virtual mxs_status make_group(std::unique_ptr<DeviceGroup> *group, const GroupOptions &options) = 0;

  // ---- linear algebra: linear.hpp ----
  virtual mxs_status make_orthogonalizer(std::unique_ptr<DeviceOrthogonalizer> *orthogonalizer, int64_t rows,
                                         int64_t columns, uint64_t count_most, const NewtonSchulzRecipe &recipe,
                                         const OrthogonalizerChoice &choice) = 0;
  virtual mxs_status make_linear(std::unique_ptr<DeviceLinear> *linear, int32_t backend) = 0;  // mxs_backend
};

inline DeviceMemory::~DeviceMemory() {
  if (data_) device_->free(data_);
}
inline PinnedMemory::~PinnedMemory() {
  if (data_) device_->free_pinned(data_);
}

// What libmatrixshard_cuda.so gives: one object for the process.
class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;
  virtual int device_count() const = 0;
  virtual int driver_version() const = 0;  // 13000
  // The same object each time; the first call retains the primary context. MXS_NO_DEVICE: there is no such index.
  virtual mxs_status device(int index, Device **device) = 0;
  // "0000:3b:00.0"; makes no context.
  virtual mxs_status pci_address(int index, std::string *address) const = 0;
  // Of the context that is current on this thread; -1: none is.
  virtual int current_device() const = 0;
  virtual mxs_status pointer(const void *pointer, PointerInfo *info) const = 0;
  // 23004; 0 and *why_not if NCCL can't be had. Loads it.
  virtual int nccl_version(std::string *why_not) const = 0;
};

// Loads libmatrixshard_cuda.so and the driver, once. MXS_NOT_BUILT: this build has no CUDA part, or the file is missing
// or of another release; MXS_NO_DEVICE: no driver, a driver that is too old, no GPU; MXS_FORKED: it was loaded before
// this process was forked. The answer stays.
mxs_status device_library(DeviceLibrary **library);
// nullptr: it has not been loaded (nobody asked for CUDA memory), or can't be, or was before this process was forked.
DeviceLibrary *loaded_device_library();
// Has anybody loaded the CUDA driver into this process? If not, all memory is the host's.
bool process_has_cuda();
mxs_status find_device(int index, Device **device);

// ---- between the two libraries -----------------------------------------------------------------------------------

// Grows whenever a class of src/device/*.hpp changes: the two files are always of one build, and say so if not.
constexpr uint32_t device_interface_number = 2;

// What the core lends to libmatrixshard_cuda.so, so that sentences and log lines come out where they always do.
struct DeviceServices {
  void (*set_error)(mxs_status status, const char *sentence);
  const char *(*last_error)();
  void (*log)(int32_t level, const char *line);
};

// The one symbol of libmatrixshard_cuda.so.
using OpenDeviceLibrary = mxs_status (*)(uint32_t interface_number, const DeviceServices *services,
                                         DeviceLibrary **library);
constexpr char open_device_library_symbol[] = "mxs_open_device_library";

}  // namespace mxs
