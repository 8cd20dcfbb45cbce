/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka and what it wants before it. Include it last: its macros `fail` and `skip` break standard headers. */
#ifndef MATRIXSHARD_TESTS_CMOCKA_ALL_H
#define MATRIXSHARD_TESTS_CMOCKA_ALL_H

#ifdef __cplusplus
extern "C" {
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first. */
#include <cmocka.h>
#ifdef __cplusplus
}
#endif

#endif /* MATRIXSHARD_TESTS_CMOCKA_ALL_H */
