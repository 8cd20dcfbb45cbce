/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The three collectives over any layout and any host memory, without units.
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
  const char       *algorithm;     /**< NULL: MXS_ALGORITHM, else chosen. "flat", "chain", "spread", "direct", or on
                                        memory that local peers map: "fanout" (gather), "cooperative" (reduce) */
  uint64_t          chunk_bytes;   /**< 0: chosen */
  int32_t           window;        /**< messages in flight per peer. 0: 4 */
  int32_t           reserved;
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
} mxs_collective_info;
#define MXS_COLLECTIVE_INFO_INIT \
  { sizeof(mxs_collective_info), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

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
 * @return MXS_OK once queued. MXS_INVALID_ARGUMENT: nothing was sent. MXS_HELD: it is still in flight.
 * Threads: the family's rule (comm.h). Since 0.1.
 */
MXS_API mxs_status mxs_collective_start(mxs_collective *collective, const void *source, void *target,
                                        const mxs_call *call);

/**
 * Wait until its latest start is complete here.
 *
 * @return MXS_TIMED_OUT, MXS_PEER_FAILED, MXS_MISMATCH, ...: target is undefined, the comm has failed; peers may
 *         still read the buffers until the comm is destroyed.
 * Since 0.1.
 */
MXS_API mxs_status mxs_collective_wait(mxs_collective *collective, const mxs_call *call);

/** @return MXS_INVALID_ARGUMENT: a NULL or a wrong size. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_collective_describe(const mxs_collective *collective, mxs_collective_info *info);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_COLLECTIVE_H */
