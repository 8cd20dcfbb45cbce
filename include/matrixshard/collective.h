/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The three collectives over any layout and any host or device memory, without units.
 *
 *   gather   owners to all: afterwards every rank has the whole buffer
 *   reduce   sums to owners: each owner has the sum of all ranks' bytes of its segments
 *   reshard  from one layout to another over the same ranks (an all-to-all is one)
 *
 * A collective is created once, which fixes its schedule and takes its
 * scratch memory, and is started any number of times without allocating.
 * All ranks create and start with equal arguments, in the same order; a rank that owns
 * nothing starts it all the same.
 *
 * Whole buffers have the layout's offsets. "Packed" means: this rank's
 * segments, in order, without gaps.
 */
#ifndef MATRIXSHARD_COLLECTIVE_H
#define MATRIXSHARD_COLLECTIVE_H

#include "matrixshard/comm.h"
#include "matrixshard/layout.h"
#include "matrixshard/topology.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxs_collective mxs_collective;

/** acc = ((acc + g0) + g1) + ... in fp32, in rank order, whatever the algorithm, layout or owner. */
#define MXS_RANK_ORDER 1
/** Reduce adds to what the target holds; else it begins from zero. */
#define MXS_ACCUMULATE 2
/**
 * A promise: every start passes memory of mxs_comm_allocate, a gather as target, a reduce as source and as target (on
 * ranks that own nothing, too). Where local peers can map it, messages are then out of the question, and no scratch
 * memory is taken for them. A start that breaks the promise is refused, on every comm alike.
 */
#define MXS_MAPPED_MEMORY 4

