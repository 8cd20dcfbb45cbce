// SPDX-License-Identifier: Apache-2.0
// Memory of a device: allocations, and physical blocks that are mapped into reserved addresses.
#include <cinttypes>
#include <cstdio>
#include <map>

#include "base/status.hpp"
#include "cuda/device.hpp"

namespace mxs {

namespace {

class CudaBlock final : public DeviceBlock {
 public:
  CudaBlock(CudaDevice &device, CUmemGenericAllocationHandle handle, uint64_t bytes)
      : device_(device), handle_(handle), bytes_(bytes) {}
  ~CudaBlock() override { device_.driver().memory_release(handle_); }
  uint64_t bytes() const override { return bytes_; }
  CUmemGenericAllocationHandle handle() const { return handle_; }
  const CudaDevice &device() const { return device_; }

 private:
  CudaDevice &device_;
  CUmemGenericAllocationHandle handle_;
  uint64_t bytes_;
};

class CudaRange final : public DeviceRange {
 public:
  CudaRange(CudaDevice &device, CUdeviceptr address, uint64_t bytes)
      : device_(device), address_(address), bytes_(bytes) {}
  ~CudaRange() override;
  std::byte *data() const override { return bytes_at(address_); }
  uint64_t bytes() const override { return bytes_; }
  mxs_status map(uint64_t offset, DeviceBlock &block, uint64_t block_offset, uint64_t bytes) override;
  mxs_status unmap(uint64_t offset, uint64_t bytes) override;

 private:
  mxs_status check(uint64_t offset, const CudaBlock &block, uint64_t block_offset, uint64_t bytes) const;
  mxs_status allow(CUdeviceptr address, uint64_t bytes);

  CudaDevice &device_;
  CUdeviceptr address_;
  uint64_t bytes_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> parts_;  // mapped: bytes by offset
};

CudaRange::~CudaRange() {
  const CurrentContext current(device_.driver(), device_.context());
  for (const auto &[offset, bytes] : parts_) device_.driver().memory_unmap(address_ + offset, bytes);
  device_.driver().address_free(address_, bytes_);
}

mxs_status CudaRange::check(uint64_t offset, const CudaBlock &block, uint64_t block_offset, uint64_t bytes) const {
  const uint64_t granule = device_.info().granule_bytes;
  if (&block.device() != &device_)
    return set_error(MXS_INVALID_ARGUMENT, "a block of device %d can't be mapped into addresses of device %d",
                     block.device().info().index, device_.info().index);
  if (bytes == 0 || offset % granule || block_offset % granule || bytes % granule)
    return set_error(MXS_INVALID_ARGUMENT, "%" PRIu64 " bytes at %" PRIu64 " of a block can't be mapped at %" PRIu64
                     ": device %d maps multiples of %" PRIu64 " bytes", bytes, block_offset, offset,
                     device_.info().index, granule);
  if (offset > bytes_ || bytes > bytes_ - offset)
    return set_error(MXS_INVALID_ARGUMENT, "%" PRIu64 " bytes can't be mapped at %" PRIu64 " of a range of %" PRIu64
                     " bytes", bytes, offset, bytes_);
  if (block_offset != 0 || bytes > block.bytes())
    return set_error(MXS_INVALID_ARGUMENT, "%" PRIu64 " bytes at %" PRIu64 " of a block of %" PRIu64 " bytes can't be "
                     "mapped: the driver maps blocks from their beginning only", bytes, block_offset, block.bytes());
  const auto next = parts_.lower_bound(offset + bytes);  // the first part that begins behind
  if (next != parts_.begin())
    if (const auto &[at, size] = *std::prev(next); at + size > offset)
      return set_error(MXS_INVALID_ARGUMENT, "%" PRIu64 " bytes can't be mapped at %" PRIu64 ": %" PRIu64 " bytes at %"
                       PRIu64 " are mapped already", bytes, offset, size, at);
  return MXS_OK;
}

mxs_status CudaRange::allow(CUdeviceptr address, uint64_t bytes) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_.info().index};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return device_.run("cuMemSetAccess", [&] { return device_.driver().memory_set_access(address, bytes, &access, 1); });
}

mxs_status CudaRange::map(uint64_t offset, DeviceBlock &given, uint64_t block_offset, uint64_t bytes) {
  const auto &block = static_cast<const CudaBlock &>(given);
  const std::lock_guard<std::mutex> lock(mutex_);
  mxs_status status = check(offset, block, block_offset, bytes);
  if (status != MXS_OK) return status;
  const auto place = parts_.emplace(offset, bytes).first;  // first: it may be out of host memory
  const CUdeviceptr address = address_ + offset;
  status = device_.run("cuMemMap", [&] {
    return device_.driver().memory_map(address, bytes, block_offset, block.handle(), 0);
  });
  const bool mapped = status == MXS_OK;
  if (mapped) status = allow(address, bytes);
  if (status == MXS_OK) return MXS_OK;
  if (mapped) device_.driver().memory_unmap(address, bytes);
  parts_.erase(place);
  return status;
}

