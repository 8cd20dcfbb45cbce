// SPDX-License-Identifier: Apache-2.0
#include "cuda/device.hpp"

#include "base/status.hpp"
#include "cuda/kernels.hpp"
#include "cuda/nccl.hpp"

namespace mxs {

namespace {

// 0 where the driver does not know the attribute.
int attribute(const Driver &driver, CUdevice device, CUdevice_attribute name) {
  int value = 0;
  return driver.device_get_attribute(&value, name, device) == CUDA_SUCCESS ? value : 0;
}

}  // namespace

mxs_status read_pci_address(const Driver &driver, int index, std::string *address) {
  CUdevice device = 0;
  CUresult result = driver.device_get(&device, index);
  if (result != CUDA_SUCCESS) return driver_failed(driver, result, index, "cuDeviceGet");
  char text[64] = "";
  result = driver.device_get_pci_bus_id(text, sizeof text, device);
  if (result != CUDA_SUCCESS) return driver_failed(driver, result, index, "cuDeviceGetPCIBusId");
  for (char *letter = text; *letter; ++letter)  // as Linux and hwloc write it
    if (*letter >= 'A' && *letter <= 'F') *letter = static_cast<char>(*letter - 'A' + 'a');
  *address = text;
  return MXS_OK;
}

mxs_status CudaDevice::make(std::unique_ptr<CudaDevice> *made, const Driver &driver, int index) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(driver, index));
  CUresult result = driver.device_get(&device->device_, index);
  if (result != CUDA_SUCCESS) return driver_failed(driver, result, index, "cuDeviceGet");
  mxs_status status = device->look();
  if (status != MXS_OK) return status;
  result = driver.primary_context_retain(&device->context_, device->device_);
  if (result != CUDA_SUCCESS)
    return device->failed(result, "cuDevicePrimaryCtxRetain", "without its context nothing can be done on this device");
  const CurrentContext current(driver, device->context_);
  if (current.result() == CUDA_SUCCESS) device->image_.load_all(driver);
  device->kernels_ = make_device_kernels(*device);
  *made = std::move(device);
  return MXS_OK;
}

mxs_status CudaDevice::look() {
  char text[256] = "";
  CUresult result = driver_.device_get_name(text, sizeof text, device_);
  if (result != CUDA_SUCCESS) return failed(result, "cuDeviceGetName", "");
  info_.name = text;
  size_t bytes = 0;
  result = driver_.device_total_memory(&bytes, device_);
  if (result != CUDA_SUCCESS) return failed(result, "cuDeviceTotalMem", "");
  info_.total_bytes = bytes;
  const mxs_status status = read_pci_address(driver_, info_.index, &info_.pci_address);
  if (status != MXS_OK) return status;
  info_.major = attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  info_.minor = attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info_.multiprocessors = attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  if (!attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING))
    return set_error(MXS_NO_DEVICE, "device %d (%s) has no unified addressing, which copies need", info_.index,
                     info_.name.c_str());
  // Every device has waits for 32 bits where the second version of these calls is supported, of which this is the sign.
  info_.waits_values = attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  return look_at_maps();
}

// Blocks can be registered with NCCL and network cards, and shared with other processes, where the device knows how.
mxs_status CudaDevice::look_at_maps() {
  info_.maps_memory = attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  if (!info_.maps_memory) return MXS_OK;
  block_properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  block_properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, info_.index};
  if (attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
    block_properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
    block_properties_.allocFlags.gpuDirectRDMACapable = 1;
  size_t granule = 0;
  const CUresult result =
      driver_.memory_get_granularity(&granule, &block_properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return failed(result, "cuMemGetAllocationGranularity", "");
  info_.granule_bytes = granule;
  return MXS_OK;
}

mxs_status CudaDevice::failed(CUresult result, const char *call, const std::string &what) const {
  const mxs_status status = result == CUDA_ERROR_OUT_OF_MEMORY ? MXS_OUT_OF_MEMORY : MXS_DEVICE_FAILED;
  return set_error(status, "%s on device %d (%s): %s%s%s", call, info_.index, info_.name.c_str(),
                   error_text(driver_, result).c_str(), what.empty() ? "" : ": ", what.c_str());
}

mxs_status CudaDevice::make_group(std::unique_ptr<DeviceGroup> *group, const GroupOptions &options) {
  return make_nccl_group(group, driver_, context_, info_.index, options);
}

}  // namespace mxs
