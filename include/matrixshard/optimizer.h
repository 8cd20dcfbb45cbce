/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Optimizer: the local step of each owner, and the kernels behind it.
 *
 * A step is a transaction: gradients are checked (finite), one global norm is
 * formed, and norm, found_inf and step number are agreed in one small
 * all-reduce; only then state changes. A skipped step changes nothing on any
 * rank, and the step number does not advance. No matrix bytes move.
 *
 * gradient_scale is applied once, in fp32, before norm and rule. The norm does
 * not depend on plan or world: squares are summed in fp64 over chunks of 4,096
 * elements of each tensor, and chunk sums are added exactly.
 */
#ifndef MATRIXSHARD_OPTIMIZER_H
#define MATRIXSHARD_OPTIMIZER_H

#include "matrixshard/unit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxs_optimizer mxs_optimizer;

/** Which Muon. */
typedef int32_t mxs_muon_preset;
#define MXS_MUON_DEFAULT 0 /**< YOU table x 5, update scaled by 0.2 * sqrt(max(rows, columns)), fp32 momentum */
#define MXS_MUON_TORCH   1 /**< torch.optim.Muon: table (3.4445, -4.7750, 2.0315) x 5, sqrt(max(1, rows / columns)),
                                X / max(norm, 1e-7) */

/** Who multiplies in Newton-Schulz. */
typedef int32_t mxs_backend;
#define MXS_BACKEND_AUTO      0 /**< oneDNN bf16 where the CPU has it and the build too, else reference */
#define MXS_BACKEND_REFERENCE 1 /**< portable, fp32 */
#define MXS_BACKEND_ONEDNN    2 /**< bf16 products, fp32 accumulation; MXS_NOT_BUILT without it. Matrices with fewer
                                     than 32 rows or columns take the reference all the same */

/**
 * Values of one group at one step. A zero means zero here, except for size: INIT gives torch's defaults
 * for AdamW and Muon's momentum. All must be finite and none negative; momentum and betas are below 1.
 */
typedef struct mxs_group_values {
  uint32_t size;
  float    lr;
  float    weight_decay; /**< decoupled: weights *= 1 - lr * weight_decay, before the update */
  float    momentum;     /**< muon: EMA, with nesterov */
  float    beta1, beta2; /**< adamw */
  float    epsilon;      /**< adamw: added after bias correction */
  float    reserved;
} mxs_group_values;
#define MXS_GROUP_VALUES_INIT \
  { sizeof(mxs_group_values), 1e-3f, 1e-2f, 0.95f, 0.9f, 0.999f, 1e-8f, 0.0f }

typedef struct mxs_optimizer_options {
  uint32_t        size;
  mxs_muon_preset muon;
  mxs_backend     backend;
  int32_t         thread_count; /**< of this rank's kernels. 0: the comm's */
  /**
   * Units of several comms: sum `count` 64-bit words over all ranks that step together, in place.
   * Returns 0 for success.
   * A verdict's found_inf_rank is then a rank of the first unit's comm, at most 1,023.
   * NULL: the comm of the units, which must then be one.
   */
  int (*agree)(void *context, int64_t *words, uint64_t count);
  void *agree_context;
} mxs_optimizer_options;
#define MXS_OPTIMIZER_OPTIONS_INIT \
  { sizeof(mxs_optimizer_options), 0, 0, 0, 0, 0 }

typedef struct mxs_step {
  uint32_t                size;
  int32_t                 group_count;
  const mxs_group_values *groups;         /**< by group number; equal on all ranks */
  float                   gradient_scale; /**< such as 1 / world. 0: 1 */
  float                   clip_norm;      /**< largest global norm. 0: don't clip */
} mxs_step;
#define MXS_STEP_INIT \
  { sizeof(mxs_step), 0, 0, 0, 0 }

/** What all ranks agreed on. */
typedef struct mxs_verdict {
  uint32_t size;
  int32_t  skipped;     /**< 1: some gradient was not finite; nothing changed */
  uint64_t step_number; /**< after this step; steps that were skipped don't count */
  double   norm;        /**< of all scaled gradients; infinite or NaN if skipped */
  float    clip_factor; /**< min(1, clip_norm / (norm + 1e-6)), as torch; 1 if not asked for */
  int32_t  found_inf_rank; /**< lowest rank that saw one, else -1 */
} mxs_verdict;
#define MXS_VERDICT_INIT \
  { sizeof(mxs_verdict), 0, 0, 0, 0, 0 }

