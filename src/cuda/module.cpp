// SPDX-License-Identifier: Apache-2.0
// The kernels: one fat binary for all architectures, loaded on each device when it is made.
#include <cstring>

#include "base/status.hpp"
#include "cuda/device.hpp"

// The bytes of kernels.fatbin (kernels/image.S).
extern "C" const unsigned char mxs_kernel_image[];

namespace mxs {

namespace {

// All of kernels/*.cuh.
constexpr const char *kernel_names[] = {
    "mxs_add",
    "mxs_add_diagonal",
    "mxs_eigh",
    "mxs_end_eigh",
    "mxs_factor_apply",
    "mxs_factor_buffer",
    "mxs_factor_columns",
    "mxs_factor_direction",
    "mxs_factor_estimates",
    "mxs_factor_filter",
    "mxs_factor_gradient",
    "mxs_factor_input",
    "mxs_factor_permute",
    "mxs_factor_powers",
    "mxs_factor_rescale",
    "mxs_factor_squares",
    "mxs_flip_columns",
    "mxs_multiply",
    "mxs_narrow",
    "mxs_newton_schulz_load",
    "mxs_newton_schulz_store",
    "mxs_pass_adamw",
    "mxs_pass_apply",
    "mxs_pass_momentum",
    "mxs_pass_normuon",
    "mxs_pass_row_squares",
    "mxs_pass_squares",
    "mxs_qr",
    "mxs_step_begin",
    "mxs_step_conclude",
    "mxs_step_put",
    "mxs_step_squares",
    "mxs_sum_in_order",
    "mxs_take_signs",
    "mxs_widen",
};

}  // namespace

// By default the driver loads a kernel when it is asked for (CUDA_MODULE_LOADING=LAZY), and may wait for the device
// before it does. That is for ever where a stream waits for messages that the caller carries, or for a peer that waits
// for this rank: so all of them come in before any stream can wait. What fails here fails again, with a sentence, when
// it is launched.
void KernelImage::load_all(const Driver &driver) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const RelaxedCapture relaxed(driver);
  if (driver.module_load_data(&module_, mxs_kernel_image) != CUDA_SUCCESS) {
    module_ = nullptr;
    return;
  }
  CUfunction function = nullptr;
  for (const char *name : kernel_names) driver.module_get_function(&function, module_, name);
}

mxs_status KernelImage::load(const Driver &driver, const DeviceInfo &info) {
  const CUresult result = driver.module_load_data(&module_, mxs_kernel_image);
  if (result == CUDA_SUCCESS) return MXS_OK;
  module_ = nullptr;
  const bool lacks_code = result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
                          result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX;
  if (!lacks_code) return driver_failed(driver, result, info.index, "cuModuleLoadData", "the library's kernels");
  return set_error(MXS_NOT_BUILT, "this build's kernels, made by CUDA %s, have no code that device %d (%s, compute "
                   "capability %d.%d) and the driver %s take: %s", version_text(CUDA_VERSION).c_str(), info.index,
                   info.name.c_str(), info.major, info.minor, version_text(driver.version).c_str(),
                   error_text(driver, result).c_str());
}

mxs_status KernelImage::find(const Driver &driver, const DeviceInfo &info, const char *kernel, CUfunction *function) {
  size_t count = 0;
  for (; count < entries_max; ++count) {
    const char *const name = entries_[count].name.load(std::memory_order_acquire);
    if (!name) break;
    if (name == kernel) {
      *function = entries_[count].function;
      return MXS_OK;
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const RelaxedCapture relaxed(driver);
  mxs_status status = module_ ? MXS_OK : load(driver, info);
  if (status != MXS_OK) return status;
  CUfunction found = nullptr;
  const CUresult result = driver.module_get_function(&found, module_, kernel);
  if (result != CUDA_SUCCESS) return driver_failed(driver, result, info.index, "cuModuleGetFunction", kernel);
  *function = found;
  while (count < entries_max && entries_[count].name.load(std::memory_order_relaxed)) ++count;
  if (count == entries_max) return MXS_OK;  // is found anew each time
  entries_[count].function = found;
  entries_[count].name.store(kernel, std::memory_order_release);
  return MXS_OK;
}

mxs_status CudaDevice::launch(const char *kernel, const void *arguments, size_t bytes, uint32_t blocks,
                              uint32_t threads, DeviceStream stream) {
  const CurrentContext current(driver_, context_);
  if (current.result() != CUDA_SUCCESS) return failed(current.result(), "cuCtxPushCurrent", "");
  CUfunction function = nullptr;
  const mxs_status status = image_.find(driver_, info_, kernel, &function);
  if (status != MXS_OK) return status;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<void *>(arguments), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  const CUresult result =
      driver_.launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, stream_of(stream), nullptr, extra);
  if (result == CUDA_SUCCESS) return MXS_OK;
  return failed(result, "cuLaunchKernel", std::string(kernel) + ", " + std::to_string(blocks) + " blocks of " +
                std::to_string(threads) + " threads, " + std::to_string(bytes) + " bytes of arguments");
}

}  // namespace mxs
