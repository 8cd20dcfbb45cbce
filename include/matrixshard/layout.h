/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Layout: who owns which bytes of a buffer.
 *
 *   |AAAAAAAA|CC|      |B      two segments of rank 0 and 2, a gap up to the
 *    0        8  10     16     alignment, one segment of rank 1
 *
 * Segments lie in order and don't overlap; between two of them there is at
 * most the gap that the alignment asks for. A rank may own several, one or
 * none. A layout is immutable and knows no dtype.
 */
#ifndef MATRIXSHARD_LAYOUT_H
#define MATRIXSHARD_LAYOUT_H

#include "matrixshard/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mxs_layout mxs_layout;

typedef struct mxs_segment {
  uint32_t size;
  int32_t  owner;  /**< rank */
  uint64_t offset; /**< bytes from the start of the buffer */
  uint64_t bytes;  /**< may be 0 */
} mxs_segment;
#define MXS_SEGMENT_INIT \
  { sizeof(mxs_segment), 0, 0, 0 }

/**
 * Make a layout from its segments, given in the order of their offsets.
 *
 * @param alignment  Power of two; a segment begins at the end of the one before,
 *                   rounded up to it. 0 or 1: no gaps.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: overlap, gap, owner outside the world, a world of 0,
 *         an alignment that is no power of two, or an end beyond 2^62 bytes; the
 *         sentence names the segment.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_layout_create(mxs_layout **layout, const mxs_segment *segments, uint64_t segment_count,
                                     int32_t rank_count, uint64_t alignment);

/**
 * Cut `bytes` into one segment per rank, as evenly as whole elements allow: the
 * first ranks have one element more.
 *
 * @param element_bytes  Divides bytes.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: it doesn't, a world of 0, or more than 2^62 bytes.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_layout_create_even(mxs_layout **layout, uint64_t bytes, uint64_t element_bytes,
                                          int32_t rank_count);

/** Accepts NULL and a pointer to NULL. Since 0.1. */
MXS_API void mxs_layout_destroy(mxs_layout **layout);

/** Bytes from the start of the buffer to the end of the last segment, gaps included. 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_layout_bytes(const mxs_layout *layout);

/** Sum of the bytes of one rank's segments, gaps not included. 0 if NULL or outside the world. Since 0.1. */
MXS_API uint64_t mxs_layout_owned_bytes(const mxs_layout *layout, int32_t rank);

/** @return 0 if NULL. Since 0.1. */
MXS_API int32_t mxs_layout_rank_count(const mxs_layout *layout);

/** @return 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_layout_segment_count(const mxs_layout *layout);

/**
 * One segment, counted from 0 in the order of offsets.
 *
 * @return MXS_OK. MXS_INVALID_ARGUMENT: NULL, a wrong size, or no such segment.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_layout_segment(const mxs_layout *layout, uint64_t index, mxs_segment *segment);

/** Bytes that one rank owns in one layout and one rank, maybe the same, in another. */
typedef struct mxs_layout_move {
  uint32_t size;
  int32_t  source_rank;
  int32_t  target_rank;
  int32_t  reserved;
  uint64_t source_offset; /**< bytes within the source rank's segments, packed */
  uint64_t target_offset; /**< bytes within the target rank's segments, packed */
  uint64_t bytes;
} mxs_layout_move;
#define MXS_LAYOUT_MOVE_INIT \
  { sizeof(mxs_layout_move), 0, 0, 0, 0, 0, 0 }

/**
 * From one layout of a buffer to another: every byte once, in the order of the buffer. Those whose source and target
 * rank are the same stay where they are.
 *
 * @param source, target  Of as many bytes, without gaps. Their worlds may differ: rank r of one is rank r of the other.
 * @param moves       Receives at most move_capacity of them; each one's size must be set, as INIT does. May be NULL if
 *                    move_capacity is 0.
 * @param move_count  Receives how many there are.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: a NULL, a gap, or other bytes.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_layout_moves(const mxs_layout *source, const mxs_layout *target, mxs_layout_move *moves,
                                    uint64_t move_capacity, uint64_t *move_count);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_LAYOUT_H */
