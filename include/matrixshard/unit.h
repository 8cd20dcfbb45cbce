/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Unit: tensors that are gathered together, at addresses that never change.
 *
 * Two independent machines:
 *
 *   weights    SHARDED --gather--> GATHERING --wait--> WHOLE --last release(FREE)--> SHARDED
 *                                                       | ^--- gather (revive) --- PINNED <-- last release(PIN)
 *              PINNED --release(FREE), or a step--> SHARDED
 *   gradients  EMPTY --gradient()--> OPEN --reduce--> REDUCING --> EMPTY, the sum is at the owner
 *                                    OPEN --discard--> EMPTY
 *
 * Each gather is paired with one release. A gather of a unit that is
 * gathering, whole or pinned succeeds at once and counts up. A step ends every
 * pin and makes views of weights stale.
 *
 * The owner's segments are mapped in the unit's range for ever: the shard is
 * that part of the range. The rest is backed by a slot, which several units
 * take in turns (unit u takes slot u mod slots), or which is the unit's own
 * (own_slot). Everything is mapped and touched at create; gather, wait,
 * release, gradient and reduce neither allocate nor map.
 *
 * All ranks create the units of a plan in the same order with equal options,
 * and call gather and reduce in the same order.
 */
#ifndef MATRIXSHARD_UNIT_H
#define MATRIXSHARD_UNIT_H

#include "matrixshard/comm.h"
#include "matrixshard/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxs_unit mxs_unit;

/** How gathered bytes come here. */
#define MXS_GATHER_AUTO         0 /**< by copy */
#define MXS_GATHER_BY_COPY      1
#define MXS_GATHER_BY_REFERENCE 2 /**< owners' pages are mapped here, read-only; all ranks must share a node */

/** What release does with gathered bytes when the last holder lets go. */
#define MXS_FREE 0 /**< the slot goes to the next unit */
#define MXS_PIN  1 /**< they stay, so that backward revives them without traffic */
#define MXS_AUTO 2 /**< by copy, pin for the last units of the plan, as far as spare slots go, and for those that take
                        none (an own slot, a buffer); else free */

/** How mxs_unit_gradient opens. */
#define MXS_WRITE 0 /**< contents are unspecified: the caller overwrites all of it */
#define MXS_ADD   1 /**< keeps what is there, zero if this is the first opening since reduce */

#define MXS_SHARDED   0
#define MXS_GATHERING 1
#define MXS_WHOLE     2
#define MXS_PINNED    3
#define MXS_EMPTY     0
#define MXS_OPEN      1
#define MXS_REDUCING  2

/*
 * Replicas (HSDP). Several shard groups hold the same model; gathers stay inside one, and a reduce adds up over all:
 * first over the shard group, then each owner's sums over `replicas`, whose ranks are those with this rank's place in
 * each shard group (mxs_comm_split with color = rank % shards). It is complete when both are.
 *
 * All replicas' accumulators then hold the same bits, in every run. MXS_RANK_ORDER orders both steps: the ranks of each
 * shard group are added from zero, then these sums to the accumulator, in the order of replicas. That isn't the order
 * of one world of all ranks, which would have to go through the replicas one after the other.
 *
 * Owners of all replicas step, with equal results; the optimizer's norm counts each element once, and its verdict is
 * the same on all ranks of all replicas. A caller that changes a summed gradient does so on all replicas alike.
 *
 * The owner's sums go over the replicas in messages, wherever these are: fp32, and 4 bytes of scratch for each element
 * that this rank owns in the largest unit, once per gradient slot (mxs_memory_options.replicas).
 *
 * The comm is of the units' family from create on: a failure of one is a failure of both, and calls on them come one at
 * a time. While a reduce of such a unit is in flight, nothing else may be called on replicas. All ranks of a shard
 * group pass replicas, or none does: the peers of one that forgets it wait for it until the deadline.
 */

/*
 * CUDA memory. Views of weights, gradients, shards and sums are device pointers; calls with call.stream put work on
 * that stream and never wait for the device:
 *
 *   gather    begins when what `stream` has so far is over: it may overwrite a slot that the stream reads
 *   wait      `stream` waits for the weights, then tensor() may be called and kernels be launched on it
 *   release   what `stream` has so far may read the slot; what comes later must not
 *   gradient  takes no call: the stream of the latest wait (before any: the legacy default stream) may write after it;
 *             with MXS_ADD it zeroes on that, which also waits for a slot that is being reduced
 *   reduce    takes what `stream` has written so far
 *   step      mxs_step.stream: waits for the reduces, and changes weights in stream order
 *
 * Without a stream these calls are ordered by the legacy default stream, and wait and release block the caller.
 *
 * Where the device maps memory (CUDA virtual memory management) and owners' segments begin at multiples of its granule
 * (2 MiB: plan with that alignment), the range is mapped once, as in host memory: "mapped". Elsewhere the range is the
 * slot itself, or the unit's own, and the owner's segments are copied into it at each gather: "copied". A unit whose
 * slot is held is then refused with MXS_OVER_BUDGET, since its address can't move. A buffer is the range, of device
 * memory. By reference is for host memory. A device that runs out of memory in a gather leaves the unit SHARDED.
 */
