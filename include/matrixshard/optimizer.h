/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Optimizer: the local step of each owner, over the kernels of kernels.h.
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

#include "matrixshard/kernels.h"
#include "matrixshard/unit.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxs_optimizer mxs_optimizer;

/*
 * Backup. Each matrix has one owner, so a rank that dies takes its matrices with it. With options.backup each rank's
 * masters (where there are none: weights) and state go to one other rank, its keeper, after each step: on the next node
 * where there are several, else the next rank. They go in the background, and the next step's agreement waits for
 * them. A rank keeps, beside what it works on, its own bytes and its wards' after the two latest steps: it has one
 * ward, or several or none where nodes have different numbers of ranks.
 *
 *   after step n     own bytes of n are copied and set off; those of n - 1 are still there, here and at the keeper
 *   agreement n + 1  proves on all ranks that the keepers have step n
 *   a rank dies      the others shrink the comm, plan for the ranks that are left, make units and an optimizer, and
 *                    mxs_optimizer_recover fills them with the newest step of which every part exists: at most one
 *                    step is done again
 *
 * Before the first step, and the first after a load, mxs_unit_commit or a view of mxs_optimizer_state, a backup is made
 * before anything changes, with one agreement more.
 *
 * Its memory is mxs_memory.backup. Host memory, units of one comm without replicas or co-owners; else MXS_NOT_BUILT.
 */
