// SPDX-License-Identifier: Apache-2.0
// The one symbol of libmatrixshard_cuda.so, and the object behind it: the driver and its devices.
#include <cinttypes>
#include <vector>

#include "base/status.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/nccl.hpp"
#include "cuda/services.hpp"
#include "device/device.hpp"
#include "matrixshard/version.h"

namespace mxs {

namespace {

class CudaLibrary final : public DeviceLibrary {
 public:
  CudaLibrary(const Driver &driver, int device_count)
      : driver_(driver), slots_(static_cast<size_t>(device_count)) {}
  int device_count() const override { return static_cast<int>(slots_.size()); }
  int driver_version() const override { return driver_.version; }
  mxs_status device(int index, Device **device) override;
  mxs_status pci_address(int index, std::string *address) const override;
  int current_device() const override;
  mxs_status pointer(const void *pointer, PointerInfo *info) const override;
  int nccl_version(std::string *why_not) const override { return mxs::nccl_version(why_not); }

 private:
  mxs_status check(int index) const;
  struct Slot {
    std::atomic<CudaDevice *> made{nullptr};
    std::unique_ptr<CudaDevice> device;
  };
  const Driver &driver_;
  std::mutex mutex_;
  std::vector<Slot> slots_;
};

mxs_status CudaLibrary::check(int index) const {
  if (index >= 0 && index < device_count()) return MXS_OK;
  return set_error(MXS_NO_DEVICE, "there is no device %d: the CUDA driver sees %d, counted from 0", index,
                   device_count());
}

mxs_status CudaLibrary::pci_address(int index, std::string *address) const {
  const mxs_status status = check(index);
  return status == MXS_OK ? read_pci_address(driver_, index, address) : status;
}

mxs_status CudaLibrary::device(int index, Device **device) {
  if (const mxs_status status = check(index); status != MXS_OK) return status;
  Slot &slot = slots_[static_cast<size_t>(index)];
  if (CudaDevice *const made = slot.made.load(std::memory_order_acquire)) {
    *device = made;
    return MXS_OK;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!slot.device) {
    const mxs_status status = CudaDevice::make(&slot.device, driver_, index);
    if (status != MXS_OK) return status;
    slot.made.store(slot.device.get(), std::memory_order_release);
  }
  *device = slot.device.get();
  return MXS_OK;
}

int CudaLibrary::current_device() const {
  CUdevice device = 0;  // a number, the same as the index
  return driver_.context_get_device(&device) == CUDA_SUCCESS ? device : -1;
}

// Memory that CUDA does not know is the host's, whatever it is.
mxs_status CudaLibrary::pointer(const void *pointer, PointerInfo *info) const {
  unsigned type = 0, is_managed = 0;
  int ordinal = -1;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void *values[] = {&type, &is_managed, &ordinal};
  const CUresult result = driver_.pointer_get_attributes(3, names, values, device_pointer(pointer));
  *info = PointerInfo{};
  // Without a context there is no memory of CUDA's.
  if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_INVALID_VALUE) return MXS_OK;
  if (result != CUDA_SUCCESS)
    return set_error(MXS_DEVICE_FAILED, "cuPointerGetAttributes of %p: %s", pointer,
                     error_text(driver_, result).c_str());
  if (is_managed) *info = {PointerKind::managed, ordinal};
  else if (type == CU_MEMORYTYPE_DEVICE) *info = {PointerKind::device, ordinal};
  else if (type == CU_MEMORYTYPE_HOST) *info = {PointerKind::pinned, -1};
  return MXS_OK;
}

mxs_status open_library(DeviceLibrary **library) {
  const Driver *driver = nullptr;
  const mxs_status status = load_driver(&driver);
  if (status != MXS_OK) return status;
  int count = 0;
  const CUresult result = driver->device_get_count(&count);
  if (result != CUDA_SUCCESS)
    return set_error(MXS_NO_DEVICE, "cuDeviceGetCount: %s", error_text(*driver, result).c_str());
  if (count < 1)
    return set_error(MXS_NO_DEVICE, "the CUDA driver %s sees no GPU (CUDA_VISIBLE_DEVICES hides GPUs, too)",
                     version_text(driver->version).c_str());
  // Of the process, and never destroyed: at its end the driver may be gone before.
  static CudaLibrary *const made = new CudaLibrary(*driver, count);
  *library = made;
  return MXS_OK;
}

}  // namespace

}  // namespace mxs

extern "C" __attribute__((visibility("default"))) mxs_status mxs_open_device_library(
    uint32_t interface_number, const mxs::DeviceServices *services, mxs::DeviceLibrary **library) {
  mxs::borrow_services(*services);
  if (interface_number != mxs::device_interface_number)
    return mxs::set_error(MXS_NOT_BUILT, "libmatrixshard_cuda.so is of another build (interface %u) than "
                          "libmatrixshard (%u); install both from one", mxs::device_interface_number, interface_number);
  return mxs::fenced([&] { return mxs::open_library(library); });
}
