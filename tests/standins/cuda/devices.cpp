// SPDX-License-Identifier: Apache-2.0
// Stand-in for the CUDA driver: init, version, count of devices.
#include <cstdlib>

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult CUDAAPI cuDriverGetVersion(int *version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  const char *const text = std::getenv("MXS_STANDIN_DRIVER_VERSION");
  *version = text ? std::atoi(text) : 13000;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  const char *const text = std::getenv("MXS_STANDIN_DEVICES");
  *count = text ? std::atoi(text) : 1;
  return CUDA_SUCCESS;
}

}  // extern "C"
