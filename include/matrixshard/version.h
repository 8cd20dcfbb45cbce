/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The version of matrixshard, at build time and at run time.
 *
 * Before 1.0 the soname carries the minor version: a program built against
 * 0.1 runs with every 0.1.x and with nothing else.
 */
#ifndef MATRIXSHARD_VERSION_H
#define MATRIXSHARD_VERSION_H

#include <stdint.h>

#define MXS_VERSION_MAJOR 0
#define MXS_VERSION_MINOR 1
#define MXS_VERSION_PATCH 0

/** major * 1,000,000 + minor * 1,000 + patch of the headers that you compile with. */
#define MXS_VERSION 1000

#if defined(__GNUC__)
#define MXS_API __attribute__((visibility("default")))
#else
#define MXS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The version of the library that is loaded, in the form of MXS_VERSION.
 *
 * Threads: any. Since 0.1.
 */
MXS_API uint32_t mxs_version(void);

/**
 * The same as text, such as "0.1.0". Static, never freed.
 *
 * Threads: any. Since 0.1.
 */
MXS_API const char *mxs_version_text(void);

#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_VERSION_H */
