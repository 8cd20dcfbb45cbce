/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Kernels: the local step of whole matrices, alone. No comm, no unit, no plan;
 * row-major host memory that the caller owns.
 *
 *   orthogonalizer   Newton-Schulz for one shape
 *   stepper          one rule for one batch of equal matrices: state, update, apply
 *   passes           the element loops of a step, and its exact norm
 *
 * A stepper's life:
 *
 *   mxs_muon_create(&stepper, &matrices, &options);   or mxs_shampoo_, mxs_soap_, mxs_adamw_create
 *   state = aligned_alloc(64, mxs_stepper_state_bytes(stepper));          caller's memory, all of it
 *   workspace = aligned_alloc(64, mxs_stepper_workspace_bytes(stepper));
 *   mxs_stepper_init(stepper, state);                                     explicit, never lazy
 *   each step: mxs_stepper_step(stepper, &call, &result)
 *
 * A stepper doesn't change after create but for its worker threads: one step, update or apply at a time on each, from
 * any thread; what only asks (bytes, parts, describe) may be called meanwhile. A step allocates nothing. Gradients are
 * read only. A gradient that is not finite skips the step: nothing changes, the step number does not advance, and the
 * result says so.
 *
 * What was chosen (backend, algorithm) depends on shape, options and CPU only, can be asked for, and never changes
 * after create. Bits depend neither on thread count nor on whether matrices are stepped in a batch or one by one.
 */
#ifndef MATRIXSHARD_KERNELS_H
#define MATRIXSHARD_KERNELS_H

#include "matrixshard/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Presets and choices --------------------------------------------------------------------------------------- */

/**
 * Whose optimizer: what every field of options that is left zero takes. Constants and formulas: docs/optimizers.md.
 */
typedef int32_t mxs_preset;
#define MXS_PRESET_DEFAULT        0  /**< the rule's own. muon: YOU table, EMA, nesterov, 0.2 * sqrt(max(rows,
                                          columns)); adamw: torch; shampoo: Meta's with a root every 10 steps and
                                          Adam's norms; soap: nikhilvyas */
#define MXS_PRESET_TORCH_MUON     1  /**< "torch-muon": torch.optim.Muon */
#define MXS_PRESET_TORCH_MUON_RMS 2  /**< "torch-muon-rms": the same with adjust_lr_fn="match_rms_adamw" */
#define MXS_PRESET_KELLER_JORDAN  3  /**< "keller-jordan": KellerJordan/Muon */
#define MXS_PRESET_MOONLIGHT      4  /**< "moonlight": MoonshotAI/Moonlight */
#define MXS_PRESET_NVIDIA         5  /**< "nvidia": NVIDIA Emerging-Optimizers */
#define MXS_PRESET_DION           6  /**< "dion": Muon of microsoft/dion */
#define MXS_PRESET_NORMUON        7  /**< "normuon": zichongli5/NorMuon */
#define MXS_PRESET_SHAMPOO        8  /**< "shampoo": facebookresearch/optimizers */
#define MXS_PRESET_SOAP           9  /**< "soap": nikhilvyas/SOAP */
#define MXS_PRESET_TORCH_ADAMW    10 /**< "torch-adamw": torch.optim.AdamW */

/** "torch-muon", ...; "default"; "unknown" for a number that is no preset. Static. Threads: any. Since 0.1. */
MXS_API const char *mxs_preset_name(mxs_preset preset);
/** The preset called `name`. @return MXS_NOT_FOUND: none; the sentence lists them. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_preset_from_name(const char *name, mxs_preset *preset);
/** The rule that it belongs to; MXS_RULE_AUTO for DEFAULT and for a number that is none. Threads: any. Since 0.1. */
MXS_API mxs_rule mxs_preset_rule(mxs_preset preset);

