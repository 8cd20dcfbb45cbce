/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Comm: the ranks of a job, and the transports between them.
 *
 * Ranks find each other by the environment of torchrun, srun or mpirun, or by
 * callbacks of the caller. How two ranks are then joined:
 *
 *   threads of one process   loopback
 *   processes of one node    shm      (proved by mapping a page, not guessed from a host name)
 *   anything else            ucx
 *
 * MXS_TRANSPORT forces one of the names for all pairs. What was chosen can be
 * asked for (mxs_comm_info) and is logged once.
 *
 * Threads: a comm and all that is made from it form a family. Calls on a
 * family may come from any thread, one at a time; mxs_comm_test,
 * mxs_comm_wait, mxs_comm_abort and mxs_comm_query_stats at any time. Families
 * are independent of each other. A function without a "Threads:" of its own, in
 * this header and those above it, follows this rule.
 *
 * Progress is made inside calls on the family, or beside them by a thread of
 * the comm (mxs_comm_options.progress). Without it a rank that computes for
 * long without a call delays peers that wait for its bytes.
 *
 * Failure: the first reason wins, and from then on every call on the family
 * that communicates returns it. The comm is then to be destroyed, or its living
 * ranks make a comm of their own (mxs_comm_shrink) and destroy it afterwards:
 * this rank's memory, weights and state stay readable until then.
 *
 * Strangers: ranks of the environment's bootstrap and of mxs_comm_shrink prove
 * to each other that they know the job's secret (options.secret). docs/security.md.
 */
#ifndef MATRIXSHARD_COMM_H
#define MATRIXSHARD_COMM_H

#include "matrixshard/topology.h"
#include "matrixshard/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxs_comm mxs_comm;

/**
 * A non-blocking all-gather of small blobs that the caller provides, for
 * frameworks that have ranks already (MPI, torch.distributed, a test).
 *
 * All three are called from inside mxs_comm_create and other creating calls only, by
 * one thread at a time. All return 0 for success; test returns 1 for "not yet".
 */
typedef struct mxs_bootstrap {
  uint32_t size;
  int32_t  rank;
  int32_t  rank_count;
  int32_t  local_rank_hint; /**< not read in this release; 0 is fine */
  void    *context;
  /** Start gathering `bytes` bytes of every rank into `target` (rank_count * bytes, in rank order). */
  int (*all_gather)(void *context, const void *source, void *target, size_t bytes, void **request);
  int (*test)(void *context, void *request);
  int (*free_request)(void *context, void *request);
} mxs_bootstrap;
#define MXS_BOOTSTRAP_INIT \
  { sizeof(mxs_bootstrap), 0, 0, 0, 0, 0, 0, 0 }

#define MXS_PROGRESS_CHOSEN 0 /**< MXS_PROGRESS, else the library's choice: inside calls only, until CUDA memory is
                                   used; from then on by a thread, since nobody need call while streams wait */
#define MXS_PROGRESS_MANUAL 1 /**< inside calls only */
#define MXS_PROGRESS_THREAD 2 /**< a thread of the comm as well; it sleeps while nothing is in flight */

typedef struct mxs_comm_options {
  uint32_t             size;
  int32_t              thread_count; /**< for the library's own work on this rank. 0: cores / local ranks, at least 1 */
  const mxs_bootstrap *bootstrap;    /**< NULL: the environment */
  const char          *transport;    /**< "loopback", "shm", "ucx"; NULL: MXS_TRANSPORT, else chosen per pair */
  uint64_t             timeout_ns;   /**< of everything that waits, at most 116 days. 0: MXS_TIMEOUT (seconds), else 5
                                           minutes */
  int32_t              progress;     /**< MXS_PROGRESS_MANUAL or _THREAD; MXS_PROGRESS_CHOSEN: MXS_PROGRESS, else
                                           manual. Needn't be equal on all ranks */
  int32_t              device;       /**< MXS_DEVICE(index): the GPU of this rank's CUDA memory. 0: that of the CUDA
                                           context that is current when CUDA memory is first used, else the local rank
                                           modulo the number of devices. Where several nodes are joined, it is looked
                                           at in create: the NIC that is nearest to it is this rank's */
  void                *nccl_comm;    /**< an ncclComm_t of the caller's with these ranks in this order, which carries
                                           CUDA memory instead of one of the comm's own: on all ranks or on none.
                                           Borrowed until destroy; a comm split off makes its own */
  const char          *secret;       /**< of the job, 16 to 1,024 bytes, equal on all ranks: nobody who doesn't know it
                                           gets in. NULL: in a split the parent's, else MXS_SECRET, else the first
                                           line of the file that MXS_SECRET_FILE names, else none. Copied; never
                                           logged */
} mxs_comm_options;
#define MXS_COMM_OPTIONS_INIT \
  { sizeof(mxs_comm_options), 0, 0, 0, 0, 0, 0, 0, 0 }

