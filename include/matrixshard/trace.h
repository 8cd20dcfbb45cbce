/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Trace: what ranks did, and who kept whom waiting.
 *
 * MXS_TRACE=folder makes every comm write, per rank, a ring of its latest
 * events in a file that is mapped into memory: it survives a kill -9, and costs
 * no system call per event. When the comm is destroyed the ring is written
 * as a timeline in JSON, which ui.perfetto.dev and chrome://tracing show,
 * beside it unless MXS_RING names another folder. MXS_RING=folder alone makes
 * the rings alone. Comms that the library makes for itself have neither.
 *
 *   folder/JOB.comm-C.rank-R.ring    the ring: fixed size, newest events win
 *   folder/JOB.comm-C.rank-R.json    the timeline
 *
 * This header reads rings, of ranks that live, ended or were killed; it needs
 * no comm. `mxs inspect` is its program. docs/tracing.md
 */
#ifndef MATRIXSHARD_TRACE_H
#define MATRIXSHARD_TRACE_H

#include "matrixshard/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Rings of the ranks of one comm, copied when they were opened. */
typedef struct mxs_trace mxs_trace;

/* What an event is about. */
#define MXS_EVENT_OPERATION 0 /**< a gather, reduce or reshard, from its start to its end on this rank */
#define MXS_EVENT_WAIT      1 /**< a call that waited, for rank `peer` as far as it is known */
#define MXS_EVENT_AGREEMENT 2 /**< a barrier, a sum, or the agreement of a step or of a creating call */
#define MXS_EVENT_STEP      3 /**< the update of the pieces that this rank owns */
#define MXS_EVENT_FAILURE   4 /**< of the comm; name is the sentence, cut to what fits */
#define MXS_EVENT_MARK      5 /**< create, destroy, phases and what else is worth a mark */

typedef struct mxs_trace_event {
  uint32_t    size;
  int32_t     rank;
  int32_t     kind;      /**< MXS_EVENT_... */
  int32_t     peer;      /**< that is waited for; -1: none, or several */
  int32_t     unit;      /**< -1: none */
  int32_t     phase;     /**< MXS_PHASE_... of comm.h */
  uint64_t    sequence;  /**< of the operation or agreement, the same on all ranks; of a step its number; of the marks
                              split and shrink the new comm's; 0: none */
  uint64_t    begin_ns;  /**< on rank 0's clock as far as it could be compared; of nodes, within a message's time */
  uint64_t    end_ns;    /**< UINT64_MAX: not over when the ring was opened */
  uint64_t    bytes_out;
  uint64_t    bytes_in;
  const char *name;      /**< "gather", "barrier", ...; owned by the trace */
  const char *algorithm; /**< "chain", "fanout", ...; "" where there is none; owned by the trace */
} mxs_trace_event;
#define MXS_TRACE_EVENT_INIT \
  { sizeof(mxs_trace_event), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** One rank's ring. */
typedef struct mxs_trace_rank {
  uint32_t    size;
  int32_t     rank;
  int32_t     process;        /**< its id on its host */
  int32_t     alive;          /**< 1: it runs; 0: it has ended; -1: on another host, or not to be told */
  int32_t     finished;       /**< 1: the comm was destroyed in good order */
  int32_t     reserved;
  uint64_t    event_count;    /**< that are in the ring */
  uint64_t    lost_count;     /**< older ones, overwritten */
  uint64_t    last_operation; /**< sequence of the latest that it started; 0: none */
  uint64_t    last_complete;  /**< all up to this one are complete here */
  const char *host;           /**< owned by the trace */
  const char *failure;        /**< why the comm failed, as this rank saw it; "": it didn't; owned by the trace */
} mxs_trace_rank;
#define MXS_TRACE_RANK_INIT \
  { sizeof(mxs_trace_rank), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * Read rings: files, or folders of them. Of rings of several comms those of the comm that wrote last are taken; ranks
 * whose ring is missing are reported by mxs_trace_report.
 *
 * @param paths  path_count files or folders.
 * @return MXS_OK. MXS_NOT_FOUND: no ring there. MXS_DAMAGED: a file is no ring, or of another version, or rings of one
 *         comm disagree on their ranks; names it. MXS_SYSTEM: can't be read.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_trace_open(mxs_trace **trace, const char *const *paths, uint64_t path_count);

/** Accepts NULL and a pointer to NULL. Since 0.1. */
MXS_API mxs_status mxs_trace_close(mxs_trace **trace);

/** Ranks of the comm, with or without a ring. 0 if NULL. Since 0.1. */
MXS_API int32_t mxs_trace_rank_count(const mxs_trace *trace);

/** @return MXS_INVALID_ARGUMENT: no such rank. MXS_NOT_FOUND: its ring is missing. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_trace_rank_at(const mxs_trace *trace, int32_t rank, mxs_trace_rank *info);

/** Events of all rings. 0 if NULL. Since 0.1. */
MXS_API uint64_t mxs_trace_event_count(const mxs_trace *trace);

/** One of them, counted from 0, by begin. @return MXS_NOT_FOUND: there are fewer. Threads: any. Since 0.1. */
MXS_API mxs_status mxs_trace_event_at(const mxs_trace *trace, uint64_t index, mxs_trace_event *event);

/**
 * In plain words: is anybody stuck, which rank lags, in which collective, whom do the others miss, who died, who ran
 * into a failure first.
 *
 * @param text       Receives at most text_bytes bytes, always ending in a zero. May be NULL if text_bytes is 0.
 * @param bytes_out  Receives the bytes that the whole text needs, with its zero. May be NULL.
 * Threads: any. Since 0.1.
 */
MXS_API mxs_status mxs_trace_report(const mxs_trace *trace, char *text, size_t text_bytes, size_t *bytes_out);

/** All rings as one timeline in JSON, complete or not there. @return MXS_SYSTEM: can't be written. Since 0.1. */
MXS_API mxs_status mxs_trace_write(const mxs_trace *trace, const char *path);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_TRACE_H */