typedef struct mxs_unit_options {
  uint32_t        size;
  int32_t         gather;         /**< MXS_GATHER_...: equal for all units of a plan on a comm */
  int32_t         slots;          /**< units that may be whole or pinned at a time, of this plan on this comm. 0: 2 */
  int32_t         gradient_slots; /**< units whose gradients may be open or reducing at a time. 0: 2 */
  int32_t         flags;          /**< MXS_RANK_ORDER (collective.h) or 0 */
  mxs_memory_kind memory;         /**< MXS_CUDA: everything that the unit has is device memory; see above. Equal for all
                                       units of a plan on a comm */
  const char     *algorithm;      /**< as in mxs_collective_options, for both kinds; "fanout" and "cooperative" mean
                                       by load and store inside a node. NULL: chosen */
  void           *buffer;         /**< the unit's range in caller's memory, mxs_layout_bytes of its weights,
                                       page-aligned; it then takes no slot and is gathered in messages.
                                       NULL: the library's. Not with BY_REFERENCE */
  mxs_comm       *replicas;       /**< HSDP: the comm of those ranks that have this rank's place in other shard groups;
                                       see above. NULL: none */
  int32_t         own_slot;       /**< 1: the unit takes no shared slot. Others' bytes lie in memory that is this unit's
                                       alone, so that it may be held for a whole forward and backward while the others
                                       take turns: an embedding tied to the head, the last norm. 0: a shared slot.
                                       No effect by reference or with a buffer, where no slot is needed */
  int32_t         reserved;
} mxs_unit_options;
#define MXS_UNIT_OPTIONS_INIT \
  { sizeof(mxs_unit_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

typedef struct mxs_unit_info {
  uint32_t    size;
  int32_t     unit;
  int32_t     weights_state;   /**< MXS_SHARDED ... MXS_PINNED */
  int32_t     gradients_state; /**< MXS_EMPTY ... MXS_REDUCING */
  int32_t     holders;         /**< gathers without their release */
  int32_t     gather;          /**< MXS_GATHER_BY_COPY or MXS_GATHER_BY_REFERENCE */
  uint64_t    generation;
  const void *address;         /**< of the range */
  uint64_t    bytes;           /**< of the range */
  const char *gather_algorithm;
  const char *reduce_algorithm;
  const char *pages;           /**< "4 KiB" or "2 MiB"; CUDA memory: "mapped" or "copied" */
} mxs_unit_info;
#define MXS_UNIT_INFO_INIT \
  { sizeof(mxs_unit_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Make one unit of a plan. Collective: plans are compared over all ranks, and what is refused on one rank is refused
 * on all, with the sentence of that rank.
 *
 * @param options  NULL: defaults.
 * @param plan     Units keep a copy of what they need of it.
 * @return MXS_OK. MXS_MISMATCH: plans or options differ; on every rank the sentence names the first tensor that does.
 *         MXS_INVALID_ARGUMENT: no such unit, or the plan is for another number of ranks.
 *         MXS_NOT_FOUND: no algorithm of that name here. MXS_NO_DEVICE, MXS_NOT_BUILT: no CUDA here; the
 *         sentence says why. MXS_OUT_OF_MEMORY: of the host's or the device's; names the rank.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_create(mxs_unit **unit, mxs_comm *comm, const mxs_plan *plan, int32_t index,
                                   const mxs_unit_options *options);

/**
 * Accepts NULL and a pointer to NULL. Local. In CUDA memory a reduce that is under way is waited for, and so is what
 * streams still read.
 * @return MXS_HELD: gathered, open, in flight, or part of an optimizer; nothing is destroyed.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_destroy(mxs_unit **unit);

/**
 * Begin to bring the unit's weights here. Doesn't block. Ranks gather and release in the same order.
 * By reference there is no operation: request_out receives 0.
 *
 * @return MXS_OK. MXS_OVER_BUDGET: all slots are held, on every rank; nothing was sent.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_gather(mxs_unit *unit, const mxs_call *call);

/** Wait until the weights are whole here. @return MXS_NOT_GATHERED: no gather is open. Since 0.1. */
MXS_API mxs_status mxs_unit_wait(mxs_unit *unit, const mxs_call *call);

/**
 * The whole tensor, while the unit is whole. Read-only: only owners change weights, through mxs_unit_shard.
 * A tied tensor gives the view of the one it is tied to.
 *
 * @param tensor  Index within the plan.
 * @return MXS_NOT_GATHERED: the unit is not whole. MXS_NOT_FOUND: the tensor is not in this unit.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_tensor(mxs_unit *unit, int32_t tensor, mxs_view *view);

/**
 * Give one gather back. The last one waits if the unit is still gathering, at most call's timeout.
 *
 * @param mode  MXS_FREE, MXS_PIN or MXS_AUTO. On a pinned unit that nobody holds, MXS_FREE ends the pin.
 * @return MXS_NOT_GATHERED: one release too many; nothing changed.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_release(mxs_unit *unit, int32_t mode, const mxs_call *call);

/**
 * Open the gradient of a tensor, in its gradient dtype.
 *
 * Waits if the memory it needs is still being reduced for another unit.
 * A tensor that is never opened counts as zero; mxs_step.missing can make that an error.
 *
 * @param flags  MXS_WRITE or MXS_ADD.
 * @return MXS_OVER_BUDGET: all gradient slots hold open gradients of other units. MXS_INVALID_ARGUMENT: frozen.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_gradient(mxs_unit *unit, int32_t tensor, int32_t flags, mxs_view *view);

/**
 * Give a gradient from the caller's own memory: copied into the open gradient.
 *
 * @param view  data, dtype and bytes are read; dtype must be the tensor's gradient dtype; contiguous.
 * @return As mxs_unit_gradient; MXS_INVALID_ARGUMENT, too, if dtype or bytes are not the tensor's.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_gradient_set(mxs_unit *unit, int32_t tensor, const mxs_view *view);

/**
 * Begin to add all ranks' open gradients to the owners' fp32 sums; closes them. Doesn't block.
 *
 * @return MXS_NOT_OPEN: no gradient of the unit is open; nothing was sent.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_reduce(mxs_unit *unit, const mxs_call *call);

/**
 * Take part in a reduce with zeros: for a rank that did not use the unit in this step.
 *
 * @return MXS_HELD: a gradient is open; reduce it. MXS_OVER_BUDGET: as mxs_unit_gradient.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_skip(mxs_unit *unit, const mxs_call *call);

/**
 * Close the open gradients without sending anything, as after an exception in backward; their contents are lost, and
 * the gradient slot is free again. Local. Sums of reduces before stay, and a reduce in flight goes on. Other ranks that
 * have reduced the unit meanwhile wait for this one: give it again, mxs_unit_skip, or mxs_comm_abort.
 *
 * @return MXS_OK, also if nothing is open or the comm has failed.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_discard(mxs_unit *unit);

/** Wait until the latest reduce is complete here. MXS_OK if there was none. Since 0.1. */
MXS_API mxs_status mxs_unit_wait_reduce(mxs_unit *unit, const mxs_call *call);

/**
 * The owner's own piece, in master dtype, writable while nobody holds the unit.
 *
 * @param placement  Index within the plan. Not owned by this rank: an empty view, MXS_OK.
 * @return MXS_HELD: gathered or pinned here; release it first. MXS_NOT_FOUND: a placement of another unit.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_shard(mxs_unit *unit, uint64_t placement, mxs_view *view);

/**
 * After writing into a shard: round the masters into the unit's dtype. Local. Peers see it from their next gather.
 * By reference they read these very pages: if one of them may hold the unit, put an mxs_comm_barrier before it.
 *
 * @param view  As mxs_unit_shard gave it. An empty one is MXS_OK.
 * @return MXS_STALE_VIEW: a step came between; nothing changed. MXS_HELD.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_commit(mxs_unit *unit, const mxs_view *view);

/**
 * The owner's summed gradient, fp32, for outside optimizers. Waits for the reduce.
 *
 * @param placement  Not owned by this rank, or frozen: an empty view, MXS_OK.
 * @return MXS_NOT_FOUND: a placement of another unit. MXS_TIMED_OUT and the like: the reduce failed.
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_shard_gradient(mxs_unit *unit, uint64_t placement, mxs_view *view);

/** State of the unit. Since 0.1. */
MXS_API mxs_status mxs_unit_query(const mxs_unit *unit, mxs_unit_info *info);

/**
 * Bytes that this rank really has for one unit: weights, masters, gradients, slack and own_slots are the unit's own;
 * slots and gradient_slots are those of the whole pool, which all units of the plan share. Slots grow with each unit
 * that takes them, as far as its bytes reach where those of units before it did not.
 *
 * Since 0.1.
 */
MXS_API mxs_status mxs_unit_memory(const mxs_unit *unit, mxs_memory *memory);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_UNIT_H */
