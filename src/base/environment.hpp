// SPDX-License-Identifier: Apache-2.0
// The only place that reads environment variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "matrixshard/status.h"

namespace mxs {

// Empty counts as not set.
std::optional<std::string> environment_text(const char *name);

// A whole decimal number within [least, most]. Not set: MXS_OK and *value is left alone.
// Otherwise MXS_ENVIRONMENT with a sentence that names the variable and its text.
mxs_status environment_number(const char *name, int64_t least, int64_t most, int64_t *value);

}  // namespace mxs
