/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Plan: which rank owns which tensor, and where it lies in its unit.
 *
 * mxs_plan_create is a pure function of the tensors, the topology and the
 * options: every rank calls it with the same and gets the same plan, on every
 * machine. No communication, no clock.
 *
 * Each tensor gets a role:
 *   matrix  one owner has all of it
 *   blocks  a stack (E, r, c), or rows cut by block_rows: each block is a
 *           matrix with an owner of its own
 *   tail    small, not a matrix: packed with its like for one owner
 *   flat    large, not a matrix (and frozen ones): cut evenly over all ranks
 * A placement is one piece of a tensor with one owner. A matrix or tail tensor
 * has one; blocks have one each; flat has one per rank that gets a share.
 */
#ifndef MATRIXSHARD_PLAN_H
#define MATRIXSHARD_PLAN_H

#include "matrixshard/layout.h"
#include "matrixshard/topology.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxs_plan mxs_plan;

typedef int32_t mxs_role;
#define MXS_ROLE_AUTO   0
#define MXS_ROLE_MATRIX 1
#define MXS_ROLE_BLOCKS 2
#define MXS_ROLE_TAIL   3
#define MXS_ROLE_FLAT   4
#define MXS_ROLE_TIED   5 /**< has no bytes of its own: it is another tensor's */

/** One named parameter, as the caller describes it. */
typedef struct mxs_tensor {
  uint32_t        size;
  mxs_dtype       dtype;           /**< in the unit and on the gather's wire. 0: MXS_F32 */
  mxs_dtype       master_dtype;    /**< at the owner. 0: MXS_F32; frozen: as dtype. Equal to dtype: no second copy */
  mxs_dtype       gradient_dtype;  /**< of the open gradient: MXS_F32, MXS_BF16 or MXS_F16. 0: as dtype */
  const char     *name;            /**< unique, copied */
  int32_t         dimension_count; /**< 0 is a scalar; at most MXS_DIMENSIONS_MAX */
  int32_t         unit;            /**< counted from 0; units without tensors in between are allowed */
  int64_t         shape[MXS_DIMENSIONS_MAX];
  mxs_rule        rule;
  int32_t         group;           /**< which values of a step apply; counted from 0 */
  mxs_role        role;            /**< FLAT and TAIL: obeyed, or refused if the rule needs it whole; else chosen */
  int32_t         fixed_owner;     /**< 0: the planner chooses; else MXS_FIXED_OWNER(rank) */
  const int64_t  *block_rows;      /**< two dimensions: rows of each block; copied. NULL: one matrix, or for three
                                        dimensions one block per leading index. Blocks whose bytes are no multiples
                                        of the alignment share one owner */
  int32_t         block_count;
  int32_t         reserved;
  const char     *tied_to;         /**< tensor of the same unit whose bytes, rule and group this one shares */
} mxs_tensor;
#define MXS_TENSOR_INIT                                                                        \
  {                                                                                            \
    sizeof(mxs_tensor), 0, 0, 0, 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 0, 0, 0, 0, 0     \
  }

typedef struct mxs_plan_options {
  uint32_t size;
  int32_t  unit_count;       /**< 0: the highest unit named + 1 */
  uint64_t alignment;        /**< of segment borders; a power of two, 64 to 2^30. 0: 4,096, the page of shared memory */
  uint64_t flat_bytes;       /**< non-matrix tensors of at least so many bytes (in dtype) are flat. 0: 65,536 */
  uint64_t rank_bytes_max;   /**< budget of owned bytes (weights, masters, gradients, state) per rank. 0: none */
} mxs_plan_options;
#define MXS_PLAN_OPTIONS_INIT \
  { sizeof(mxs_plan_options), 0, 0, 0, 0 }

