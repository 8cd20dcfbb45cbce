/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Plan: which rank owns which tensor, and where it lies in its unit.
 *
 * mxs_plan_create is a pure function of the tensors, the topology and the
 * options: every rank calls it with the same and gets the same plan, on every
 * machine. No communication, no clock.
 *
 * Each tensor gets a role:
 *   matrix  one owner has all of it, or a group of ranks of one node (co-owners)
 *           have a range of its rows each and share its step
 *   blocks  a stack (E, r, c), or rows cut by block_rows: each block is a
 *           matrix, with an owner of its own where borders allow it
 *   tail    small, not a matrix: packed with its like for one owner
 *   flat    large, not a matrix (and frozen ones): those of a unit are cut evenly
 *           over the ranks, in shares of flat_bytes or more
 * A placement is one piece of a tensor with one owner. A matrix or tail tensor
 * has one (one for each co-owner); blocks have one each; flat has one for each
 * share. Column blocks cut a placement into several matrices that lie in it as
 * strided views:
 *
 *     rows cut (block_rows)         columns cut (block_columns)
 *     | q q q q |  owner 3          | q q k v |
 *     | k k k k |  owner 0          | q q k v |  one owner, three matrices
 *     | v v v v |  owner 5          | q q k v |
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

/** "auto", "matrix", "blocks", ...; "unknown" for a number that is no role. Static. Threads: any. Since 0.1. */
MXS_API const char *mxs_role_name(mxs_role role);

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
  const int64_t  *block_rows;      /**< rows of each block, of any sizes; copied. Three dimensions: of the blocks of
                                        each matrix of the stack. NULL: one matrix, or for three dimensions one block
                                        per leading index. A border off the alignment can't part two owners: the
                                        blocks on both sides of it share one */
  int32_t         block_count;
  int32_t         co_owners;       /**< 0: the planner chooses, see mxs_plan_options.co_owners_max; 1: one owner;
                                        more: so many ranks of one node have a range of its rows each. Two dimensions
                                        without blocks only */
  const char     *tied_to;         /**< tensor of the same unit whose bytes, rule and group this one shares */
  const int64_t  *block_columns;   /**< columns of each column block (heads of an output projection, q k v of a
                                        transposed weight); copied. NULL: none. With three dimensions they cut each
                                        matrix of the stack. Not together with block_rows */
  int32_t         block_column_count;
  int32_t         transposed;      /**< 1: stored as (in, out), as GPT-2's weights are; scaling wants (out, in) */
  int64_t         whole_rows;      /**< tensor parallelism: of the matrix that this is a local piece of, as stored.
                                        Scaling uses it, cost and bytes do not. 0: as shape. With blocks each one
                                        grows by the same factor, and must come out whole */
  int64_t         whole_columns;   /**< likewise */
} mxs_tensor;
#define MXS_TENSOR_INIT                                                                                \
  {                                                                                                    \
    sizeof(mxs_tensor), 0, 0, 0, 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
  }

