/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Model: the tensors of a model, read from files before anything is launched
 * or described by the caller, as mxs_plan_create wants them. Only names, shapes
 * and dtypes are read, never the weights.
 *
 *     what                                      is found by
 *     Hugging Face safetensors, one or sharded  *.safetensors, *.safetensors.index.json, or a folder of them
 *     Hugging Face configuration                config.json, or a folder that has one and no weights: Llama, Mistral,
 *                                               Qwen2, Qwen3, GPT-2, DeepSeek-V3
 *     a list                                    *.json: {"tensors": [{"name": "w", "shape": [8, 4]}, ...]}
 *                                               *.csv: a header line that names the columns: name,shape,...; 8x4
 *
 * Units: the layers that names count ("model.layers.7."), what comes before
 * them, and what comes after. Rules: patterns of the options first, then what
 * the tensor itself says; else matrices (2-D weights, stacks of experts) get Muon; embeddings, heads,
 * routers, norms and biases get AdamW.
 */
#ifndef MATRIXSHARD_MODEL_H
#define MATRIXSHARD_MODEL_H

#include "matrixshard/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxs_model mxs_model;

/** Tensors whose names match get this rule. */
typedef struct mxs_model_rule {
  uint32_t    size;
  mxs_rule    rule;
  const char *pattern; /**< of whole names: * is any text, ? any letter */
  int32_t     group;
  int32_t     reserved;
} mxs_model_rule;
#define MXS_MODEL_RULE_INIT \
  { sizeof(mxs_model_rule), 0, 0, 0, 0 }

typedef struct mxs_model_options {
  uint32_t  size;
  mxs_dtype dtype;          /**< of all tensors. 0: as the file or the caller says; a configuration without one:
                                 MXS_BF16 */
  mxs_dtype master_dtype;   /**< 0: as mxs_tensor */
  mxs_dtype gradient_dtype; /**< 0: as mxs_tensor */
  const mxs_model_rule *rules; /**< the first pattern that matches counts */
  uint64_t  rule_count;
  mxs_rule  matrix_rule;    /**< of matrices that no pattern names. 0: MXS_RULE_MUON */
  int32_t   reserved;
} mxs_model_options;
#define MXS_MODEL_OPTIONS_INIT \
  { sizeof(mxs_model_options), 0, 0, 0, 0, 0, 0, 0 }

/**
 * Read a model's tensors.
 *
 * @param options  NULL: defaults.
 * @return MXS_OK. MXS_SYSTEM: a file can't be read. MXS_INVALID_ARGUMENT: it isn't what its name says; the sentence
 *         names the file, and the tensor or the key. MXS_NOT_FOUND: a pattern matches no tensor. MXS_NOT_BUILT: an
 *         architecture that isn't known; the sentence says which keys a list would need.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_model_load(mxs_model **model, const char *path, const mxs_model_options *options);

/**
 * The same for tensors that the caller describes, such as the parameters of a framework's module: units and rules are
 * chosen where the tensors leave them open, the dtypes of the options are put in, title and notes are written.
 *
 * @param tensors  All is copied. A `unit` of -1, which is allowed here alone, means by its name: of all tensors or of
 *                 none, but for tied ones, which are where their bytes are. A `rule` other than MXS_RULE_AUTO counts
 *                 unless a pattern matches. What is said of blocks, roles, owners and ties passes through.
 * @param options  NULL: defaults.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL, no tensor or more than 2^20, a name that is empty, twice or not UTF-8,
 *         a tensor that no plan would take in any world; the sentence names the tensor and the field. MXS_NOT_FOUND: a
 *         pattern matches no tensor.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_model_create(mxs_model **model, const mxs_tensor *tensors, uint64_t tensor_count,
                                    const mxs_model_options *options);

/** Accepts NULL and a pointer to NULL. Since 0.1. */
MXS_API void mxs_model_destroy(mxs_model **model);

/**
 * The tensors, for mxs_plan_create. They and all that they point to live as long as the model.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_model_tensors(const mxs_model *model, const mxs_tensor **tensors, uint64_t *tensor_count);

/** In a few words: "llama, 80 layers, 70.6 billion parameters". Lives as long as the model. "" if NULL. Since 0.1. */
MXS_API const char *mxs_model_title(const mxs_model *model);

MXS_API int32_t mxs_model_unit_count(const mxs_model *model); /**< 0 if NULL. Since 0.1. */

/**
 * "model.layers.7", "model.embed_tokens"; "unit 3" where units were given as numbers.
 * Lives as long as the model. NULL: no such unit. Since 0.1.
 */
MXS_API const char *mxs_model_unit_name(const mxs_model *model, int32_t unit);

MXS_API uint64_t mxs_model_note_count(const mxs_model *model); /**< 0 if NULL. Since 0.1. */

/** What was assumed where the file is silent, a sentence; lives as long as the model. NULL: no such note. Since 0.1. */
MXS_API const char *mxs_model_note(const mxs_model *model, uint64_t index);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_MODEL_H */