/** What became of a tensor. */
typedef struct mxs_tensor_info {
  uint32_t    size;
  mxs_role    role;
  mxs_rule    rule;
  int32_t     unit;
  int32_t     group;
  int32_t     tied_to;         /**< index of the tensor whose bytes it shares, else -1 */
  uint64_t    placement_index; /**< its first one */
  uint64_t    placement_count;
  const char *name;            /**< owned by the plan */
  const char *reason;          /**< why this rule and role, a sentence; owned by the plan */
} mxs_tensor_info;
#define MXS_TENSOR_INFO_INIT \
  { sizeof(mxs_tensor_info), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** One piece of a tensor with one owner. */
typedef struct mxs_placement {
  uint32_t size;
  int32_t  tensor;
  int32_t  block;           /**< counted from 0 within the tensor */
  int32_t  owner;           /**< rank */
  int32_t  unit;
  int32_t  dimension_count;
  int64_t  shape[MXS_DIMENSIONS_MAX]; /**< of the piece; flat shares have one dimension */
  uint64_t element_offset;  /**< within the tensor */
  uint64_t element_count;
  uint64_t weight_offset;   /**< bytes within the unit's weight layout */
  uint64_t gradient_offset; /**< bytes within the unit's gradient layout; UINT64_MAX if frozen */
} mxs_placement;
#define MXS_PLACEMENT_INIT \
  { sizeof(mxs_placement), 0, 0, 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 0 }

/** What a rank carries under a plan. */
typedef struct mxs_rank_load {
  uint32_t size;
  int32_t  matrix_count;
  uint64_t owned_bytes;       /**< weights, masters, gradient sums and state together */
  double   step_flops;        /**< of its optimizer step, by the rule's cost model */
  uint64_t weight_bytes_max;  /**< the most it sends out of one unit's gather, as one copy */
} mxs_rank_load;
#define MXS_RANK_LOAD_INIT \
  { sizeof(mxs_rank_load), 0, 0, 0, 0 }

/** How the run will use the plan, for the prediction of memory. */
typedef struct mxs_memory_options {
  uint32_t size;
  int32_t  slots;           /**< as in mxs_unit_options. 0: 2 */
  int32_t  gradient_slots;  /**< as in mxs_unit_options. 0: 2 */
  int32_t  by_reference;    /**< as MXS_GATHER_BY_REFERENCE: no weight slots */
  int32_t  thread_count;    /**< of the optimizer, whose kernels take workspace for each. 0: 1 */
  int32_t  replicas;        /**< 1: units with mxs_unit_options.replicas, whose gradient slots have scratch */
} mxs_memory_options;
#define MXS_MEMORY_OPTIONS_INIT \
  { sizeof(mxs_memory_options), 0, 0, 0, 0, 0 }

/** Bytes of one rank, predicted (mxs_plan_memory) or counted (mxs_unit_memory, mxs_optimizer_memory). */
typedef struct mxs_memory {
  uint32_t size;
  uint32_t reserved;
  uint64_t weights;        /**< owned segments, in dtype */
  uint64_t masters;        /**< where master_dtype differs */
  uint64_t gradients;      /**< the owner's fp32 sums */
  uint64_t state;          /**< of the optimizer */
  uint64_t slack;          /**< from rounding segments and pools up to pages */
  uint64_t rest;           /**< the five above */
  uint64_t slots;          /**< gathered weights of others, while units are whole */
  uint64_t gradient_slots; /**< open gradients */
  uint64_t workspace;      /**< of the optimizer's step */
  uint64_t peak;           /**< rest + the three above: pools stay mapped */
} mxs_memory;
#define MXS_MEMORY_INIT \
  { sizeof(mxs_memory), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

#define MXS_WEIGHTS   0
#define MXS_GRADIENTS 1

/**
 * Place the tensors on the ranks of a topology.
 *
 * Owners are chosen by longest processing time first on the step's cost, then
 * bytes, in integer arithmetic, within the budget. More ranks than matrices, ranks that own
 * nothing, one rank, units without tensors and empty tensors are ordinary.
 *
 * @param tensors  Copied. May be NULL if tensor_count is 0.
 * @param options  NULL: defaults.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: the sentence names the tensor and the field.
 *         MXS_OVER_BUDGET: no placement within rank_bytes_max was found; tells the worst rank.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_plan_create(mxs_plan **plan, const mxs_tensor *tensors, uint64_t tensor_count,
                                   const mxs_topology *topology, const mxs_plan_options *options);

/** Accepts NULL and a pointer to NULL. Units keep what they need of it. Since 0.1. */
MXS_API void mxs_plan_destroy(mxs_plan **plan);

MXS_API int32_t  mxs_plan_rank_count(const mxs_plan *plan);      /**< 0 if NULL. Since 0.1. */
MXS_API int32_t  mxs_plan_unit_count(const mxs_plan *plan);      /**< 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_plan_tensor_count(const mxs_plan *plan);    /**< 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_plan_placement_count(const mxs_plan *plan); /**< 0 if NULL. Since 0.1. */

/**
 * 64 bits over everything that must be equal on all ranks: tensors, topology, options, placements.
 * Compared when a unit is created. 0 if NULL.
 *
 * Threads: any. Since 0.1.
 */
MXS_API uint64_t mxs_plan_fingerprint(const mxs_plan *plan);

/** Index of a tensor by name. @return MXS_NOT_FOUND: no tensor has it. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_plan_find(const mxs_plan *plan, const char *name, int32_t *tensor);

/** What became of a tensor. @return MXS_INVALID_ARGUMENT: no such tensor. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_plan_tensor(const mxs_plan *plan, int32_t tensor, mxs_tensor_info *info);

/** One placement. @return MXS_INVALID_ARGUMENT: no such placement. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_plan_placement(const mxs_plan *plan, uint64_t index, mxs_placement *placement);

/** What a rank carries. @return MXS_INVALID_ARGUMENT: outside the world. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_plan_load(const mxs_plan *plan, int32_t rank, mxs_rank_load *load);

/**
 * A unit's layout of weights or of gradients, as an object of its own.
 *
 * @param which   MXS_WEIGHTS or MXS_GRADIENTS (without frozen tensors, in gradient dtypes).
 * @param layout  To be destroyed by the caller.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: no such unit, or `which` is neither.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_plan_layout(const mxs_plan *plan, int32_t unit, int32_t which, mxs_layout **layout);

/**
 * Predict a rank's bytes before anything is launched.
 *
 * @param options  NULL: defaults. The optimizer is the library's, with fp32 state.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a rank outside the world, or a negative count of slots or threads.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_plan_memory(const mxs_plan *plan, int32_t rank, const mxs_memory_options *options,
                                   mxs_memory *memory);

/**
 * The routing report: one line per tensor (name, shape, unit, rule, role, owners, why), then one per rank.
 *
 * @param text        Receives at most text_bytes bytes, always ending in a zero. May be NULL if text_bytes is 0.
 * @param bytes_out   Receives the bytes that the whole text needs, with its zero. May be NULL.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_plan_report(const mxs_plan *plan, char *text, size_t text_bytes, size_t *bytes_out);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_PLAN_H */
