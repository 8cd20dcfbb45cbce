/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Checkpoint: a folder that is at once a model of Hugging Face's and all that
 * training needs to go on, in a world of any size.
 *
 *     checkpoints/
 *       step-00000500/
 *         model.safetensors.index.json         which file has which tensor
 *         model-00001-of-00005.safetensors     whole tensors of the first rank that owns any, in dtype
 *         ...
 *         model-00005-of-00005.safetensors     tensors that several ranks own: each wrote its range
 *         optimizer/rank-00000.safetensors     masters and state of rank 0's tensors: "w.master", "w.momentum"
 *         optimizer/shared.safetensors         of tensors that several ranks own
 *         matrixshard.json                     manifest: plan, step number, group values, hashes of all bytes
 *         config.json, tokenizer.json, ...     if options.files_from names a folder that has them
 *       step-00001000/
 *
 * Tensors have the model's own names and shapes, whoever owned them in how many
 * pieces, so any reader of safetensors opens the files, and a load needs to know
 * nothing of the world that saved. Tied tensors are there once.
 *
 * A save writes into a hidden folder beside its place, syncs files and folder,
 * and renames: whatever is killed when, each step-* folder is whole, or not there.
 *
 * Names of arrays. Weights: as the plan. Of a tensor "w": "w.master" (fp32, where the plan has masters), "w.PART" for
 * the parts of mxs_state_part that have a number for each element or row, and of a part that belongs to a block
 * (factors, bases, roots, failures) "w.factor_left", or "w.factor_left.K" where the tensor has several matrices with
 * owners of their own, K counted from 0, and one more number where shampoo cuts the matrix.
 *
 * What a checkpoint doesn't have: gradient sums (save between steps), state of rule external.
 */
#ifndef MATRIXSHARD_CHECKPOINT_H
#define MATRIXSHARD_CHECKPOINT_H

#include "matrixshard/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Saving ---------------------------------------------------------------------------------------------------- */

/** A tensor that the plan doesn't know: a buffer of a module. Bytes in row order, little-endian. */
typedef struct mxs_extra_tensor {
  uint32_t    size;
  int32_t     dimension_count;
  const char *name;
  const char *dtype;  /**< safetensors' word: "F32", "BF16", "I64", "BOOL", ... */
  const void *data;
  int64_t     shape[MXS_DIMENSIONS_MAX];
} mxs_extra_tensor;
#define MXS_EXTRA_TENSOR_INIT \
  { sizeof(mxs_extra_tensor), 0, 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0} }

/** Bytes that this rank has written (save) or read (load, verify, reshard), and all. Not 0: stop, MXS_CANCELLED. */
typedef int (*mxs_progress_function)(void *context, uint64_t done_bytes, uint64_t total_bytes);