typedef struct mxs_plan_options {
  uint32_t size;
  int32_t  unit_count;       /**< 0: the highest unit named + 1 */
  uint64_t alignment;        /**< of segment borders; a power of two, 64 to 2^30. 0: 4,096, the page of shared memory */
  uint64_t flat_bytes;       /**< non-matrix tensors of at least so many bytes (in dtype) are flat, and cut into shares
                                  of no less. 0: 65,536 */
  uint64_t rank_bytes_max;   /**< budget of owned bytes (weights, masters, gradients, state) per rank. 0: none */
  uint64_t matrix_flops_per_second; /**< of a rank in the matrix products of a step. 0: 150e12 */
  uint64_t memory_bytes_per_second; /**< of a rank in passes over elements. 0: 1.5e12 */
  /* What a worst rank's excess over its lower bound counts in the search, in thousandths. 0: the default, by which
     step time goes before bytes, and both before egress; 1 is next to nothing. */
  uint32_t step_weight;      /**< of the step's time. 0: 100,000 */
  uint32_t bytes_weight;     /**< of owned bytes. 0: 10,000 */
  uint32_t egress_weight;    /**< of what one rank, and one node through each NIC, sends out of one unit. 0: 1,000 */
  int32_t  co_owners_max;    /**< most ranks that the planner may let share a matrix where ranks would else be idle.
                                  0 or 1: it never does */
  uint64_t search_moves_max; /**< moves and swaps that the search may evaluate. 0: 4,000,000; 1: next to no search */
  const struct mxs_plan *previous; /**< a plan of the same tensors, for other ranks or another budget: pieces stay with
                                        their owners there unless moving them pays. All ranks pass the
                                        same; the fingerprint tells. Not kept. NULL: none */
  const int32_t *previous_ranks;   /**< by rank of this plan: its number in the previous one, or -1 for a rank that is
                                        new; of mxs_comm_origin after a shrink. NULL: the same numbers. Copied */
} mxs_plan_options;
#define MXS_PLAN_OPTIONS_INIT \
  { sizeof(mxs_plan_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

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
  uint64_t matrix_index;    /**< its first one, see mxs_plan_matrix */
  uint64_t matrix_count;    /**< 0: it is no matrix (tail, flat) */
  int32_t  co_owner;        /**< which of the ranks that share the matrix, counted from 0 */
  int32_t  co_owner_count;  /**< 1: the owner has it alone */
} mxs_placement;
#define MXS_PLACEMENT_INIT \
  { sizeof(mxs_placement), 0, 0, 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 0, 0, 0, 0, 0 }

/** A matrix, or a co-owner's rows of one: what one call of an optimizer's rule treats. */
typedef struct mxs_matrix {
  uint32_t size;
  int32_t  tensor;
  int32_t  block;          /**< counted from 0 within the tensor, row and column blocks alike */
  int32_t  owner;          /**< rank */
  uint64_t placement;      /**< that it lies in */
  uint64_t element_offset; /**< of its first element, within the tensor */
  int64_t  rows;           /**< as stored, on this rank */
  int64_t  columns;
  int64_t  row_stride;     /**< elements from one row to the next; columns, unless it is a column block */
  int64_t  scale_rows;     /**< (out, in) of the whole matrix, which scaling by shape uses: all co-owners' rows,
                                whole_rows of tensor parallelism, transposed */
  int64_t  scale_columns;
} mxs_matrix;
#define MXS_MATRIX_INIT \
  { sizeof(mxs_matrix), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What a rank carries under a plan. */
typedef struct mxs_rank_load {
  uint32_t size;
  int32_t  matrix_count;
  uint64_t owned_bytes;       /**< weights, masters, gradient sums and state together */
  double   step_flops;        /**< of its optimizer step, by the rule's cost model */
  uint64_t weight_bytes_max;  /**< the most it sends out of one unit's gather, as one copy */
  uint64_t step_ns;           /**< of its optimizer step, by the rates of mxs_plan_options */
} mxs_rank_load;
#define MXS_RANK_LOAD_INIT \
  { sizeof(mxs_rank_load), 0, 0, 0, 0, 0 }

/** What gathers and reduces of a unit carry under a plan. Bytes of one copy. */
typedef struct mxs_unit_load {
  uint32_t size;
  int32_t  owner_count;         /**< ranks that have bytes of it */
  uint64_t segment_count;       /**< of its weights */
  uint64_t weight_bytes;        /**< gaps not counted */
  uint64_t gradient_bytes;
  uint64_t rank_bytes_max;      /**< the most that one rank owns of the weights */
  uint64_t rank_bytes_bound;    /**< no placement has less */
  uint64_t nic_bytes_max;       /**< the most that the ranks of a node own together, over its NICs. 0: one node */
  uint64_t nic_bytes_bound;
  uint64_t network_bytes;       /**< of a gather: into other nodes than the owner's, once into each */
  uint64_t gather_bound_ns;     /**< by the topology's speeds; no algorithm is faster */
  int32_t  rank_of_most_bytes;  /**< -1: none has any */
  int32_t  node_of_most_bytes;
} mxs_unit_load;
#define MXS_UNIT_LOAD_INIT \
  { sizeof(mxs_unit_load), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What the planner minimises: the worst of all ranks, and units. */
#define MXS_OBJECTIVE_BYTES  0 /**< owned bytes of a rank */
#define MXS_OBJECTIVE_STEP   1 /**< picoseconds of a rank's step */
#define MXS_OBJECTIVE_EGRESS 2 /**< weight bytes of one unit that one rank owns */
#define MXS_OBJECTIVE_NIC    3 /**< weight bytes of one unit that a node's ranks own, over its NICs. 0 on one node */

typedef struct mxs_objective {
  uint32_t size;
  int32_t  rank;  /**< that is worst; of the NIC: the node */
  int32_t  unit;  /**< that is worst; -1 where units don't matter */
  int32_t  reserved;
  uint64_t worst;
  uint64_t bound; /**< no placement of these tensors, fixed owners and flat shares has less */
} mxs_objective;
#define MXS_OBJECTIVE_INIT \
  { sizeof(mxs_objective), 0, 0, 0, 0, 0 }

/** Elements that are with one rank under one plan and with another under the next. */
typedef struct mxs_plan_move {
  uint32_t size;
  int32_t  tensor;           /**< of the target plan */
  int32_t  source_rank;
  int32_t  target_rank;
  uint64_t source_placement; /**< of the source plan */
  uint64_t target_placement; /**< of the target plan */
  uint64_t element_offset;   /**< within the tensor */
  uint64_t element_count;
  uint64_t bytes;            /**< in dtype; masters and state of the same elements go the same way */
} mxs_plan_move;
#define MXS_PLAN_MOVE_INIT \
  { sizeof(mxs_plan_move), 0, 0, 0, 0, 0, 0, 0, 0 }

/** How the run will use the plan, for the prediction of memory. */
typedef struct mxs_memory_options {
  uint32_t       size;
  int32_t        slots;               /**< as in mxs_unit_options. 0: 2 */
  int32_t        gradient_slots;      /**< as in mxs_unit_options. 0: 2 */
  int32_t        by_reference;        /**< as MXS_GATHER_BY_REFERENCE: no weight slots */
  int32_t        thread_count;        /**< of the optimizer, whose kernels take workspace for each. 0: 1 */
  int32_t        replicas;            /**< 1: units with mxs_unit_options.replicas, whose gradient slots have scratch */
  const int32_t *own_slot_units;      /**< units with mxs_unit_options.own_slot; by reference: no effect */
  int32_t        own_slot_unit_count; /**< 0: none */
  int32_t        backup;              /**< 1: as mxs_optimizer_options.backup */
} mxs_memory_options;
#define MXS_MEMORY_OPTIONS_INIT \
  { sizeof(mxs_memory_options), 0, 0, 0, 0, 0, 0, 0, 0 }

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
  uint64_t peak;           /**< rest + the three above + own_slots + backup: pools stay mapped */
  uint64_t own_slots;      /**< as slots, of units with mxs_unit_options.own_slot: each unit's alone */
  uint64_t backup;         /**< of mxs_optimizer_options.backup: two copies of what this rank owns and two of what it
                                keeps for another; in peak and not in rest */
} mxs_memory;
#define MXS_MEMORY_INIT \
  { sizeof(mxs_memory), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

#define MXS_WEIGHTS   0
#define MXS_GRADIENTS 1

/**
 * Place the tensors on the ranks of a topology.
 *
 * Owners are chosen by longest processing time first on the step's time, then improved by moves and swaps: the worst
 * rank's step time and owned bytes within the budget, then what one rank and one node sends out of one unit. All in
 * integers, the search bounded by a count, so that every build and machine finds the same. More ranks than matrices,
 * ranks that own nothing, one rank, units without tensors and empty tensors are ordinary.
 *
 * @param tensors  Copied. May be NULL if tensor_count is 0.
 * @param options  NULL: defaults.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: the sentence names the tensor and the field.
 *         MXS_OVER_BUDGET: no placement within rank_bytes_max was found; tells the smallest budget that works.
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
 * 64 bits over everything that must be equal on all ranks: tensors, topology, options (of the previous plan its own 64
 * bits), placements.
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

/**
 * Matrices of all placements, in the order of placements; each placement tells which are its own.
 * @return 0 if NULL. Since 0.1.
 */
MXS_API uint64_t mxs_plan_matrix_count(const mxs_plan *plan);

/** One matrix. @return MXS_INVALID_ARGUMENT: no such matrix. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_plan_matrix(const mxs_plan *plan, uint64_t index, mxs_matrix *matrix);

/** What a unit carries. @return MXS_INVALID_ARGUMENT: no such unit. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_plan_unit(const mxs_plan *plan, int32_t unit, mxs_unit_load *load);

/**
 * How good the plan is: the worst of an objective beside its lower bound.
 *
 * @param kind  MXS_OBJECTIVE_BYTES, ...
 * @return MXS_OK. MXS_INVALID_ARGUMENT: no such objective.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_plan_objective(const mxs_plan *plan, int32_t kind, mxs_objective *objective);

/** Surprises that a person should look at: a matrix on AdamW, a stack that nothing steps. 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_plan_warning_count(const mxs_plan *plan);

/** A sentence that names the tensor; lives as long as the plan. NULL: no such warning. Threads: any. Since 0.1. */
MXS_API const char *mxs_plan_warning(const mxs_plan *plan, uint64_t index);

/** What a rank carries. @return MXS_INVALID_ARGUMENT: outside the world. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_plan_rank(const mxs_plan *plan, int32_t rank, mxs_rank_load *load);

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
 * Predict a rank's bytes before anything is launched: of host memory. In CUDA memory slots and slack are larger, since
 * maps there are of 2 MiB and segments have blocks of their own; mxs_unit_memory tells what was taken.
 *
 * @param options  NULL: defaults. The optimizer is the library's, with fp32 state.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a rank outside the world, a negative count, or no such unit in own_slot_units.
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

/**
 * What must go where when one plan takes the place of another: each element that its new owner doesn't have already,
 * once. Tensors are found by name; rank r of one world is rank r of the other. Ascending by tensor and offset.
 *
 * @param source      Ranks, units and order of tensors may differ from target's; names, shapes and dtypes may not.
 * @param moves       Receives at most move_capacity of them; each one's size must be set, as INIT does. May be NULL if
 *                    move_capacity is 0.
 * @param move_count  Receives how many there are.
 * @return MXS_OK. MXS_MISMATCH: the sentence names the tensor that only one plan has, or that differs.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_plan_moves(const mxs_plan *source, const mxs_plan *target, mxs_plan_move *moves,
                                  uint64_t move_capacity, uint64_t *move_count);

/**
 * The same when the ranks have other numbers, or some are gone: what must go where, and what is lost.
 *
 * @param source_ranks  By rank of the target plan: its number in the source plan, each at most once, or -1 for a rank
 *                      that is new; of mxs_comm_origin after a shrink. NULL: the same numbers.
 * @param moves         As mxs_plan_moves. source_rank is a rank of the target plan; -1: the owner isn't among them, so
 *                      the elements are lost, unless there is a backup (mxs_optimizer_recover) or a checkpoint.
 * @return As mxs_plan_moves. MXS_INVALID_ARGUMENT: a number that the source plan doesn't have, or one twice.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_plan_moves_from(const mxs_plan *source, const mxs_plan *target, const int32_t *source_ranks,
                                       mxs_plan_move *moves, uint64_t move_capacity, uint64_t *move_count);

/**
 * Write a plan as JSON, with the tensors, topology and options that it was made of. The file is complete or not there:
 * it is written beside its place and renamed.
 *
 * @return MXS_OK. MXS_SYSTEM: the file can't be written. MXS_INVALID_ARGUMENT: a tensor's name is not UTF-8, which JSON
 *         can't hold.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_plan_save(const mxs_plan *plan, const char *path);

/**
 * Read what mxs_plan_save wrote: the same plan, with the same fingerprint. Owners are taken from the file; everything
 * else is derived again and must agree with it.
 *
 * @return MXS_OK. MXS_SYSTEM: the file can't be read. MXS_INVALID_ARGUMENT: it isn't a plan, is of a version that this
 *         release doesn't read, or contradicts itself; the sentence names the field.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_plan_load(mxs_plan **plan, const char *path);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_PLAN_H */
