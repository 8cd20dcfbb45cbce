// SPDX-License-Identifier: Apache-2.0
// JSON that others wrote: parsed strictly, before anybody looks into it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "matrixshard/status.h"

namespace mxs {

// MXS_INVALID_ARGUMENT, "it is not JSON: ...": also for a name that an object has twice, of which the library below
// would keep the last without a word, and for more than 64 levels.
mxs_status parse_json(std::string_view text, nlohmann::json *json);

}  // namespace mxs