/** Who multiplies matrices. */
typedef int32_t mxs_backend;
#define MXS_BACKEND_AUTO      0 /**< the fastest for the shape on this CPU: see docs/optimizers.md */
#define MXS_BACKEND_REFERENCE 1 /**< portable, fp32 */
#define MXS_BACKEND_ONEDNN    2 /**< bf16 products, fp32 accumulation; MXS_NOT_BUILT without it */
#define MXS_BACKEND_OPENBLAS  3 /**< fp32 syrk and gemm; MXS_NOT_BUILT without it */
#define MXS_BACKEND_TILES     4 /**< bf16 by our own kernels (AMX or avx512_bf16); MXS_NOT_BUILT on other CPUs */
#define MXS_BACKEND_CUBLAS    5 /**< units in CUDA memory alone: cublasLt and cuSOLVER; MXS_NOT_BUILT without them */

/**
 * "auto", "reference", "onednn", ..., as MXS_BACKEND takes them; "unknown" for a number that is no backend. Static.
 * Threads: any. Since 0.1.
 */
MXS_API const char *mxs_backend_name(mxs_backend backend);

/** Table of Newton-Schulz coefficients (a, b, c) of X <- aX + (bA + cA^2) X, A = X X^T. */
typedef int32_t mxs_table;
#define MXS_TABLE_PRESET        0
#define MXS_TABLE_JORDAN        1 /**< (3.4445, -4.7750, 2.0315), 5 steps; more cycle */
#define MXS_TABLE_YOU           2 /**< five polynomials, "quintic"; more cycle */
#define MXS_TABLE_POLAR_EXPRESS 3 /**< arXiv 2505.16932, safety 1.05 within the coefficients, 5 steps; more take the
                                       next of eight, then repeat the last */
#define MXS_TABLE_DEEPSEEK_V4   4 /**< 8 of Jordan's, then 2 of (2, -1.5, 0.5); more repeat the last */
#define MXS_TABLE_POLAR_CUSHION 5 /**< Polar Express with cushion 2 and safety 1.02, of dion and modded-nanogpt; 5
                                       steps, more repeat the last */
#define MXS_TABLE_CUSTOM        6

/** How the products of Newton-Schulz are arranged. */
typedef int32_t mxs_algorithm;
#define MXS_ALGORITHM_AUTO     0 /**< by table, with the backend */
#define MXS_ALGORITHM_STANDARD 1 /**< A = X X^T at each step */
#define MXS_ALGORITHM_GRAM     2 /**< on the Gram matrix, restarted at the third step; fp32 only */

/** What the norm of Newton-Schulz is kept away from zero by. */
typedef int32_t mxs_epsilon_kind;
#define MXS_EPSILON_PRESET 0 /**< and the preset's epsilon */
#define MXS_EPSILON_MAX    1 /**< X / max(norm * safety, epsilon) */
#define MXS_EPSILON_ADD    2 /**< X / (norm * safety + epsilon) */

