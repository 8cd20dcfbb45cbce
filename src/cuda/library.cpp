// SPDX-License-Identifier: Apache-2.0
// The one symbol of libmatrixshard_cuda.so.
#include "base/status.hpp"
#include "cuda/services.hpp"
#include "device/device.hpp"
#include "matrixshard/version.h"

extern "C" __attribute__((visibility("default"))) mxs_status mxs_open_device_library(
    uint32_t interface_number, const mxs::DeviceServices *services, mxs::DeviceLibrary **library) {
  mxs::borrow_services(*services);
  if (interface_number != mxs::device_interface_number)
    return mxs::set_error(MXS_NOT_BUILT, "libmatrixshard_cuda.so is of another build (interface %u) than "
                          "libmatrixshard (%u); install both from one", mxs::device_interface_number, interface_number);
  static_cast<void>(library);
  return mxs::set_error(MXS_NOT_BUILT, "devices are not in this build");
}