/** What a comm turned out to be. */
typedef struct mxs_comm_info {
  uint32_t    size;
  int32_t     rank;
  int32_t     rank_count;
  int32_t     node;
  int32_t     node_count;
  int32_t     local_rank;
  int32_t     local_rank_count;
  int32_t     thread_count;
  uint64_t    timeout_ns;
  const char *transports; /**< "shm", "shm ucx", "none" for one rank, ...; owned by the comm */
  const char *bootstrap;  /**< "torchrun", "slurm", "openmpi" or "callbacks"; static */
  int32_t     progress;   /**< MXS_PROGRESS_MANUAL or MXS_PROGRESS_THREAD */
  int32_t     device;     /**< MXS_DEVICE(index); 0: CUDA memory has not been used yet */
  const char *cuda;       /**< how CUDA memory goes: "nccl 2.30.4", "nccl 2.30.4 in nodes, ucx between", "staged over
                               shm"; "" before CUDA memory is used; owned by the comm */
} mxs_comm_info;
#define MXS_COMM_INFO_INIT \
  { sizeof(mxs_comm_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

#define MXS_GATHER  0
#define MXS_REDUCE  1
#define MXS_RESHARD 2
#define MXS_AGREE   3 /**< only in statistics */
#define MXS_COLLECTIVE_COUNT 4

/** Parts of a training step, by which bytes and time are counted apart. */
#define MXS_PHASE_OTHER    0
#define MXS_PHASE_FORWARD  1
#define MXS_PHASE_BACKWARD 2
#define MXS_PHASE_STEP     3 /**< set by mxs_optimizer_step while it runs */
#define MXS_PHASE_COUNT    4

/** Of one rank, since create or the last reset. Only inside mxs_comm_stats, so without a size; never changed. */
typedef struct mxs_counter {
  uint64_t calls;
  uint64_t bytes_out; /**< that left this rank's memory for others' (shm and loopback included) */
  uint64_t bytes_in;
  uint64_t wait_ns;   /**< spent waiting in calls for this kind */
} mxs_counter;

typedef struct mxs_comm_stats {
  uint32_t    size;
  uint32_t    reserved;
  mxs_counter counters[MXS_COLLECTIVE_COUNT][MXS_PHASE_COUNT];
  uint64_t    slot_remaps; /**< gathers that found their slot held and were mapped anew: the slow path */
} mxs_comm_stats;
#define MXS_COMM_STATS_INIT \
  { sizeof(mxs_comm_stats), 0, {{{0, 0, 0, 0}}}, 0 }

/**
 * Join the ranks. Collective and blocking: returns when all have come.
 *
 * @param options  NULL: defaults.
 * @return MXS_OK. MXS_ENVIRONMENT: a variable is missing or no number; names it.
 *         MXS_TIMED_OUT: names a rank that never came. MXS_SYSTEM: such as a port in use.
 *         MXS_MISMATCH: ranks have different library or UCX versions.
 *         MXS_NOT_BUILT: the transport asked for is not in this build.
 * Threads: one comm per call, any number of calls at a time; those that find each other by the environment must
 * begin in the same order on all ranks. Since 0.1.
 */
MXS_API mxs_status mxs_comm_create(mxs_comm **comm, const mxs_comm_options *options);

/** A color of mxs_comm_split: takes part, and gets no comm. */
#define MXS_NO_COLOR (-1)

/**
 * Make comms of a comm's ranks: those that give one color get a comm of their own. Collective over the parent, and
 * blocking: ranks without a color help the others until all are done.
 *
 *     8 ranks as 2 replicas of 4 shards       color       key
 *     shard group     {0 1 2 3} {4 5 6 7}     rank / 4    rank
 *     replica group   {0 4} {1 5} {2 6} {3 7} rank % 4    rank
 *
 * The new comm is a family of its own: it may be used at the same time as its parent and as other comms, it may
 * outlive its parent, and it may be split itself. A failure of it reaches its ranks only, a failure of the parent
 * doesn't reach it. On a node ranks hear of one through shared memory. Between nodes, if the first parent was made by
 * the environment, through that one's rank 0, as long as this has the parent or a comm split off from it (it has a
 * thread for that, from the first split on). A parent of callbacks has no such way, nor have its children: there a
 * failure shows when the transport's connections end, or by the deadline.
 *
 * @param comm     Receives the comm; NULL for MXS_NO_COLOR.
 * @param color    At least 0, or MXS_NO_COLOR.
 * @param key      Ranks of the new comm are ordered by it; equal ones by the parent's rank.
 * @param options  NULL and zeros: as in the parent. bootstrap must be NULL, transport equal in each group.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: on some rank of the parent, and then on all; nothing was made.
 *         MXS_MISMATCH, MXS_SYSTEM, ...: this rank's group could not make its comm, on all ranks of the group; other
 *         groups have theirs, and the parent stays usable. MXS_TIMED_OUT and the like: the parent has failed.
 * Threads: the family's rule, for the parent. Since 0.1.
 */
MXS_API mxs_status mxs_comm_split(mxs_comm **comm, mxs_comm *parent, int32_t color, int32_t key,
                                  const mxs_comm_options *options);

/**
 * Make a comm of the ranks of a failed comm that are alive. Collective over these, and blocking: each calls it once it
 * has seen the failure. Ranks keep their order; mxs_comm_origin tells which one each was.
 *
 * Who takes part: every rank that comes in time. A rank whose process has ended is not waited for. One that is neither
 * known to have ended nor comes before the deadline (stopped, or cut off) is left out if more than half of the failed
 * comm's ranks have come, or half of them with its rank 0; else all get MXS_TIMED_OUT, so that both sides of a broken
 * network don't both go on. A rank that comes too late gets MXS_PEER_FAILED. Ranks that die meanwhile are left out.
 *
 * The failed comm and what was made from it stay as they are, readable and to be destroyed by the caller: units and
 * optimizer first moved by mxs_optimizer_recover, say.
 *
 * @param comm     Receives the comm, of one rank at least.
 * @param failed   A comm that has failed (mxs_comm_abort fails it). Made by mxs_comm_create, _split or _shrink.
 * @param options  NULL and zeros: as in the failed one. bootstrap and secret must be NULL: the living know each other
 *                 by the failed comm's. timeout_ns bounds this call, too.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: it hasn't failed, or an option that is refused. MXS_TIMED_OUT: too few came;
 *         names who didn't. MXS_PEER_FAILED: the others went on without this rank. MXS_NOT_BUILT: ranks on several
 *         nodes that know no address of each other; the sentence says what to set.
 * Threads: the family's rule. Since 0.1.
 */
MXS_API mxs_status mxs_comm_shrink(mxs_comm **comm, mxs_comm *failed, const mxs_comm_options *options);

/**
 * Which rank of the comm that it was made from (mxs_comm_split, mxs_comm_shrink) a rank was; itself in a comm of
 * mxs_comm_create. `origin` receives it.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL, or no such rank. Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_comm_origin(const mxs_comm *comm, int32_t rank, int32_t *origin);

/**
 * Leave. Accepts NULL and a pointer to NULL. Waits for no call of other ranks, but between nodes until what this one
 * sent last has reached them: where a link is away or a peer makes no call, at most 10 s or the comm's deadline, 1 s
 * after a failure.
 * Units, collectives, buffers and optimizers made from it must be gone already: else
 * MXS_HELD, and nothing is destroyed.
 *
 * Since 0.1.
 */
MXS_API mxs_status mxs_comm_destroy(mxs_comm **comm);

/** @return MXS_INVALID_ARGUMENT: a NULL or a wrong size. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_comm_query(const mxs_comm *comm, mxs_comm_info *info);

/** A topology of its own, equal on all ranks; to be destroyed by the caller. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_comm_topology(const mxs_comm *comm, mxs_topology **topology);

/** Wait until every rank has called it. Collective. Since 0.1. */
MXS_API mxs_status mxs_comm_barrier(mxs_comm *comm, const mxs_call *call);

/**
 * Sum the `count` 64-bit floats of `values` over all ranks, in rank order, in place. Collective; for small things such
 * as a loss: count is from 1 to 64.
 *
 * Since 0.1.
 */
MXS_API mxs_status mxs_comm_sum(mxs_comm *comm, double *values, uint64_t count, const mxs_call *call);

/**
 * The same for `count` 64-bit integers, such as the words of mxs_norm_add. A sum beyond 64 bits wraps around.
 *
 * Since 0.1.
 */
MXS_API mxs_status mxs_comm_sum_words(mxs_comm *comm, int64_t *words, uint64_t count, const mxs_call *call);

/**
 * Is an operation complete? Makes progress.
 *
 * @return MXS_OK: complete. MXS_IN_PROGRESS. MXS_INVALID_ARGUMENT: it was never begun. Else why the comm failed.
 * Threads: any, at any time. Since 0.1.
 */
MXS_API mxs_status mxs_comm_test(mxs_comm *comm, mxs_request request);

/**
 * Wait for an operation.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: it was never begun. MXS_TIMED_OUT: names the rank waited for; the comm has
 *         then failed.
 * Threads: any, at any time. Since 0.1.
 */
MXS_API mxs_status mxs_comm_wait(mxs_comm *comm, mxs_request request, const mxs_call *call);

/**
 * Fail the comm now, on this rank and, by closing its connections, soon on the others.
 * Waiting calls return MXS_ABORTED; so does a wait that begins later, even for an operation that was complete. CUDA
 * streams that wait for the comm's work go on, with undefined contents.
 *
 * @param reason  Copied into the sentence of mxs_last_error. May be NULL.
 * Threads: any, at any time. Since 0.1.
 */
MXS_API mxs_status mxs_comm_abort(mxs_comm *comm, const char *reason);

/** Tell to which phase the bytes from here on are counted: MXS_PHASE_.... Since 0.1. */
MXS_API mxs_status mxs_comm_phase(mxs_comm *comm, int32_t phase);

/** What has gone over the comm so far. Threads: any, at any time. Since 0.1. */
MXS_API mxs_status mxs_comm_query_stats(const mxs_comm *comm, mxs_comm_stats *stats);

/** Count from zero again. Since 0.1. */
MXS_API mxs_status mxs_comm_reset_stats(mxs_comm *comm);

/**
 * Memory for low-level collectives. Collective; every rank passes the same bytes. Zeroed.
 *
 * @param kind  MXS_HOST: local peers can reach it by load and store (MXS_MAPPED_MEMORY); touched, 2 MiB-aligned.
 *              MXS_CUDA: memory of the comm's device.
 * @return MXS_OK. MXS_MISMATCH: ranks pass different bytes.
 * Since 0.1.
 */
MXS_API mxs_status mxs_comm_allocate(mxs_comm *comm, uint64_t bytes, mxs_memory_kind kind, void **memory);

/**
 * Give `memory` back. Local. Accepts NULL.
 *
 * @return MXS_INVALID_ARGUMENT: not from this comm. MXS_HELD: operations of the comm are in flight; nothing was freed.
 * Since 0.1.
 */
MXS_API mxs_status mxs_comm_free(mxs_comm *comm, void *memory);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_COMM_H */
