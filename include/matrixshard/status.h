/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What calls return, and where the sentence behind a failure is found.
 *
 * Every function that can fail returns mxs_status. On failure its outputs are
 * untouched, and mxs_last_error() tells on the same thread what failed, on
 * which rank and unit, and what to do. The library never prints, never exits
 * and never aborts.
 *
 * A function's @return names what is its own. Besides that, any may return
 * MXS_INVALID_ARGUMENT (a NULL, a struct without its INIT, a number out of
 * range), any that makes something MXS_OUT_OF_MEMORY or MXS_SYSTEM, and any on
 * a comm's family what the comm has failed with, or MXS_FORKED.
 *
 * The column "comm" says whether the communicator can still be used:
 *
 *   status                  who mends it                                  comm
 *   MXS_INVALID_ARGUMENT    the caller: the sentence names the argument    usable
 *   MXS_OUT_OF_MEMORY       smaller model, fewer slots, more memory        usable
 *   MXS_OVER_BUDGET         release a unit, or allow more at create        usable
 *   MXS_NOT_GATHERED        pair each gather with one release              usable
 *   MXS_NOT_OPEN            open a gradient before reduce                  usable
 *   MXS_HELD                release the unit before step or destroy        usable
 *   MXS_STALE_VIEW          ask for the view again after a step            usable
 *   MXS_NOT_BUILT           another build, or a later release              usable
 *   MXS_NOT_FOUND           the name or index asked for                    usable
 *   MXS_MISMATCH            make all ranks pass the same                   usable after
 *                           create; failed if met inside a collective
 *   MXS_ENVIRONMENT         set the variable that the sentence names       none was made
 *   MXS_TIMED_OUT           look at the rank that the sentence names       failed
 *   MXS_PEER_FAILED         the rank that is named died or hung up         failed
 *   MXS_TRANSPORT_FAILED    network, UCX                                   failed
 *   MXS_ABORTED             somebody called mxs_comm_abort                 failed
 *   MXS_SYSTEM              the operating system refused; errno is named   usable
 *   MXS_FORKED              use the library in the parent process only     parent's is usable
 *   MXS_INTERNAL            us: please report it with the sentence         failed
 *   MXS_DAMAGED             take another file: this isn't what was written usable
 *   MXS_CANCELLED           nobody: it was asked for                       usable
 *   MXS_NO_DEVICE           driver, library or GPU that the sentence names usable
 *   MXS_DEVICE_FAILED       CUDA or NCCL refused a call, which the sentence failed, if
 *                           names with its error                           met inside a collective
 */
#ifndef MATRIXSHARD_STATUS_H
#define MATRIXSHARD_STATUS_H

#include <stdint.h>

#include "matrixshard/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Zero is success, positive is "not yet", negative is failure. Not an enum, so that its size never changes. */
typedef int32_t mxs_status;

#define MXS_OK               0
#define MXS_IN_PROGRESS      1
#define MXS_INVALID_ARGUMENT (-1)
#define MXS_OUT_OF_MEMORY    (-2)
#define MXS_OVER_BUDGET      (-3)
#define MXS_NOT_GATHERED     (-4)
#define MXS_NOT_OPEN         (-5)
#define MXS_HELD             (-6)
#define MXS_STALE_VIEW       (-7)
#define MXS_NOT_BUILT        (-8)
#define MXS_NOT_FOUND        (-9)
#define MXS_MISMATCH         (-10)
#define MXS_ENVIRONMENT      (-11)
#define MXS_TIMED_OUT        (-12)
#define MXS_PEER_FAILED      (-13)
#define MXS_TRANSPORT_FAILED (-14)
#define MXS_ABORTED          (-15)
#define MXS_SYSTEM           (-16)
#define MXS_FORKED           (-17)
#define MXS_INTERNAL         (-18)
#define MXS_DAMAGED          (-19)
#define MXS_CANCELLED        (-20)
#define MXS_NO_DEVICE        (-21)
#define MXS_DEVICE_FAILED    (-22)

/**
 * The constant's name without its prefix, such as "TIMED_OUT".
 *
 * @return Static text; "UNKNOWN" for a number that is no status.
 * Threads: any. Since 0.1.
 */
MXS_API const char *mxs_status_name(mxs_status status);

/**
 * One general sentence about a status.
 *
 * @return Static text, also for a number that is no status.
 * Threads: any. Since 0.1.
 */
MXS_API const char *mxs_status_text(mxs_status status);

/**
 * The sentence that belongs to this thread's latest failure.
 *
 * @return Text owned by the library, valid until the next failing call of this
 *         thread. "" if nothing has failed yet. Success doesn't clear it.
 * Threads: each has its own. Since 0.1.
 */
MXS_API const char *mxs_last_error(void);

/** How much mxs_set_log delivers: a level includes those above it. */
#define MXS_LOG_WARNING 1 /**< something works, but not as asked for */
#define MXS_LOG_INFO    2 /**< what was chosen, once: transport, algorithm, kernels, pages */
#define MXS_LOG_DEBUG   3

/** Receives one line without a newline; it is valid during the call only. May be called from any thread. */
typedef void (*mxs_log_function)(void *context, int32_t level, const char *line);

/**
 * Say where log lines go. Without it they are dropped; the library itself prints nothing.
 *
 * @param function Called with `context`. NULL stops logging.
 * @param level    The highest level that is delivered.
 * @return MXS_OK. MXS_INVALID_ARGUMENT: level is not one of the three.
 * Threads: any, best before the first create. Since 0.1.
 */
MXS_API mxs_status mxs_set_log(mxs_log_function function, void *context, int32_t level);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_STATUS_H */