typedef struct mxs_collective_options {
  uint32_t          size;
  int32_t           kind;          /**< MXS_GATHER, MXS_REDUCE or MXS_RESHARD */
  const mxs_layout *layout;        /**< of the whole buffer; reshard: of the source. Borrowed until create returns */
  const mxs_layout *target_layout; /**< reshard only: same bytes; both without gaps */
  mxs_dtype         dtype;         /**< reduce: of the source, MXS_F32, MXS_BF16 or MXS_F16. Else ignored */
  int32_t           flags;         /**< gather: MXS_MAPPED_MEMORY. Reduce: that, MXS_RANK_ORDER, MXS_ACCUMULATE */
  const char       *algorithm;     /**< NULL: MXS_ALGORITHM, else chosen. In messages "flat", "chain", "spread",
                                        "circulant", "two-level-flat", "two-level-chain", "two-level-circulant"
                                        (these four not in rank order), "direct" (reshard); on memory that local peers
                                        map: "fanout" (gather), "cooperative" (reduce) */
  uint64_t          chunk_bytes;   /**< 0: chosen */
  int32_t           window;        /**< messages in flight per peer. 0: chosen */
  mxs_memory_kind   memory;        /**< MXS_CUDA: all buffers of a start are device memory of the comm's device, whoever
                                        allocated it, and call.stream orders it. Collective: the first one opens the
                                        device. Not with algorithm, chunk_bytes, window or MXS_MAPPED_MEMORY */
} mxs_collective_options;
#define MXS_COLLECTIVE_OPTIONS_INIT \
  { sizeof(mxs_collective_options), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What was chosen, and what this rank will move: of the latest start; before the first, of one in messages if it may
 *  use them. */
typedef struct mxs_collective_info {
  uint32_t    size;
  int32_t     kind;
  const char *algorithm;      /**< static */
  const char *transports;     /**< owned by the comm */
  uint64_t    bytes_out;      /**< that this rank sends in one start */
  uint64_t    bytes_in;
  uint64_t    message_count;  /**< sent and received by this rank */
  uint64_t    chunk_bytes;
  uint64_t    scratch_bytes;  /**< taken at create */
  uint64_t    bytes_in_least; /**< that any algorithm must bring in here: the bound */
  uint64_t    predicted_ns;   /**< by the cost model, on the comm's topology; 0: not predicted (mapped memory) */
  uint64_t    bound_ns;       /**< no algorithm can be faster on a network with these speeds */
  const char *routes;         /**< "shm 1, ucx 6": peers that this rank talks to, by transport; "memory 3": mapped */
  const char *reason;         /**< what was weighed, the chosen one first:
                                   "chain 703 us; circulant 790, spread 850, flat 4900; bound 671" */
  int32_t     window;         /**< messages in flight per peer */
  int32_t     reserved;
} mxs_collective_info;         /* routes and reason live as long as the collective */
#define MXS_COLLECTIVE_INFO_INIT \
  { sizeof(mxs_collective_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Make a collective. Collective itself: its arguments are compared over all ranks.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT; MXS_MISMATCH: ranks disagree, on every rank.
 *         MXS_NOT_FOUND: no algorithm of that name for this kind and memory.
 * Since 0.1.
 */
MXS_API mxs_status mxs_collective_create(mxs_collective **collective, mxs_comm *comm,
                                         const mxs_collective_options *options);

/** Accepts NULL and a pointer to NULL. @return MXS_HELD: it is still in flight; nothing is destroyed. Since 0.1. */
MXS_API mxs_status mxs_collective_destroy(mxs_collective **collective);

/**
 * Start it. Doesn't block. Buffers are borrowed until it is complete.
 *
 *            source                             target
 *   gather   packed, or NULL: in place          whole buffer
 *   reduce   whole buffer in dtype              packed, fp32
 *   reshard  packed by layout                   packed by target_layout
 *
 * A rank without bytes may pass NULL for a packed buffer. Memory of mxs_comm_allocate is
 * reached by peers directly, any other is sent in messages, as long as no algorithm is forced: a gather goes by the
 * kind of its target, a reduce by that of its source, so all ranks must pass the same kind; MXS_MAPPED_MEMORY says at
 * create which. "fanout" wants such a target (a source is copied into it first); "cooperative" wants both in
 * such memory, the target also on ranks that own nothing.
 *
 * MXS_CUDA: a buffer in host memory, or of another device, is MXS_INVALID_ARGUMENT.
 *
 * @return MXS_OK once queued. MXS_INVALID_ARGUMENT: nothing was sent. MXS_HELD: it is still in flight.
 * Threads: the family's rule (comm.h). Since 0.1.
 */
MXS_API mxs_status mxs_collective_start(mxs_collective *collective, const void *source, void *target,
                                        const mxs_call *call);

/**
 * Wait until its latest start is complete here. MXS_CUDA with call.stream: the stream waits instead, and the call
 * returns at once; failures then show in later calls on the comm.
 *
 * @return MXS_TIMED_OUT, MXS_PEER_FAILED, MXS_MISMATCH, ...: target is undefined, the comm has failed; peers may
 *         still read the buffers until the comm is destroyed.
 * Since 0.1.
 */
MXS_API mxs_status mxs_collective_wait(mxs_collective *collective, const mxs_call *call);

/** @return MXS_INVALID_ARGUMENT: a NULL or a wrong size. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_collective_describe(const mxs_collective *collective, mxs_collective_info *info);

/** What a simulation found. */
typedef struct mxs_simulation {
  uint32_t    size;
  int32_t     window;         /**< messages in flight per peer */
  const char *algorithm;      /**< static */
  uint64_t    time_ns;        /**< simulated, until the last rank is done */
  uint64_t    bound_ns;       /**< no algorithm can be faster */
  uint64_t    predicted_ns;   /**< by the cost model, which chooses */
  uint64_t    message_count;  /**< of all ranks */
  uint64_t    rail_bytes_max; /**< over the busiest rail, in one direction */
  uint64_t    chunk_bytes;
  int32_t     last_rank;      /**< that is done last */
  int32_t     reserved;
} mxs_simulation;
#define MXS_SIMULATION_INIT \
  { sizeof(mxs_simulation), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Run a collective in messages on a topology without any network: the schedules of all ranks, event by event, with
 * the topology's speeds. Nothing is read, sent or waited for, and equal arguments give equal results.
 *
 * @param topology  Of as many ranks as options->layout. Its speeds are what the result rests on.
 * @param options   As for mxs_collective_create. algorithm NULL: what would be chosen there; MXS_ALGORITHM is not
 *                  looked at. Memory that local peers map needs no messages: "fanout" and "cooperative" can't be
 *                  simulated.
 *
 * Costs time and memory by the number of messages: a million take about a second.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT; MXS_NOT_FOUND: no such algorithm; the sentence lists those that there are.
 *         MXS_OVER_BUDGET: more than 20 million messages; nothing was built.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_simulate(const mxs_topology *topology, const mxs_collective_options *options,
                                mxs_simulation *result);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_COLLECTIVE_H */
