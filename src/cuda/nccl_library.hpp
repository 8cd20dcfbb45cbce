// SPDX-License-Identifier: Apache-2.0
// NCCL as a table of functions, filled when it is loaded. Its types are declared here, as far as we use them, so that
// neither its header nor a certain version of it is needed to build: prototypes have not changed from 2.7 to 2.32, and
// tests/gpu/group_failures.cpp compares these with the header that is there.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "matrixshard/status.h"

namespace mxs {

using NcclComm = void *;  // ncclComm_t

// ncclResult_t; newer versions have others, which are treated as failures of unknown kind.
constexpr int nccl_success = 0, nccl_remote_error = 6, nccl_in_progress = 7;

// ncclDataType_t
constexpr int nccl_u8 = 1, nccl_i64 = 4, nccl_f16 = 6, nccl_f32 = 7, nccl_f64 = 8, nccl_bf16 = 9;
constexpr int nccl_sum = 0;  // ncclRedOp_t

struct NcclId {  // ncclUniqueId
  char bytes[128];
};

// ncclConfig_t as 2.18 had it. Older and newer versions take the smaller of two sizes, so that this is right for all.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;  // INT_MIN: NCCL chooses
  int cga_cluster_size = INT_MIN;
  int ctas_min = INT_MIN;
  int ctas_max = INT_MIN;
  const char *net_name = nullptr;
  int split_share = INT_MIN;
};

struct NcclLibrary {
  int version = 0;   // 23004 is 2.30.4
  std::string path;  // of the file

  // Up to 2.14: all are there.
  int (*get_version)(int *version) = nullptr;
  int (*get_unique_id)(NcclId *id) = nullptr;
  int (*comm_init_rank_config)(NcclComm *comm, int rank_count, NcclId id, int rank, NcclConfig *config) = nullptr;
  int (*comm_finalize)(NcclComm comm) = nullptr;
  int (*comm_destroy)(NcclComm comm) = nullptr;
  int (*comm_abort)(NcclComm comm) = nullptr;
  int (*comm_get_async_error)(NcclComm comm, int *error) = nullptr;
  int (*comm_count)(NcclComm comm, int *count) = nullptr;
  int (*comm_device)(NcclComm comm, int *device) = nullptr;
  int (*comm_user_rank)(NcclComm comm, int *rank) = nullptr;
  const char *(*get_error_string)(int result) = nullptr;
  const char *(*get_last_error)(NcclComm comm) = nullptr;
  int (*broadcast)(const void *source, void *target, size_t count, int type, int root, NcclComm comm,
                   void *stream) = nullptr;
  int (*reduce)(const void *source, void *target, size_t count, int type, int operation, int root, NcclComm comm,
                void *stream) = nullptr;
  int (*all_reduce)(const void *source, void *target, size_t count, int type, int operation, NcclComm comm,
                    void *stream) = nullptr;
  int (*send)(const void *source, size_t count, int type, int peer, NcclComm comm, void *stream) = nullptr;
  int (*receive)(void *target, size_t count, int type, int peer, NcclComm comm, void *stream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;

  // Later ones: nullptr where they are not.
  int (*comm_register)(NcclComm comm, void *data, size_t bytes, void **handle) = nullptr;  // 2.19
  int (*comm_deregister)(NcclComm comm, void *handle) = nullptr;                           // 2.19
  int (*comm_revoke)(NcclComm comm, int flags) = nullptr;                                  // 2.28.7
};

constexpr int nccl_version_min = 21800;

// Loads it, once; what failed is tried again by the next call. The copy that the process has already (PyTorch's), else
// the file that MXS_NCCL_LIBRARY names, else libnccl.so.2 as the loader finds it. MXS_NOT_BUILT: there is none, it is
// older than 2.18 or lacks a function; the sentence says which, and where the file lies.
mxs_status load_nccl(const NcclLibrary **library);

// "2.30.4" of 23004
std::string nccl_version_text(int version);

}  // namespace mxs