mxs_status CudaRange::unmap(uint64_t offset, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto place = parts_.find(offset);
  if (place == parts_.end() || place->second != bytes)
    return set_error(MXS_INVALID_ARGUMENT, "no map of %" PRIu64 " bytes begins at %" PRIu64, bytes, offset);
  const mxs_status status = device_.run("cuMemUnmap", [&] {
    return device_.driver().memory_unmap(address_ + offset, bytes);
  });
  if (status == MXS_OK) parts_.erase(place);
  return status;
}

std::string asked(uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

}  // namespace

mxs_status CudaDevice::free_bytes(uint64_t *bytes) {
  size_t free = 0, total = 0;
  const mxs_status status = run("cuMemGetInfo", [&] { return driver_.memory_get_info(&free, &total); });
  if (status == MXS_OK) *bytes = free;
  return status;
}

mxs_status CudaDevice::out_of_memory(const char *call, uint64_t bytes) const {
  size_t free = 0, total = 0;
  const CurrentContext current(driver_, context_);
  const bool known = current.result() == CUDA_SUCCESS && driver_.memory_get_info(&free, &total) == CUDA_SUCCESS;
  if (!known)
    return set_error(MXS_OUT_OF_MEMORY, "device %d (%s) is out of memory: %s asked for %" PRIu64 " bytes", info_.index,
                     info_.name.c_str(), call, bytes);
  return set_error(MXS_OUT_OF_MEMORY, "device %d (%s) is out of memory: %s asked for %" PRIu64 " bytes, %" PRIu64
                   " of %" PRIu64 " are free", info_.index, info_.name.c_str(), call, bytes, uint64_t{free},
                   uint64_t{total});
}

mxs_status CudaDevice::allocate(uint64_t bytes, DeviceMemory *memory) {
  if (bytes == 0) {
    *memory = DeviceMemory();
    return MXS_OK;
  }
  CUdeviceptr address = 0;
  const CurrentContext current(driver_, context_);
  CUresult result = current.result();
  if (result == CUDA_SUCCESS) result = driver_.memory_allocate(&address, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return out_of_memory("cuMemAlloc", bytes);
  if (result != CUDA_SUCCESS) return failed(result, "cuMemAlloc", asked(bytes));
  *memory = DeviceMemory(this, bytes_at(address), bytes);
  return MXS_OK;
}

// Of the host's memory, so a failure says nothing of the device's.
mxs_status CudaDevice::allocate_pinned(uint64_t bytes, PinnedMemory *memory) {
  if (bytes == 0) {
    *memory = PinnedMemory();
    return MXS_OK;
  }
  void *data = nullptr;
  const mxs_status status = run("cuMemHostAlloc", [&] {
    return driver_.host_allocate(&data, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  }, [&] { return asked(bytes) + " of pinned host memory"; });
  if (status == MXS_OK) *memory = PinnedMemory(this, static_cast<std::byte *>(data), bytes);
  return status;
}

void CudaDevice::free(std::byte *data) {
  const CurrentContext current(driver_, context_);
  if (data && current.result() == CUDA_SUCCESS) driver_.memory_free(device_pointer(data));
}

void CudaDevice::free_pinned(std::byte *data) {
  const CurrentContext current(driver_, context_);
  if (data && current.result() == CUDA_SUCCESS) driver_.host_free(data);
}

mxs_status CudaDevice::create_block(uint64_t bytes, std::unique_ptr<DeviceBlock> *block) {
  if (!info_.maps_memory)
    return set_error(MXS_NOT_BUILT, "device %d (%s) has no virtual memory management", info_.index, info_.name.c_str());
  if (bytes == 0 || bytes % info_.granule_bytes)
    return set_error(MXS_INVALID_ARGUMENT, "a block of %" PRIu64 " bytes: device %d maps multiples of %" PRIu64,
                     bytes, info_.index, info_.granule_bytes);
  CUmemGenericAllocationHandle handle = 0;
  const CurrentContext current(driver_, context_);
  CUresult result = current.result();
  if (result == CUDA_SUCCESS) result = driver_.memory_create(&handle, bytes, &block_properties_, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return out_of_memory("cuMemCreate", bytes);
  if (result != CUDA_SUCCESS) return failed(result, "cuMemCreate", asked(bytes));
  *block = std::make_unique<CudaBlock>(*this, handle, bytes);
  return MXS_OK;
}

mxs_status CudaDevice::reserve(uint64_t bytes, std::unique_ptr<DeviceRange> *range) {
  if (!info_.maps_memory)
    return set_error(MXS_NOT_BUILT, "device %d (%s) has no virtual memory management", info_.index, info_.name.c_str());
  if (bytes == 0 || bytes % info_.granule_bytes)
    return set_error(MXS_INVALID_ARGUMENT, "addresses for %" PRIu64 " bytes: device %d maps multiples of %" PRIu64
                     " bytes", bytes, info_.index, info_.granule_bytes);
  CUdeviceptr address = 0;
  const mxs_status status = run("cuMemAddressReserve", [&] {
    return driver_.address_reserve(&address, bytes, info_.granule_bytes, 0, 0);
  }, [&] { return "addresses for " + asked(bytes); });
  if (status == MXS_OK) *range = std::make_unique<CudaRange>(*this, address, bytes);
  return status;
}

}  // namespace mxs
