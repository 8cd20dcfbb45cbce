/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 that tells its version (MXS_FAULTY_VERSION, else 13000) and can do nothing else, for device_driver. */
#include <stdlib.h>

int cuDriverGetVersion(int *version);
int cuInit(unsigned flags);
int cuGetErrorName(int result, const char **name);
int cuGetErrorString(int result, const char **text);

int cuDriverGetVersion(int *version) {
  const char *const told = getenv("MXS_FAULTY_VERSION");
  *version = told ? atoi(told) : 13000;
  return *version > 0 ? 0 : 999;
}

int cuInit(unsigned flags) { return flags ? 1 : 100; }

int cuGetErrorName(int result, const char **name) {
  *name = result == 999 ? "CUDA_ERROR_UNKNOWN" : NULL;
  return *name ? 0 : 1;
}

int cuGetErrorString(int result, const char **text) {
  *text = NULL;
  return result ? 1 : 0;
}