/** One piece of state, for checkpoints and inspection. */
typedef struct mxs_state_info {
  uint32_t    size;
  int32_t     tensor;
  uint64_t    placement;
  const char *name; /**< "momentum", "exp_avg", "exp_avg_sq"; static */
  mxs_view    view; /**< fp32, writable between steps */
} mxs_state_info;
#define MXS_STATE_INFO_INIT \
  { sizeof(mxs_state_info), 0, 0, 0, MXS_VIEW_INIT }

/** Which kernels a placement of this rank gets. */
typedef struct mxs_kernel_info {
  uint32_t    size;
  mxs_rule    rule;
  const char *backend; /**< "reference", "onednn brg:avx512_core_bf16", ...; of column blocks all that differ, with
                            commas; owned by the optimizer */
  double      flops;   /**< of one step */
} mxs_kernel_info;
#define MXS_KERNEL_INFO_INIT \
  { sizeof(mxs_kernel_info), 0, 0, 0 }

/**
 * Make the optimizer of some units. Collective if the units are of one comm: what is refused on one rank is then
 * refused on all. State is zero, and takes its memory here.
 *
 * @param units    Borrowed until destroy; each in one optimizer only.
 * @return MXS_OK. MXS_INVALID_ARGUMENT. MXS_NOT_BUILT: a tensor's rule, or the backend, is not in this build.
 *         MXS_MISMATCH: ranks differ in preset or, under MXS_RANK_ORDER, in backend, threads or CPU class.
 * Since 0.1.
 */
MXS_API mxs_status mxs_optimizer_create(mxs_optimizer **optimizer, mxs_unit *const *units, uint64_t unit_count,
                                        const mxs_optimizer_options *options);

/** Accepts NULL and a pointer to NULL. Local. Its units may then be destroyed, or go into another. Since 0.1. */
MXS_API mxs_status mxs_optimizer_destroy(mxs_optimizer **optimizer);

/**
 * Agree on norm, clip factor and found_inf before the step, for clip_grad_norm_ and the like. Collective.
 * Waits for the units' reduces and ends this rank's views of weights. A step that follows uses it.
 *
 * @return MXS_HELD: a unit is gathered or a gradient is open. MXS_INVALID_ARGUMENT: a group without values.
 * Since 0.1.
 */
MXS_API mxs_status mxs_optimizer_agree(mxs_optimizer *optimizer, const mxs_step *step, mxs_verdict *verdict);

/**
 * Step the placements that this rank owns and clear their gradient sums; agrees first if nobody did. Collective
 * through the agreement only.
 *
 * A skipped step clears the sums too and is MXS_OK: ask the verdict.
 *
 * @param verdict  May be NULL.
 * Since 0.1.
 */
MXS_API mxs_status mxs_optimizer_step(mxs_optimizer *optimizer, const mxs_step *step, mxs_verdict *verdict);

/** Clear the gradient sums without a step. Local. Since 0.1. */
MXS_API mxs_status mxs_optimizer_clear(mxs_optimizer *optimizer);

/** Steps done so far. 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_optimizer_step_number(const mxs_optimizer *optimizer);

/** To resume: say how many steps were done. Since 0.1. */
MXS_API mxs_status mxs_optimizer_set_step_number(mxs_optimizer *optimizer, uint64_t step_number);

/** Pieces of state on this rank. 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_optimizer_state_count(const mxs_optimizer *optimizer);

/** One of them, counted from 0. @return MXS_NOT_FOUND: there are fewer. Since 0.1. */
MXS_API mxs_status mxs_optimizer_state(mxs_optimizer *optimizer, uint64_t index, mxs_state_info *info);

/** The kernels that a placement gets here. @return MXS_NOT_FOUND: not owned by this rank. Since 0.1. */
MXS_API mxs_status mxs_optimizer_kernel(const mxs_optimizer *optimizer, uint64_t placement, mxs_kernel_info *info);

/** State and workspace bytes of this rank; the other fields are 0. Since 0.1. */
MXS_API mxs_status mxs_optimizer_memory(const mxs_optimizer *optimizer, mxs_memory *memory);

/* ---- Kernels alone: no comm, no unit. Row-major, contiguous, host memory. -------------------------------------- */

/** Newton-Schulz for one shape: chosen kernels and workspace, reusable, one call at a time. */
typedef struct mxs_orthogonalizer mxs_orthogonalizer;

typedef struct mxs_orthogonalizer_options {
  uint32_t        size;
  mxs_muon_preset preset; /**< its table, steps and normalisation */
  mxs_backend     backend;
  int32_t         thread_count; /**< 0: 1 */
} mxs_orthogonalizer_options;
#define MXS_ORTHOGONALIZER_OPTIONS_INIT \
  { sizeof(mxs_orthogonalizer_options), 0, 0, 0 }

