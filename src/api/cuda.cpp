// SPDX-License-Identifier: Apache-2.0
// The door of cuda.h.
#include "matrixshard/cuda.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "api/door.hpp"
#include "device/device.hpp"
#include "machine/machine.hpp"

using namespace mxs;

static_assert(sizeof(mxs_cuda_info) == 24, "part of the ABI");
static_assert(sizeof(mxs_cuda_device) == 72, "part of the ABI");

namespace {

// Of device memory; -1: both are the host's, pinned memory included.
mxs_status device_of_copy(DeviceLibrary *library, const void *target, const void *source, int *device) {
  *device = -1;
  for (const void *pointer : {static_cast<const void *>(target), source}) {
    PointerInfo info;
    const mxs_status status = library->pointer(pointer, &info);
    if (status != MXS_OK) return status;
    if (*device < 0 && info.device >= 0) *device = info.device;
  }
  return MXS_OK;
}

mxs_status copy(void *target, const void *source, uint64_t bytes, DeviceStream stream) {
  DeviceLibrary *library = loaded_device_library();
  const bool hosts_only = !library && !stream && !process_has_cuda();
  mxs_status status = library || hosts_only ? MXS_OK : device_library(&library);
  if (!stream && (status == MXS_NOT_BUILT || status == MXS_NO_DEVICE)) status = MXS_OK;  // no GPU: no GPU's memory
  if (status != MXS_OK) return status;
  int index = -1;
  if (library) status = device_of_copy(library, target, source, &index);
  if (status != MXS_OK) return status;
  if (index < 0 && !stream) {
    std::memmove(target, source, bytes);
    return MXS_OK;
  }
  if (index < 0) index = std::max(library->current_device(), 0);
  Device *device = nullptr;
  status = library->device(index, &device);
  if (status == MXS_OK) status = device->copy(target, source, bytes, stream);
  return status == MXS_OK && !stream ? device->synchronize(nullptr) : status;
}

}  // namespace

mxs_status mxs_cuda_query(mxs_cuda_info *info) {
  return fenced([&] {
    mxs_status status = check_out_struct(info, sizeof(mxs_cuda_info), "info");
    DeviceLibrary *library = nullptr;
    if (status == MXS_OK) status = device_library(&library);
    if (status != MXS_OK) return status;
    static std::once_flag once;
    static std::string words;
    static int version = 0;
    std::call_once(once, [&] {
      std::string why_not;
      version = library->nccl_version(&why_not);
      words = version ? "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
                            std::to_string(version % 100)
                      : why_not;
    });
    mxs_cuda_info found = MXS_CUDA_INFO_INIT;
    found.device_count = library->device_count();
    found.driver_version = library->driver_version();
    found.nccl_version = version;
    found.nccl = words.c_str();
    write_struct(found, info);
    return MXS_OK;
  });
}

mxs_status mxs_cuda_device_query(int32_t index, mxs_cuda_device *device) {
  return fenced([&]() -> mxs_status {
    mxs_status status = check_out_struct(device, sizeof(mxs_cuda_device), "device");
    DeviceLibrary *library = nullptr;
    if (status == MXS_OK) status = device_library(&library);
    if (status != MXS_OK) return status;
    if (index < 0 || index >= library->device_count())
      return set_error(MXS_NOT_FOUND, "device %d, but there are %d", index, library->device_count());
    Device *found = nullptr;
    status = library->device(index, &found);
    if (status != MXS_OK) return status;
    const DeviceInfo &info = found->info();
    static const std::map<std::string, DevicePlace> places = read_device_places();
    const auto place = places.find(info.pci_address);
    mxs_cuda_device result = MXS_CUDA_DEVICE_INIT;
    result.index = index;
    result.name = info.name.c_str();
    result.pci_address = info.pci_address.c_str();
    result.major = info.major;
    result.minor = info.minor;
    result.multiprocessors = info.multiprocessors;
    result.numa_node = place == places.end() ? -1 : place->second.numa;
    result.total_bytes = info.total_bytes;
    status = found->free_bytes(&result.free_bytes);
    if (status != MXS_OK) return status;
    result.granule_bytes = info.granule_bytes;
    result.nic = place == places.end() ? "" : place->second.nic.c_str();
    write_struct(result, device);
    return MXS_OK;
  });
}

mxs_status mxs_copy(void *target, const void *source, uint64_t bytes, const mxs_call *given) {
  return fenced([&]() -> mxs_status {
    mxs_call call = MXS_CALL_INIT;
    const mxs_status status = read_call(given, &call, true);
    if (status != MXS_OK || bytes == 0) return status;
    if (!target || !source)
      return set_error(MXS_INVALID_ARGUMENT, "target is %p and source %p, but there are %llu bytes to copy", target,
                       source, static_cast<unsigned long long>(bytes));
    return copy(target, source, bytes, call.stream);
  });
}