typedef struct mxs_newton_schulz {
  uint32_t         size;
  mxs_preset       preset;       /**< one of Muon's */
  mxs_table        table;
  int32_t          step_count;   /**< 1 to 32. 0: the table's own */
  const double    *coefficients; /**< CUSTOM: a, b, c of each step, 3 * step_count numbers; copied */
  mxs_algorithm    algorithm;
  mxs_backend      backend;
  int32_t          thread_count; /**< 0: 1. At most 4,096 */
  mxs_epsilon_kind epsilon_kind;
  double           epsilon;      /**< with a kind: this, also if it is 0. Must be 0 without */
  double           safety;       /**< s: the norm is multiplied by it; POLAR_EXPRESS: its first seven polynomials become
                                      (a / s, b / s^3, c / s^5) instead. 2^-10 to 2^10. 0: the table's; CUSTOM: 1 */
} mxs_newton_schulz;
#define MXS_NEWTON_SCHULZ_INIT \
  { sizeof(mxs_newton_schulz), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* ---- Newton-Schulz alone --------------------------------------------------------------------------------------- */

/** Newton-Schulz for one shape: chosen kernels and workspace, reusable, one call at a time, from any thread. */
typedef struct mxs_orthogonalizer mxs_orthogonalizer;

/**
 * Choose kernels for one shape and take the workspace.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: rows or columns below 1 or their product above 2^40; a table that diverges or
 *         turns signs for singular values up to what its normalisation lets through (the sentence tells where).
 *         MXS_NOT_BUILT: the backend, or the algorithm with it.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_orthogonalizer_create(mxs_orthogonalizer **orthogonalizer, int64_t rows, int64_t columns,
                                             const mxs_newton_schulz *options);
/** Accepts NULL and a pointer to NULL. Since 0.1. */
MXS_API void mxs_orthogonalizer_destroy(mxs_orthogonalizer **orthogonalizer);

/** Backend, implementation and algorithm, owned by the orthogonalizer; "" if NULL. Since 0.1. */
MXS_API const char *mxs_orthogonalizer_backend(const mxs_orthogonalizer *orthogonalizer);

/** Bytes of its workspace. 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_orthogonalizer_workspace_bytes(const mxs_orthogonalizer *orthogonalizer);

/**
 * Flops of one matrix as they are commonly counted, of whole products: 4 m n^2 + 2 n^3 a step, with n the shorter side,
 * whatever the algorithm saves. 0 if NULL. Since 0.1.
 */
MXS_API double mxs_orthogonalizer_flops(const mxs_orthogonalizer *orthogonalizer);

/**
 * X = U f(S) V^T for the source U S V^T scaled to norm 1, f the table's polynomials one after the other. The norm is
 * summed in fp64; zero maps to zero.
 *
 * @param source  fp32, rows * columns; read only.
 * @param target  fp32, rows * columns; may be source, and overlaps it in no other way.
 * @return MXS_INVALID_ARGUMENT: a NULL, or a source that is not finite. MXS_HELD: another thread is in a call of this
 *         orthogonalizer. target is then untouched.
 * Since 0.1.
 */
MXS_API mxs_status mxs_orthogonalize(mxs_orthogonalizer *orthogonalizer, const float *source, float *target);

/** Where the matrices of a batch lie, in elements. */
typedef struct mxs_strides {
  uint32_t size;
  uint32_t reserved;
  int64_t  row;    /**< from row to row. 0: columns */
  int64_t  matrix; /**< from matrix to matrix. 0: rows * row */
} mxs_strides;
#define MXS_STRIDES_INIT \
  { sizeof(mxs_strides), 0, 0, 0 }

/**
 * The same from `source` to `target` for `count` matrices; equal to the last bit to one call each. With several threads
 * small matrices go one to a thread. All sources are looked at before any target is written. Allocates where a batch of
 * more than 1,024 is the largest so far.
 *
 * @param source_strides  NULL: dense. target_strides likewise; in place wants both equal. Matrices may interleave, such
 *                        as column blocks of one tensor, and so may sources and targets of equal strides.
 * @param count  At most 2^24.
 * @return As above. MXS_INVALID_ARGUMENT also: strides by which matrices overlap, or arrays off a border of 4 bytes. No
 *         target is touched then.
 * Since 0.1.
 */
MXS_API mxs_status mxs_orthogonalize_batch(mxs_orthogonalizer *orthogonalizer, const float *source,
                                           const mxs_strides *source_strides, float *target,
                                           const mxs_strides *target_strides, int64_t count);

/* ---- Values of a step ------------------------------------------------------------------------------------------ */

/**
 * Values of one group at one step. A zero means zero here, except for size: INIT gives torch's defaults
 * for AdamW and Muon's momentum. All must be finite and none negative; momentum and beta1 are below 1.
 */
typedef struct mxs_group_values {
  uint32_t size;
  float    lr;
  float    weight_decay; /**< by the rule's kind; decoupled: weights *= 1 - lr * weight_decay, before the update */
  float    momentum;     /**< muon */
  float    beta1, beta2; /**< adamw, soap: averages. shampoo: filtered gradient, and factors (beta2 may be 1: sums) */
  float    epsilon;      /**< adamw: added after bias correction; soap: before; shampoo: of the roots. At 0 adamw and
                              soap divide by 0 where a gradient's square is 0 in fp32: the weight is then NaN */
  float    reserved;
} mxs_group_values;
#define MXS_GROUP_VALUES_INIT \
  { sizeof(mxs_group_values), 1e-3f, 1e-2f, 0.95f, 0.9f, 0.999f, 1e-8f, 0.0f }

/**
 * A preset's published defaults of lr, weight decay, momentum, betas and epsilon. Betas and epsilon of Muon's presets
 * are those of the AdamW beside it, where one was published, else torch's. DEFAULT: as MXS_GROUP_VALUES_INIT.
 *
 * @return MXS_INVALID_ARGUMENT: values is NULL or of no such size, or the number is no preset.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_preset_values(mxs_preset preset, mxs_group_values *values);

/* ---- Options of the rules: zero takes the preset's ------------------------------------------------------------- */

/** A yes or no that a preset may decide. */
typedef int32_t mxs_switch;
#define MXS_SWITCH_PRESET 0
#define MXS_ON            1
#define MXS_OFF           2

/** Decoupled, unless said: no preset has another. */
typedef int32_t mxs_decay;
#define MXS_DECAY_PRESET      0
#define MXS_DECAY_DECOUPLED   1 /**< w *= 1 - lr * wd */
#define MXS_DECAY_INDEPENDENT 2 /**< w *= 1 - wd */
#define MXS_DECAY_L2          3 /**< g += wd * w, before everything */
#define MXS_DECAY_PALM        4 /**< w *= 1 - lr^2 * wd */
#define MXS_DECAY_CAUTIOUS    5 /**< decoupled, only where update * w >= 0 (arXiv 2510.12402) */

typedef int32_t mxs_momentum_kind;
#define MXS_MOMENTUM_PRESET 0
#define MXS_MOMENTUM_EMA    1 /**< m = lerp(m, g, 1 - momentum); nesterov: u = lerp(g, m, momentum) */
#define MXS_MOMENTUM_SGD    2 /**< m = momentum * m + g; nesterov: u = g + momentum * m */

/** Factor of the update beside lr, of the whole matrix as (out, in) = (rows, columns). */
typedef int32_t mxs_scale;
#define MXS_SCALE_PRESET 0
#define MXS_SCALE_NONE   1 /**< 1 */
#define MXS_SCALE_SHAPE  2 /**< sqrt(max(1, rows / columns)) */
#define MXS_SCALE_MAX    3 /**< sqrt(max(rows, columns)), "spectral" of Emerging-Optimizers */
#define MXS_SCALE_RATIO  4 /**< sqrt(rows / columns), "spectral_norm" of dion */
#define MXS_SCALE_RMS    5 /**< 0.2 * sqrt(max(rows, columns)): an update of AdamW's root mean square */

typedef int32_t mxs_rounding;
#define MXS_ROUND_NEAREST    0 /**< to nearest even */
/**
 * bf16 alone: to one of the two neighbours, to each as often as it is near, by 16 random bits r of each element: the
 * upper half of (fp32 bits + r). What fits is kept; past the largest number infinity is the neighbour.
 *
 * Bits are Philox4x32-10 of (seed, tensor_id, step number, element of the tensor), 64 bits each, so that they depend
 * neither on layout nor on owner nor on threads. With the lower 32-bit word of each number first:
 *
 *   (a, b, c, d) = philox(key seed, counter (tensor_id, step number))
 *   block n      = philox(key (a, b), counter (n, c, d))         four words, bits of eight elements
 *
 * Element e takes block e / 128 * 16 + e % 16, of it word e / 16 % 4, and of that the lower half if e / 64 % 2 is 0.
 */
#define MXS_ROUND_STOCHASTIC 1

typedef struct mxs_muon_options {
  uint32_t                 size;
  mxs_preset               preset;
  mxs_momentum_kind        momentum;
  mxs_switch               nesterov;
  mxs_scale                scale;
  float                    scale_factor; /**< multiplied into the scale. 0: 1 */
  mxs_decay                decay;
  mxs_switch               normuon;      /**< rows of the update are divided by a running root mean square, then the
                                              whole is rescaled to its old norm. Not with transposed matrices */
  float                    normuon_beta2;   /**< 0: the preset's, or 0.95 */
  float                    normuon_epsilon; /**< 0: the preset's, or 1e-10 */
  const mxs_newton_schulz *newton_schulz;   /**< NULL: the preset's. Its preset and thread_count are not looked at */
  int32_t                  thread_count;    /**< 0: 1 */
  mxs_backend              backend;         /**< where newton_schulz names none */
} mxs_muon_options;
#define MXS_MUON_OPTIONS_INIT \
  { sizeof(mxs_muon_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef int32_t mxs_grafting;
#define MXS_GRAFTING_PRESET 0
#define MXS_GRAFTING_NONE   1
#define MXS_GRAFTING_ADAM   2 /**< the norm of Adam's update, beta2 0.999, epsilon 1e-10 */
#define MXS_GRAFTING_SGD    3 /**< the norm of the filtered gradient */

typedef struct mxs_shampoo_options {
  uint32_t     size;
  mxs_preset   preset;
  int32_t      block_max;      /**< larger sides are cut into blocks of so many, each with its own factors. 0: 1,024 */
  int32_t      interval;       /**< steps from one root to the next. 0: 10; MXS_PRESET_SHAMPOO: 1 */
  int32_t      start;          /**< first step with roots; before it the grafted direction. 0: interval */
  mxs_grafting grafting;       /**< PRESET: Adam's; MXS_PRESET_SHAMPOO: none */
  mxs_decay    decay;
  int32_t      failures_max;   /**< roots in a row that may fail to converge while the old one is kept. 0: 3 */
  mxs_switch   nesterov;       /**< wants momentum. PRESET: off */
  float        momentum;       /**< of the preconditioned update. 0: none */
  double       exponent;       /**< of each factor's inverse root. 0: 1/4 (two dimensions) */
  mxs_backend  backend;
  int32_t      thread_count;   /**< 0: 1 */
} mxs_shampoo_options;
#define MXS_SHAMPOO_OPTIONS_INIT \
  { sizeof(mxs_shampoo_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct mxs_soap_options {
  uint32_t    size;
  mxs_preset  preset;
  int32_t     side_max;      /**< sides longer than this get no factor (identity). 0: 10,000 */
  int32_t     interval;      /**< steps from one QR to the next. 0: 10 */
  mxs_switch  one_sided;     /**< only the shorter side gets a factor, columns of a square. PRESET: off */
  float       factor_beta;   /**< of the factors. 0: beta2 */
  mxs_decay   decay;
  int32_t     failures_max;  /**< decompositions in a row that may fail while the old basis is kept. 0: 3 */
  mxs_backend backend;
  int32_t     thread_count;  /**< 0: 1 */
} mxs_soap_options;
#define MXS_SOAP_OPTIONS_INIT \
  { sizeof(mxs_soap_options), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct mxs_adamw_options {
  uint32_t   size;
  mxs_preset preset;
  mxs_decay  decay;
  mxs_switch epsilon_before;  /**< epsilon is added before bias correction (Moonlight). PRESET: after, as torch */
  int32_t    thread_count;    /**< 0: 1 */
  uint32_t   reserved;
} mxs_adamw_options;
#define MXS_ADAMW_OPTIONS_INIT \
  { sizeof(mxs_adamw_options), 0, 0, 0, 0, 0 }

/* ---- Steppers -------------------------------------------------------------------------------------------------- */

/** In what form weights are kept. */
typedef int32_t mxs_weights;
#define MXS_WEIGHTS_DEFAULT    0 /**< f32: alone; bf16 and f16: with an fp32 master */
#define MXS_WEIGHTS_ALONE      1 /**< in dtype, no other copy: rounded as `rounding` says */
#define MXS_WEIGHTS_MASTER     2 /**< 16 bits, and an fp32 master */
#define MXS_WEIGHTS_REMAINDER  3 /**< bf16, and the lower 16 bits of the fp32 master as uint16_t: fp32 bits are
                                      bf16 bits << 16 | remainder, exactly. The bf16 is the master cut off, not
                                      rounded */

/** A batch of equal matrices: one tensor, a stack of experts, or a fused weight cut into blocks. */
typedef struct mxs_matrices {
  uint32_t       size;
  mxs_dtype      dtype;            /**< of weights. 0: MXS_F32 */
  mxs_dtype      gradient_dtype;   /**< 0: MXS_F32 */
  mxs_weights    weights;
  int64_t        rows, columns;    /**< of each matrix as stored, all blocks together */
  int64_t        count;            /**< 0: 1 */
  mxs_strides    weight_strides;   /**< of weights, masters and remainders */
  mxs_strides    gradient_strides;
  const int64_t *block_rows;       /**< rows of each block, which sum up to rows: each block is orthogonalised, scaled
                                        and preconditioned by itself (fused q k v, gate and up). NULL: one block.
                                        muon: at most 2^20 in all matrices together */
  int32_t        block_count;
  int32_t        heads;            /**< cut rows (of the blocks, each) into so many equal parts. 0: 1. Where k and v
                                        have fewer heads than q: block_rows of each head instead */
  int32_t        transposed;       /**< 1: stored as (in, out); scaling wants (out, in). Blocks still cut rows: fused
                                        weights that lie side by side as columns are matrices by strides, `count` of
                                        them where equal, else a stepper each */
  mxs_rounding   rounding;         /**< of MXS_WEIGHTS_ALONE */
  uint64_t       seed;             /**< of MXS_ROUND_STOCHASTIC */
  uint64_t       tensor_id;        /**< likewise: a number of the tensor in its model */
  int64_t        scale_rows;       /**< tensor parallelism: of the whole matrix, as (out, in), for scaling. 0: as
                                        stored; not with blocks or heads */
  int64_t        scale_columns;
} mxs_matrices;
#define MXS_MATRICES_INIT                                                                                        \
  {                                                                                                              \
    sizeof(mxs_matrices), 0, 0, 0, 0, 0, 0, MXS_STRIDES_INIT, MXS_STRIDES_INIT, 0, 0, 0, 0, 0, 0, 0, 0, 0         \
  }

typedef struct mxs_stepper mxs_stepper;

/**
 * Make a stepper: chooses kernels, starts its threads. Takes no state and no workspace.
 *
 * @param options  NULL: the defaults of its INIT.
 * @return MXS_OK. MXS_INVALID_ARGUMENT. MXS_NOT_BUILT: the backend, or a combination that this release doesn't have;
 *         the sentence says which.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_muon_create(mxs_stepper **stepper, const mxs_matrices *matrices,
                                   const mxs_muon_options *options);
MXS_API mxs_status mxs_shampoo_create(mxs_stepper **stepper, const mxs_matrices *matrices,
                                      const mxs_shampoo_options *options);
MXS_API mxs_status mxs_soap_create(mxs_stepper **stepper, const mxs_matrices *matrices,
                                   const mxs_soap_options *options);
MXS_API mxs_status mxs_adamw_create(mxs_stepper **stepper, const mxs_matrices *matrices,
                                    const mxs_adamw_options *options);
/** Accepts NULL and a pointer to NULL. Since 0.1. */
MXS_API void mxs_stepper_destroy(mxs_stepper **stepper);

/** Bytes of its state: a header of 64 bytes, and its parts. A multiple of 64. 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_stepper_state_bytes(const mxs_stepper *stepper);
/**
 * Bytes that a call needs for its time, a multiple of 64; may differ between CPUs. 0: none, and call.workspace may be
 * NULL (adamw). 0 if NULL. Since 0.1.
 */
MXS_API uint64_t mxs_stepper_workspace_bytes(const mxs_stepper *stepper);

/** One named part of the state. */
typedef struct mxs_state_part {
  uint32_t    size;
  mxs_dtype   dtype;
  const char *name;            /**< "momentum", "exp_avg", "exp_avg_sq", "second_momentum" (NorMuon), "factor_left",
                                    "factor_right", "basis_left", "basis_right", "root_left", "root_right", "graft_sq",
                                    "failures" (of decompositions: in a row, and in all); of block b of several ".b"
                                    follows; owned by the stepper */
  uint64_t    offset;          /**< from the state's first byte */
  uint64_t    bytes;
  int32_t     dimension_count;
  int32_t     reserved;
  int64_t     shape[MXS_DIMENSIONS_MAX]; /**< count first if there are several matrices; dense */
} mxs_state_part;
#define MXS_STATE_PART_INIT \
  { sizeof(mxs_state_part), 0, 0, 0, 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0} }

/** Parts of the state. 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_stepper_state_count(const mxs_stepper *stepper);
/** One of them, counted from 0. @return MXS_NOT_FOUND: there are fewer. Since 0.1. */
MXS_API mxs_status mxs_stepper_state(const mxs_stepper *stepper, uint64_t index, mxs_state_part *part);

/** Write the first state: header, zeros, and what the rule begins with. Since 0.1. */
MXS_API mxs_status mxs_stepper_init(const mxs_stepper *stepper, void *state);

/**
 * Is it a state of such a stepper: same rule, preset, options that shape it, matrices and dtypes? And is all of it
 * finite? For what comes from a file; it reads the whole state, which steps don't: they look at its header.
 *
 * @param state  Of `bytes` bytes, at any border.
 * @return MXS_MISMATCH: the sentence tells what differs, or that it is no state at all, or what is damaged. Since 0.1.
 */
MXS_API mxs_status mxs_stepper_check_state(const mxs_stepper *stepper, const void *state, uint64_t bytes);

/** What one call works on. All arrays are of `count` matrices, by the strides of mxs_matrices. */
typedef struct mxs_step_call {
  uint32_t                size;
  int32_t                 reserved;
  const mxs_group_values *values;
  const void             *gradient;
  void                   *weights;
  void                   *master;          /**< fp32 master, or uint16_t remainder; NULL where mxs_matrices has none */
  void                   *state;           /**< at a 64-byte border */
  void                   *workspace;       /**< at a 64-byte border */
  uint64_t                workspace_bytes; /**< what is there; too few are refused */
  float                   gradient_scale;  /**< such as 1 / tokens. 0: 1 */
  float                   clip_factor;     /**< as mxs_clip_factor gives. 0: 1 */
} mxs_step_call;
#define MXS_STEP_CALL_INIT \
  { sizeof(mxs_step_call), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct mxs_step_result {
  uint32_t size;
  int32_t  skipped;       /**< 1: some gradient was not finite, or too large for its momentum (a norm above 2^100) or
                               its square (2^63) to be; nothing changed but skipped_count */
  uint64_t step_number;   /**< of the state, after this call */
  uint64_t skipped_count; /**< steps skipped so far */
  uint64_t failed_count;  /**< decompositions that failed so far, while an old one was kept */
  double   gradient_norm; /**< scaled, not clipped. Infinity if an element is not finite */
} mxs_step_result;
#define MXS_STEP_RESULT_INIT \
  { sizeof(mxs_step_result), 0, 0, 0, 0, 0 }

/**
 * One step: state and weights change.
 *
 * @param result  May be NULL.
 * @return MXS_OK, also if it was skipped: ask the result. MXS_INVALID_ARGUMENT: a NULL, an array off its border,
 *         too little workspace, arrays that overlap; nothing has changed. MXS_MISMATCH: the state is another's.
 *         MXS_HELD: another thread is in a call of this stepper; nothing has changed.
 *         MXS_INTERNAL: decompositions failed more often in a row than allowed; state and weights are as before. Or the
 *         state was damaged: muon's momentum was not finite. Blocks before it are stepped then and the step number
 *         stays; load state and weights again (mxs_stepper_check_state).
 * Since 0.1.
 */
MXS_API mxs_status mxs_stepper_step(const mxs_stepper *stepper, const mxs_step_call *call, mxs_step_result *result);

/**
 * The first half of a step: state changes and its step number advances, weights don't change (they are read by L2
 * decay, and by shampoo with momentum, which its decay joins; else call.weights and master may be NULL). The update is
 * what lr and scale are yet to be multiplied by and weights to be decayed by: mxs_stepper_apply does that. Both
 * together have the bits of mxs_stepper_step.
 *
 * @param update  fp32, dense, count * rows * columns. Untouched if skipped: then there is nothing to apply.
 * @return As mxs_stepper_step; with a damaged state part of update is written.
 * Since 0.1.
 */
MXS_API mxs_status mxs_stepper_update(const mxs_stepper *stepper, const mxs_step_call *call, float *update,
                                      mxs_step_result *result);

/**
 * The second half: weights change, the state doesn't. call.gradient and call.workspace are not looked at; of the state
 * only the header (stochastic rounding takes the step number that the update has advanced).
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT, MXS_MISMATCH, MXS_HELD: as mxs_stepper_step, or the state has made no step;
 *         nothing has changed.
 * Since 0.1.
 */
MXS_API mxs_status mxs_stepper_apply(const mxs_stepper *stepper, const mxs_step_call *call, const float *update);

/** What was chosen at create. */
typedef struct mxs_stepper_info {
  uint32_t    size;
  mxs_rule    rule;
  mxs_preset  preset;
  int32_t     thread_count;
  const char *backend;      /**< of products, such as "tiles amx_bf16 standard"; owned by the stepper */
  const char *passes;       /**< of element passes, such as "x86-64-v4" */
  mxs_dtype   product_dtype; /**< MXS_BF16 or MXS_F32 */
  int32_t     reserved;
  double      flops;        /**< of one step of all matrices, refreshes spread over their interval */
} mxs_stepper_info;
#define MXS_STEPPER_INFO_INIT \
  { sizeof(mxs_stepper_info), 0, 0, 0, 0, 0, 0, 0, 0 }

/** Since 0.1. */
MXS_API mxs_status mxs_stepper_describe(const mxs_stepper *stepper, mxs_stepper_info *info);

/**
 * QK-clip (MuonClip): multiply the rows of each head by its factor. Rows h * rows / heads to (h + 1) * rows / heads are
 * head h's. For W_q and W_k alike factors are sqrt(min(1, tau / largest logit)), tau 100 in Kimi K2.
 *
 * @param factors  `heads` numbers, finite and not negative.
 * @param weights  One matrix of `matrices` (count 1, no blocks), and master; rounded as there, step_number and element
 *                 for MXS_ROUND_STOCHASTIC.
 * Since 0.1.
 */
MXS_API mxs_status mxs_scale_heads(const mxs_matrices *matrices, void *weights, void *master, const float *factors,
                                   int32_t heads, uint64_t step_number);

/**
 * The factor that a preset puts on the update of a rows x columns matrix, beside lr. Both of the whole matrix as
 * (out, in), whatever way it is stored and cut: mxs_matrix.scale_rows and scale_columns. 0 for a preset that is none of
 * Muon's, and for sides below 1.
 *
 * Threads: any. Since 0.1.
 */
MXS_API float mxs_muon_scale(mxs_preset preset, int64_t rows, int64_t columns);

/* ---- Passes ---------------------------------------------------------------------------------------------------- */

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
 * Add squares of `count` elements times `gradient_scale` to an optimizer's norm, for parts stepped without an object.
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

/** The square root of what mxs_norm_add has added to `words`. 0 if NULL. Threads: any. Since 0.1. */
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

#endif /* MATRIXSHARD_KERNELS_H */