/**
 * Choose kernels for one shape and take the workspace.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: rows or columns below 1 or their product above 2^40.
 *         MXS_NOT_BUILT: the backend.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_orthogonalizer_create(mxs_orthogonalizer **orthogonalizer, int64_t rows, int64_t columns,
                                             const mxs_orthogonalizer_options *options);
/** Accepts NULL and a pointer to NULL. Since 0.1. */
MXS_API void mxs_orthogonalizer_destroy(mxs_orthogonalizer **orthogonalizer);

/** Backend and implementation, owned by the orthogonalizer; "" if NULL. Since 0.1. */
MXS_API const char *mxs_orthogonalizer_backend(const mxs_orthogonalizer *orthogonalizer);

/** Bytes of its workspace. 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_orthogonalizer_workspace_bytes(const mxs_orthogonalizer *orthogonalizer);

/**
 * X = U f(S) V^T for the source U S V^T scaled to norm 1, f five steps of x -> a x + b x^3 + c x^5. Zero maps to zero.
 *
 * @param source  fp32, rows * columns; read only.
 * @param target  fp32, rows * columns; may be source.
 * @return MXS_INVALID_ARGUMENT: a NULL, or a source that is not finite; target is then untouched.
 * Since 0.1.
 */
MXS_API mxs_status mxs_orthogonalize(mxs_orthogonalizer *orthogonalizer, const float *source, float *target);

/**
 * The factor that a preset puts on the update of a rows x columns matrix, beside lr. Both of the whole matrix as
 * (out, in), whatever way it is stored and cut: mxs_matrix.scale_rows and scale_columns.
 *
 * Threads: any. Since 0.1.
 */
MXS_API float mxs_muon_scale(mxs_muon_preset preset, int64_t rows, int64_t columns);

/** Element passes of one step on one piece; all arrays have `count` elements. A zero means zero here. */
typedef struct mxs_elements {
  uint32_t     size;
  mxs_dtype    dtype;          /**< of weights */
  uint64_t     count;
  const float *gradient;
  float        gradient_scale; /**< scale * clip factor, multiplied in first */
  float        update_scale;   /**< muon_apply: mxs_muon_scale */
  float       *momentum;       /**< muon */
  float       *update;         /**< muon_momentum writes it, muon_apply reads it */
  float       *exp_avg;        /**< adamw */
  float       *exp_avg_sq;     /**< adamw */
  float       *master;         /**< fp32. May be NULL if dtype is MXS_F32: weights are then the master */
  void        *weights;        /**< in dtype; receives the rounded master (to nearest even) */
  uint64_t     step_number;    /**< adamw: of this step, from 1 */
} mxs_elements;
#define MXS_ELEMENTS_INIT \
  { sizeof(mxs_elements), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * momentum = lerp(momentum, g, 1 - momentum_value); update = lerp(g, momentum, momentum_value).
 *
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_muon_momentum(const mxs_elements *elements, const mxs_group_values *values);

/**
 * master = master * (1 - lr * weight_decay) - lr * update_scale * update; weights = rounded.
 *
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_muon_apply(const mxs_elements *elements, const mxs_group_values *values);

/** torch.optim.AdamW, in fp32; weights = rounded. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_adamw(const mxs_elements *elements, const mxs_group_values *values);

/** 64-bit words of a sum of squares. */
#define MXS_NORM_WORDS 40

/**
 * The sum of squares of an optimizer's norm, for parts of one model that are stepped without an optimizer object.
 * Chunk sums of 4,096 elements are formed in fp64 and added exactly, so that the order of parts is of no consequence.
 * Chunks are counted from `gradient`: a part that doesn't begin at a multiple of 4,096 elements of its tensor gives
 * another norm than the whole tensor, by rounding.
 *
 * @param words       MXS_NORM_WORDS words, zero at first. Words of several sums, and of several ranks
 *                    (mxs_comm_sum_words), are added word by word.
 * @param not_finite  Set to 1 if an element is not finite, else left.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_norm_add(int64_t *words, const float *gradient, uint64_t count, float gradient_scale,
                                int32_t *not_finite);

/** The square root of what mxs_norm_add has added. 0 if NULL. Threads: any. Since 0.1. */
MXS_API double mxs_norm_value(const int64_t *words);

/**
 * What an optimizer multiplies gradients by for a norm: min(1, clip_norm / (norm + 1e-6)) in fp64, as torch; 1 if
 * clip_norm is 0. The factor of elements is then gradient_scale times this, rounded to fp32.
 *
 * Threads: any. Since 0.1.
 */
MXS_API float mxs_clip_factor(double norm, float clip_norm);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_OPTIMIZER_H */
