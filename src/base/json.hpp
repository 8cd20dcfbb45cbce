// SPDX-License-Identifier: Apache-2.0
// JSON that others wrote: parsed strictly, before anybody looks into it.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "matrixshard/status.h"

namespace mxs {

// MXS_INVALID_ARGUMENT, "it is not JSON: ...": also for a name that an object has twice, of which the library below
// would keep the last without a word, and for more than 64 levels.
mxs_status parse_json(std::string_view text, nlohmann::json *json);

// Members of the outermost object that are too much to be a tree at once: as a tree a text takes ten times its room.
struct JsonParts {
  // A list: its elements are handed over one by one, and the tree has it empty.
  std::string_view list;
  std::function<void(size_t index, const nlohmann::json &element)> take;
  // An object for another reader: where it stands in the text; the tree has it empty. Its names aren't looked at.
  std::string_view object;
  std::string_view object_text;
};
mxs_status parse_json(std::string_view text, JsonParts *parts, nlohmann::json *json);

}  // namespace mxs