typedef struct mxs_checkpoint_options {
  uint32_t    size;
  int32_t     masters;       /**< 1: model files have the fp32 masters, for tensors that have them; the weights in dtype
                                  are made of them at load */
  int32_t     weights_only;  /**< 1: no masters and no state beside the model */
  int32_t     keep;          /**< after this save so many of the newest step-* folders that are checkpoints stay, the
                                  others of them are deleted. 0: all stay. Newest is by step number, not by time; the
                                  one just saved always stays */
  const char *name;          /**< of the folder within path; no slash, no dot first, at most 200 bytes. NULL:
                                  step-00000500 by the step */
  const char *files_from;    /**< a folder: its files but weights, indices and manifests (config.json, a tokenizer) are
                                  copied, those of at most 256 MiB. Looked at on rank 0. NULL: none */
  const void *user;          /**< of this rank, up to 1 MiB: random state, place in the data. See mxs_checkpoint_user */
  uint64_t    user_bytes;
  const mxs_extra_tensor *extras; /**< rank 0's are written. Borrowed until the save is over */
  uint64_t    extra_count;
  mxs_progress_function progress; /**< mxs_checkpoint_save, mxs_checkpoint_reshard: called on the caller's thread, about
                                       each 16 MiB. Not by mxs_save_start. NULL: none */
  void       *progress_context;
  uint64_t    timeout_ns;    /**< longest wait for ranks that write. 0: an hour. One that dies is noticed at once */
} mxs_checkpoint_options;
#define MXS_CHECKPOINT_OPTIONS_INIT \
  { sizeof(mxs_checkpoint_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Save units, and their optimizer's state, into path/step-N. Collective over the units' comm. All ranks must see the
 * same file system. Every rank writes what it owns, once; of replicas only the first writes, the others return at
 * once, with MXS_OK whatever becomes of it.
 *
 * A folder of that name that is there already is replaced when the new one is whole, if it is a checkpoint or empty;
 * else MXS_SYSTEM. Folders that a killed save left behind are removed.
 *
 * @param path       Folder of checkpoints; made if it isn't there.
 * @param units      All units of one plan that have tensors, on one comm; idle, as for a step.
 * @param optimizer  Of these units. NULL: weights and masters alone.
 * @param options    NULL: defaults. masters, weights_only, keep, name and whether there are extras: equal on all ranks.
 * @return MXS_OK: it is on disk, on all ranks. MXS_SYSTEM: a file system that is full, read-only or not shared; the
 *         sentence names rank, file and cause, on all ranks. MXS_CANCELLED: by progress, on whatever rank. MXS_HELD.
 *         MXS_MISMATCH: ranks pass different options or paths. MXS_NOT_BUILT: units of several comms or plans, an
 *         optimizer that steps a part of the units, a header longer than safetensors allow. MXS_INVALID_ARGUMENT: also
 *         names of tensors that aren't UTF-8, or would make two arrays of one name.
 *         Nothing of it is left on disk then, and older checkpoints are as they were. Failing to delete one that `keep`
 *         has no place for is no failure, but logged as a warning.
 * Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_save(const char *path, mxs_unit *const *units, uint64_t unit_count,
                                       mxs_optimizer *optimizer, const mxs_checkpoint_options *options);

/** A save that goes on beside training. */
typedef struct mxs_save mxs_save;

typedef struct mxs_save_info {
  uint32_t    size;
  int32_t     finished;       /**< 1: mxs_save_wait returns at once */
  uint64_t    done_bytes;     /**< written by this rank */
  uint64_t    total_bytes;
  uint64_t    snapshot_bytes; /**< of memory that the save has taken for its time */
  const char *path;           /**< of the checkpoint when it is whole; owned by the save */
} mxs_save_info;
#define MXS_SAVE_INFO_INIT \
  { sizeof(mxs_save_info), 0, 0, 0, 0, 0 }

/**
 * As mxs_checkpoint_save, but only copies what this rank owns before it returns; a thread of its own then writes, with
 * a comm that is split off from the units' one, so that training goes on meanwhile. Several may be under way at a time.
 * Collective.
 *
 * @return As mxs_checkpoint_save, as far as it shows before bytes are written. MXS_OUT_OF_MEMORY: for the copy, on all
 *         ranks. options.progress must be NULL.
 * Since 0.1.
 */
MXS_API mxs_status mxs_save_start(mxs_save **save, const char *path, mxs_unit *const *units, uint64_t unit_count,
                                  mxs_optimizer *optimizer, const mxs_checkpoint_options *options);

/** How far it is. @return MXS_FORKED, as all calls on a save: it is the parent process's. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_save_query(const mxs_save *save, mxs_save_info *info);

/**
 * Wait until it is over, everywhere. Local. May be called again.
 *
 * @param timeout_ns  0: without end (the save has deadlines of its own).
 * @return What mxs_checkpoint_save would return. MXS_TIMED_OUT: it goes on.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_save_wait(mxs_save *save, uint64_t timeout_ns);

/**
 * Ask for its end on all ranks: unless it is about to be done its wait then returns MXS_CANCELLED.
 *
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_save_cancel(mxs_save *save);

/** Accepts NULL and a pointer to NULL. @return MXS_HELD: it isn't over; wait, or cancel and wait. Since 0.1. */
MXS_API mxs_status mxs_save_destroy(mxs_save **save);

/* ---- Reading --------------------------------------------------------------------------------------------------- */

typedef struct mxs_checkpoint mxs_checkpoint;

/**
 * Open a checkpoint: manifest and headers are read and checked against each other, tensors are not.
 *
 * @param path  A checkpoint; a folder of checkpoints, of which that with the highest step number is opened (who goes
 *              back to an earlier step moves later ones away first); or any safetensors model: a file, an index, or a
 *              folder of them, without a manifest and with weights only.
 * @return MXS_OK. MXS_NOT_FOUND: there is none. MXS_SYSTEM: a file can't be read. MXS_DAMAGED: truncated, missing or
 *         contradictory files; the sentence names file and tensor. MXS_NOT_BUILT: a manifest of a version that this
 *         release doesn't read.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_open(mxs_checkpoint **checkpoint, const char *path);

/** Accepts NULL and a pointer to NULL. Since 0.1. */
MXS_API void mxs_checkpoint_close(mxs_checkpoint **checkpoint);

typedef struct mxs_checkpoint_info {
  uint32_t    size;
  int32_t     has_manifest; /**< 0: a safetensors model of others */
  int32_t     rank_count;   /**< of the world that saved it; 0 without a manifest */
  int32_t     group_count;  /**< of group values; 0: no step was done before it */
  int32_t     masters;      /**< 1: saved with options.masters */
  int32_t     has_state;    /**< 1: saved with an optimizer, and not weights_only */
  uint64_t    step_number;
  uint64_t    file_count;
  uint64_t    array_count;
  uint64_t    bytes;        /**< of all arrays */
  const char *path;         /**< what was opened, such as ".../step-00000500"; owned by the checkpoint */
  const char *version;      /**< of the library that saved it; "" without a manifest */
} mxs_checkpoint_info;
#define MXS_CHECKPOINT_INFO_INIT \
  { sizeof(mxs_checkpoint_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Threads: any. Since 0.1. */
MXS_API mxs_status mxs_checkpoint_query(const mxs_checkpoint *checkpoint, mxs_checkpoint_info *info);

typedef int32_t mxs_array_kind;
#define MXS_ARRAY_WEIGHTS 1
#define MXS_ARRAY_MASTER  2
#define MXS_ARRAY_STATE   3
#define MXS_ARRAY_EXTRA   4 /**< of options.extras */

/** One named array of a checkpoint. Texts are owned by the checkpoint. */
typedef struct mxs_checkpoint_array {
  uint32_t       size;
  mxs_array_kind kind;
  mxs_dtype      dtype;          /**< 0: none of ours, see dtype_word */
  int32_t        dimension_count;
  int64_t        shape[MXS_DIMENSIONS_MAX];
  uint64_t       bytes;
  uint64_t       file_offset;    /**< of its first byte */
  const char    *name;
  const char    *dtype_word;     /**< "BF16" */
  const char    *file;           /**< relative to the checkpoint */
  const char    *tensor;         /**< of a master and of state: whose; else the name */
  const char    *part;           /**< of state: "momentum"; else "" */
  int32_t        piece_count;    /**< ranks that wrote it; 0 without a manifest */
  int32_t        reserved;
} mxs_checkpoint_array;
#define MXS_CHECKPOINT_ARRAY_INIT \
  { sizeof(mxs_checkpoint_array), 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * One of them, counted from 0, in the order of files.
 *
 * @return MXS_NOT_FOUND: there are fewer.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_array_at(const mxs_checkpoint *checkpoint, uint64_t index,
                                           mxs_checkpoint_array *array);

/** By name. @return MXS_NOT_FOUND. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_checkpoint_find(const mxs_checkpoint *checkpoint, const char *name, uint64_t *index);

/**
 * Read `bytes` bytes of an array, from `offset` on. With a manifest the hashes of what is read are checked; for that up
 * to 4 MiB more are read at either end.
 *
 * @return MXS_OK. MXS_DAMAGED: the sentence names file and array; target is unspecified. MXS_SYSTEM.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_read(const mxs_checkpoint *checkpoint, uint64_t index, uint64_t offset,
                                       uint64_t bytes, void *target);

/**
 * The plan that it was saved under, for mxs_plan_options.previous and mxs_plan_moves.
 *
 * @return MXS_NOT_FOUND: without a manifest. MXS_NOT_BUILT: another release saved it, whose plan this one can't make.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_plan(const mxs_checkpoint *checkpoint, mxs_plan **plan);

/**
 * The values that a group had at the latest step.
 *
 * @return MXS_NOT_FOUND: no such group, or one without tensors.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_group(const mxs_checkpoint *checkpoint, int32_t group, mxs_group_values *values);

/**
 * The preset by which a rule's tensors were stepped, as it was given.
 *
 * @return MXS_NOT_FOUND: nothing was stepped under that rule, or there is no state.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_rule(const mxs_checkpoint *checkpoint, mxs_rule rule, mxs_preset *preset);

/**
 * What a rank of the saving world gave as options.user.
 *
 * @param data, bytes  Receive it; owned by the checkpoint. Of a rank that gave nothing: NULL and 0.
 * @return MXS_OK. MXS_NOT_FOUND: there was no such rank.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_user(const mxs_checkpoint *checkpoint, int32_t rank, const void **data,
                                       uint64_t *bytes);

typedef struct mxs_verify_options {
  uint32_t size;
  int32_t  reserved;
  void (*fault)(void *context, const char *sentence); /**< of each fault; NULL: the first one ends it */
  void  *fault_context;
  mxs_progress_function progress;
  void  *progress_context;
} mxs_verify_options;
#define MXS_VERIFY_OPTIONS_INIT \
  { sizeof(mxs_verify_options), 0, 0, 0, 0, 0 }

/**
 * Read all bytes and compare their hashes. Without a manifest there are none: then only that all can be read.
 *
 * @param options  NULL: defaults.
 * @return MXS_OK. MXS_DAMAGED: the sentence names the first fault's file and array. MXS_CANCELLED. MXS_SYSTEM.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_verify(const mxs_checkpoint *checkpoint, const mxs_verify_options *options);

/* ---- Loading --------------------------------------------------------------------------------------------------- */

#define MXS_LOAD_WEIGHTS_ONLY    1  /**< no state and no step number: the optimizer stays as it is */
#define MXS_LOAD_OTHER_DTYPES    2  /**< f32, bf16, f16 and f64 are converted into each other, rounded to nearest */
#define MXS_LOAD_OTHER_OPTIMIZER 4  /**< other presets, options or rules: state that has the same names and shapes is
                                         taken, other state begins anew; of a tensor under adamw, shampoo or soap all
                                         of it if any part does */
#define MXS_LOAD_ALLOW_MISSING   8  /**< tensors of the plan that it lacks stay as they are, their state begins anew */
#define MXS_LOAD_ALLOW_EXTRA     16 /**< what it has and the plan doesn't is left out */
#define MXS_LOAD_UNVERIFIED      32 /**< hashes aren't compared */

#define MXS_LOAD_TOLD_MISSING   1
#define MXS_LOAD_TOLD_EXTRA     2
#define MXS_LOAD_TOLD_CONVERTED 3
#define MXS_LOAD_TOLD_NEW_STATE 4 /**< of the tensor named */

typedef struct mxs_load_options {
  uint32_t size;
  int32_t  flags; /**< MXS_LOAD_... */
  void (*tell)(void *context, int32_t what, const char *name); /**< on every rank, of all ranks' tensors, before bytes
                                                                    are read; also of what then is a failure */
  void    *tell_context;
  mxs_progress_function progress;
  void    *progress_context;
  uint64_t timeout_ns; /**< as in mxs_checkpoint_options */
} mxs_load_options;
#define MXS_LOAD_OPTIONS_INIT \
  { sizeof(mxs_load_options), 0, 0, 0, 0, 0, 0 }

/**
 * Load into units, and their optimizer's state and step number. Collective over the units' comm, and over all replicas.
 * Each rank reads the ranges that it owns, at most 32 MiB of memory beside the model's. World, plan, units and their
 * order may be others than those that saved.
 *
 * Weights come from weights, masters from masters; where only one of them is there the other is made of it. Gradient
 * sums are cleared. A tied tensor is loaded by the name that has the bytes; that of the other, if it is there, is left
 * out.
 *
 * @param units      As in mxs_checkpoint_save, but needn't be all of the plan: what isn't theirs is left alone.
 * @param optimizer  Of these units. NULL: weights and masters alone, as with MXS_LOAD_WEIGHTS_ONLY.
 * @return MXS_OK. MXS_MISMATCH: shapes, dtypes, rules or presets differ, or ranks have opened different checkpoints;
 *         nothing has changed, on any rank. MXS_NOT_FOUND: tensors or state are missing, or there are more; likewise.
 *         MXS_DAMAGED, MXS_SYSTEM, MXS_CANCELLED: on all ranks; weights and state are unspecified if bytes had been
 *         read: load another one. MXS_HELD.
 * Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_load(const mxs_checkpoint *checkpoint, mxs_unit *const *units, uint64_t unit_count,
                                       mxs_optimizer *optimizer, const mxs_load_options *options);

/* ---- Another world, offline ------------------------------------------------------------------------------------ */

/**
 * Write a checkpoint again as another world would have saved it. One process, no comm; streams. Loads need no reshard:
 * this is for files of another number, or for the model alone (weights_only).
 *
 * @param path      Folder of checkpoints for the result.
 * @param topology  Of the world; the plan is made from the manifest's tensors.
 * @param plan_options  What is 0 is as in the manifest's plan; previous is the caller's. NULL: all as there. Fixed
 *                      owners beyond the world are left to the planner.
 * @param options   NULL: defaults. masters, extras and user are not looked at: these are taken over.
 * @return As mxs_checkpoint_save and mxs_checkpoint_verify. MXS_NOT_FOUND: without a manifest. MXS_NOT_BUILT: another
 *         release saved it, whose plan this one can't make. MXS_INVALID_ARGUMENT: with weights_only, if the result
 *         would replace the checkpoint itself.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_checkpoint_reshard(const mxs_checkpoint *checkpoint, const char *path,
                                          const mxs_topology *topology, const mxs_plan_options *plan_options,
                                          const mxs_checkpoint_options *options);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_CHECKPOINT_H */
