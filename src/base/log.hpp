// SPDX-License-Identifier: Apache-2.0
// Lines for mxs_set_log. Nothing is formatted when nobody listens.
#pragma once

#include <cstdint>

#include "matrixshard/status.h"

namespace mxs {

// function NULL: nobody listens any more.
void set_log(mxs_log_function function, void *context, int32_t level);

void log_line(int32_t level, const char *format, ...) noexcept __attribute__((format(printf, 2, 3)));

}  // namespace mxs
