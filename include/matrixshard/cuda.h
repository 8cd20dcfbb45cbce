/* SPDX-License-Identifier: Apache-2.0 */
/**
 * CUDA: is there a GPU that the library can use, and copies for programs that have no CUDA runtime of their own.
 *
 * Everything CUDA is in libmatrixshard_cuda.so, which is loaded when CUDA memory is first asked for, and lies beside
 * libmatrixshard.so (or where MXS_CUDA_LIBRARY says). It uses the driver (libcuda.so.1, CUDA 12.0 at least) and loads
 * NCCL (a copy that the process has already, else MXS_NCCL_LIBRARY, else libnccl.so.2; 2.18 at least), cublasLt and
 * cuSOLVER when they are needed. The library works on a device's primary context, as the CUDA runtime and PyTorch do.
 */
#ifndef MATRIXSHARD_CUDA_H
#define MATRIXSHARD_CUDA_H

#include "matrixshard/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxs_cuda_info {
  uint32_t    size;
  int32_t     device_count;
  int32_t     driver_version; /**< 13000 is 13.0 */
  int32_t     nccl_version;   /**< 23004 is 2.30.4; 0: none that can be used, and `nccl` says why */
  const char *nccl;           /**< "NCCL 2.30.4", or why there is none; the library's */
} mxs_cuda_info;
#define MXS_CUDA_INFO_INIT \
  { sizeof(mxs_cuda_info), 0, 0, 0, 0 }

/**
 * Load the CUDA part, the driver and NCCL if that has not been done, and tell what there is.
 *
 * @return MXS_OK. MXS_NOT_BUILT: this build has no CUDA part, or its file is missing or of another build.
 *         MXS_NO_DEVICE: no driver, one that is too old, or no GPU. mxs_last_error says which.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_cuda_query(mxs_cuda_info *info);

typedef struct mxs_cuda_device {
  uint32_t    size;
  int32_t     index;
  const char *name;            /**< "NVIDIA H200"; the library's */
  const char *pci_address;     /**< "0000:3b:00.0"; the library's */
  int32_t     major;           /**< compute capability */
  int32_t     minor;
  int32_t     multiprocessors;
  int32_t     numa_node;       /**< by hwloc; -1: not known */
  uint64_t    total_bytes;
  uint64_t    free_bytes;
  uint64_t    granule_bytes;   /**< of mapped memory; 0: this device maps none, and units are "copied" (unit.h) */
  const char *nic;             /**< the NIC that is nearest to it by hwloc; "": not known; the library's */
} mxs_cuda_device;
#define MXS_CUDA_DEVICE_INIT \
  { sizeof(mxs_cuda_device), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** One of them, counted from 0. @return As mxs_cuda_query; MXS_NOT_FOUND: there are fewer. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_cuda_device_query(int32_t index, mxs_cuda_device *device);

/**
 * Copy `bytes` bytes from `source` to `target`, each in host or device memory as its pointer tells. With call->stream
 * it is put on that, and host memory is borrowed until then; else it is complete on return, after what the legacy
 * default stream has so far. Two host pointers without a stream: memmove.
 *
 * @return MXS_INVALID_ARGUMENT: a NULL with bytes. MXS_DEVICE_FAILED: CUDA refused.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_copy(void *target, const void *source, uint64_t bytes, const mxs_call *call);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_CUDA_H */