typedef struct mxs_optimizer_options {
  uint32_t        size;
  mxs_preset      preset;       /**< of the rule muon, where muon_options is NULL; one of Muon's */
  mxs_backend     backend;      /**< of all rules whose options don't name one */
  int32_t         thread_count; /**< of this rank's kernels. 0: the comm's */
  /**
   * Units of several comms: sum `count` 64-bit words over all ranks that step together, in place.
   * Returns 0 for success. Called once in an agreement, and twice in one that MXS_MISSING_ERROR ends.
   * A verdict's found_inf_rank is then a rank of the first unit's comm, at most 1,023.
   * NULL: the comm of the units, which must then be one.
   */
  int (*agree)(void *context, int64_t *words, uint64_t count);
  void *agree_context;
  /* How each rule steps; copied, equal on all ranks. NULL: the defaults of its INIT. thread_count is that above. */
  const mxs_muon_options    *muon_options;
  const mxs_shampoo_options *shampoo_options;
  const mxs_soap_options    *soap_options;
  const mxs_adamw_options   *adamw_options;
  /** How weights without an fp32 master (master_dtype == dtype, 16 bits) are rounded. */
  mxs_rounding rounding;
  int32_t      backup;          /**< 1: what this rank owns is kept on another rank as well; see above */
  uint64_t     seed;            /**< of MXS_ROUND_STOCHASTIC */
} mxs_optimizer_options;
#define MXS_OPTIMIZER_OPTIONS_INIT \
  { sizeof(mxs_optimizer_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What a step makes of a tensor whose gradient some rank has not given since the step or clear before. */
#define MXS_MISSING_ZERO  0 /**< it counts as zero on that rank */
#define MXS_MISSING_ERROR 1 /**< MXS_NOT_OPEN on all ranks, with the names of tensor, unit and rank; nothing changed */

typedef struct mxs_step {
  uint32_t                size;
  int32_t                 group_count;
  const mxs_group_values *groups;         /**< by group number; equal on all ranks */
  float                   gradient_scale; /**< such as 1 / world. 0: 1 */
  float                   clip_norm;      /**< largest global norm. 0: don't clip */
  int32_t                 missing;        /**< MXS_MISSING_...: equal on all ranks. A gradient is given if it was opened
                                               and reduced; skip and discard give none. Of tensors that are stepped or
                                               external and not empty */
  int32_t                 reserved;
  void                   *stream;         /**< units in CUDA memory: the stream that the step is put on. NULL: the
                                               legacy default stream. Host memory: NULL */
} mxs_step;
#define MXS_STEP_INIT \
  { sizeof(mxs_step), 0, 0, 0, 0, 0, 0, 0 }

/** What all ranks agreed on. */
typedef struct mxs_verdict {
  uint32_t size;
  int32_t  skipped;     /**< 1: some gradient was not finite, or the norm is above 2^63; nothing changed */
  uint64_t step_number; /**< after this step; steps that were skipped don't count */
  double   norm;        /**< of all scaled gradients; infinite or NaN if skipped */
  float    clip_factor; /**< min(1, clip_norm / (norm + 1e-6)), as torch; 1 if not asked for */
  int32_t  found_inf_rank; /**< lowest rank that saw one that is not finite, else -1 */
} mxs_verdict;
#define MXS_VERDICT_INIT \
  { sizeof(mxs_verdict), 0, 0, 0, 0, 0 }

/** One piece of state, for checkpoints and inspection. */
typedef struct mxs_state_info {
  uint32_t    size;
  int32_t     tensor;
  uint64_t    placement;
  const char *name; /**< "momentum", "exp_avg", "factor_left", ...: see mxs_state_part; owned by the optimizer */
  mxs_view    view; /**< writable between steps. Of the placement's shape, or of the part's: factors are square */
} mxs_state_info;
#define MXS_STATE_INFO_INIT \
  { sizeof(mxs_state_info), 0, 0, 0, MXS_VIEW_INIT }

/** Which kernels a placement of this rank gets. */
typedef struct mxs_kernel_info {
  uint32_t    size;
  mxs_rule    rule;
  const char *backend; /**< of products: "reference", "onednn brg:avx512_core_bf16", ...; of column blocks all that
                            differ, with commas; of adamw its element passes; owned by the optimizer */
  double      flops;   /**< of products, of one step; refreshes of shampoo and soap spread over their interval */
  mxs_dtype   product_dtype; /**< MXS_BF16 or MXS_F32 */
  int32_t     reserved;
  uint64_t    failed_count;  /**< decompositions of shampoo and soap that failed so far, while an old one was kept */
} mxs_kernel_info;
#define MXS_KERNEL_INFO_INIT \
  { sizeof(mxs_kernel_info), 0, 0, 0, 0, 0, 0 }

/**
 * Make the optimizer of some units. Collective if the units are of one comm: what is refused on one rank is then
 * refused on all. State is zero, and takes its memory here.
 *
 * @param units    Borrowed until destroy; each in one optimizer only.
 * @return MXS_OK. MXS_INVALID_ARGUMENT. MXS_NOT_BUILT: a backend that is not in this build, or a combination that this
 *         release doesn't have (dtypes, NorMuon of a transposed or shared matrix); the sentence names the tensor.
 *         MXS_MISMATCH: ranks differ in options or, under MXS_RANK_ORDER, in backend, threads or CPU class.
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
 *         MXS_MISMATCH: ranks give different values, or have done different numbers of steps. MXS_INTERNAL: a rank left
 *         a tensor out of the step before; the sentence names both. MXS_NOT_OPEN: MXS_MISSING_ERROR, and a gradient
 *         is missing: the lowest rank that has none and its first such tensor are named. Nothing has changed in any of
 *         these cases, and the sums are kept: give it, step with MXS_MISSING_ZERO, or clear.
 * Since 0.1.
 */
MXS_API mxs_status mxs_optimizer_agree(mxs_optimizer *optimizer, const mxs_step *step, mxs_verdict *verdict);

/**
 * Step the placements that this rank owns and clear their gradient sums; agrees first if nobody did. Collective
 * through the agreement only.
 *
 * A skipped step clears the sums too and is MXS_OK: ask the verdict.
 *
 * In CUDA memory the step is put on step->stream. With a verdict the caller waits for it; without one, and where NCCL
 * joins all ranks of one comm without replicas, nothing waits for the device: norm, clip factor, found_inf and step
 * number stay there, and what the agreement refuses (ranks that differ) is told by the next call. Such a step can be
 * captured in a CUDA graph: a captured step takes its values (groups, gradient_scale, clip_norm) from the device, where
 * mxs_optimizer_set_values puts them before each launch; else MXS_NOT_BUILT, with the sentence that says why.
 * MXS_MISSING_ERROR waits, and can't be captured; nor can steps of shampoo and soap, which wait. A refusal that nobody
 * waited for skips the step and clears the sums; the call that tells it has done its own work.
 *
 * @param verdict  May be NULL.
 * @return As mxs_optimizer_agree. Or MXS_INTERNAL on one rank: a piece of its own could not be updated (decompositions
 *         failed more often in a row than allowed, or its momentum was not finite before); the sentence names the
 *         tensor. Everything else is stepped, the step counts, and the next agreement fails on all ranks.
 * Since 0.1.
 */
MXS_API mxs_status mxs_optimizer_step(mxs_optimizer *optimizer, const mxs_step *step, mxs_verdict *verdict);

/**
 * Values for the steps that come, put on step->stream: what a step without verdict, captured in a CUDA graph, reads
 * when the graph is launched. Units in CUDA memory only. Local; ranks give equal values, which the step's agreement
 * compares.
 *
 * step->missing must be MXS_MISSING_ZERO. Verdicts of graphs are those of the stream that values were put on last,
 * which must live until they are asked for.
 *
 * @return MXS_INVALID_ARGUMENT: values as a step would refuse them, or units in host memory.
 * Since 0.1.
 */
MXS_API mxs_status mxs_optimizer_set_values(mxs_optimizer *optimizer, const mxs_step *step);

/**
 * The verdict of the latest step. In CUDA memory it waits for that step, captured ones included; what such a step was
 * refused for is returned here.
 *
 * @return MXS_NOT_FOUND: no step yet.
 * Since 0.1.
 */
MXS_API mxs_status mxs_optimizer_verdict(mxs_optimizer *optimizer, mxs_verdict *verdict);

/** What mxs_optimizer_recover found and did. */
typedef struct mxs_recovery {
  uint32_t size;
  int32_t  lost_count;     /**< ranks of the failed comm that are not in the new one */
  uint64_t step_number;    /**< that all ranks have now */
  uint64_t newest_step;    /**< that some rank had done: step_number or one more */
  uint64_t bytes_in;       /**< that came to this rank from others */
  uint64_t bytes_restored; /**< of lost ranks, from their keepers, on all ranks together */
} mxs_recovery;
#define MXS_RECOVERY_INIT \
  { sizeof(mxs_recovery), 0, 0, 0, 0, 0 }

/**
 * Fill a new optimizer and its units from one whose comm has failed: weights, masters, state and step number of the
 * newest step that every part of exists, from the ranks that are alive and, of those that are not, from their keepers.
 * Collective over the new units' comm, which mxs_comm_shrink made of the other's.
 *
 * Both optimizers are of the same tensors, by name, shape, dtypes and rule, and of options.backup. Shampoo and SOAP
 * want placements that are the same pieces under both plans (mxs_plan_options.previous); else MXS_NOT_BUILT.
 *
 * @param optimizer  Of new units on the new comm; nothing gathered or open.
 * @param failed     Stays as it was: a recovery that itself fails may be tried again over another shrunk comm.
 * @param recovery   May be NULL.
 * @return MXS_OK. MXS_NOT_FOUND: a rank and its keeper are both gone, or no step was done yet; the sentence names the
 *         ranks: load a checkpoint. MXS_INVALID_ARGUMENT: no backup, the other comm hasn't failed or is this one, or
 *         ranks come from different comms. MXS_HELD: something of `optimizer` is gathered or open. MXS_MISMATCH:
 *         tensors, rules or options differ. MXS_NOT_BUILT: as above. In these cases nothing has changed. Failures of
 *         the new comm: contents of `optimizer` are undefined, and it refuses to step.
 * Since 0.1.
 */
MXS_API mxs_status mxs_optimizer_recover(mxs_optimizer *optimizer, mxs_optimizer *failed, mxs_recovery *recovery);

/** Clear the gradient sums without a step. Local. Since 0.1. */
MXS_API mxs_status mxs_optimizer_clear(mxs_optimizer *optimizer);

/**
 * Steps done so far. 0 if NULL. In CUDA memory it waits for steps that were put on streams; in a forked child it tells
 * what was known before. Since 0.1.
 */
MXS_API uint64_t mxs_optimizer_step_number(const mxs_optimizer *optimizer);

/** To resume: say that `step_number` steps were done. Since 0.1. */
MXS_API mxs_status mxs_optimizer_set_step_number(mxs_optimizer *optimizer, uint64_t step_number);

/** Pieces of state on this rank. 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_optimizer_state_count(const mxs_optimizer *optimizer);

/** One of them, counted from 0. @return MXS_NOT_FOUND: there are fewer. Since 0.1. */
MXS_API mxs_status mxs_optimizer_state(mxs_optimizer *optimizer, uint64_t index, mxs_state_info *info);

/** The kernels that a placement gets here. @return MXS_NOT_FOUND: not owned by this rank. Since 0.1. */
MXS_API mxs_status mxs_optimizer_kernel(const mxs_optimizer *optimizer, uint64_t placement, mxs_kernel_info *info);

/**
 * State and workspace bytes of this rank; the other fields are 0. Buffers of co-owners' sums, at most 2 MiB for each
 * group, are not counted. Since 0.1.
 */
MXS_API mxs_status mxs_optimizer_memory(const mxs_optimizer *optimizer, mxs_memory *memory);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_OPTIMIZER_H */
