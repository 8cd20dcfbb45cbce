/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Small things that all other headers share: dtypes, memory kinds, rules,
 * views and call options.
 *
 * Every public struct begins with `uint32_t size`, which its INIT macro sets.
 * The library reads and writes no more than that many bytes, so a program
 * built against an older header keeps working. Zero in any other field means
 * "you choose", unless the struct says that it means zero. In an array all
 * elements have the size of the first. mxs_counter, which only stands inside
 * mxs_comm_stats, is the one struct without a size of its own; it never changes.
 */
#ifndef MATRIXSHARD_TYPES_H
#define MATRIXSHARD_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "matrixshard/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Element types. Zero is "not said". */
typedef int32_t mxs_dtype;
#define MXS_F32  1
#define MXS_BF16 2
#define MXS_F16  3
#define MXS_F64  4
#define MXS_U8   5

/** Where memory lies. MXS_CUDA is device memory of the comm's device (comm.h, cuda.h). */
typedef int32_t mxs_memory_kind;
#define MXS_HOST 0
#define MXS_CUDA 1

/** Which optimizer treats a tensor. */
typedef int32_t mxs_rule;
#define MXS_RULE_AUTO     0 /**< muon for two and three dimensions, adamw otherwise */
#define MXS_RULE_MUON     1
#define MXS_RULE_ADAMW    2
#define MXS_RULE_EXTERNAL 3 /**< stepped by the caller; owner and memory are ours */
#define MXS_RULE_FROZEN   4 /**< stored, gathered, never stepped; has no gradient */
#define MXS_RULE_SHAMPOO  5 /**< matrices, each as a whole, as under muon */
#define MXS_RULE_SOAP     6 /**< likewise */

/** A rank that the caller insists on, in a field where zero means "you choose". */
#define MXS_FIXED_OWNER(rank) ((rank) + 1)
/** A CUDA device that the caller insists on, likewise. */
#define MXS_DEVICE(index) ((index) + 1)

#define MXS_DIMENSIONS_MAX 8

/**
 * A window on memory that the library owns.
 *
 * An empty view (bytes 0, data NULL) is ordinary: this rank owns nothing of
 * the tensor. `generation` tells whether the view is still good: a step makes
 * views of the units it changed stale.
 */
typedef struct mxs_view {
  uint32_t        size;
  mxs_dtype       dtype;
  mxs_memory_kind memory;
  int32_t         dimension_count;
  void           *data;
  uint64_t        bytes;
  int64_t         shape[MXS_DIMENSIONS_MAX];
  int64_t         strides[MXS_DIMENSIONS_MAX]; /**< in elements */
  uint64_t        generation;
  int32_t         unit;
  int32_t         tensor;
} mxs_view;
#define MXS_VIEW_INIT                                                     \
  {                                                                       \
    sizeof(mxs_view), 0, 0, 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0},            \
        {0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0                                 \
  }

/**
 * The place of one operation in its comm's order, counted from 1.
 * mxs_comm_test and mxs_comm_wait take it; zero is always complete.
 */
typedef uint64_t mxs_request;

/**
 * How one call that moves or touches buffers behaves. NULL means all defaults.
 */
typedef struct mxs_call {
  uint32_t     size;
  int32_t      priority;    /**< of an operation in flight beside others: higher ones go first, among equals the oldest.
                                 0 if it doesn't matter. Ranks may give different ones */
  void        *stream;      /**< CUDA memory: a CUstream or cudaStream_t of the comm's device. The call's work begins
                                 after what the stream has so far, and a wait makes the stream wait, not the caller.
                                 NULL: the legacy default stream orders what begins, and a wait blocks the caller.
                                 Host memory: must be NULL, else MXS_INVALID_ARGUMENT */
  uint64_t     timeout_ns;  /**< of a call that waits. 0: the comm's */
  mxs_request *request_out; /**< if not NULL, receives the number of the operation that the call began: of a gather, a
                                 reduce, a skip or a collective's start. Others leave it alone */
} mxs_call;
#define MXS_CALL_INIT \
  { sizeof(mxs_call), 0, 0, 0, 0 }

/**
 * Bytes of one element.
 *
 * @return 0 for a number that is no dtype.
 * Threads: any. Since 0.1.
 */
MXS_API size_t mxs_dtype_bytes(mxs_dtype dtype);

/**
 * "f32", "bf16", ...; "unknown" for a number that is no dtype. Static.
 *
 * Threads: any. Since 0.1.
 */
MXS_API const char *mxs_dtype_name(mxs_dtype dtype);

/**
 * "auto", "muon", "adamw", ...; "unknown" for a number that is no rule. Static.
 *
 * Threads: any. Since 0.1.
 */
MXS_API const char *mxs_rule_name(mxs_rule rule);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_TYPES_H */
