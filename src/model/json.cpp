// SPDX-License-Identifier: Apache-2.0
// JSON that describes a model by itself: a list or a configuration.
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "base/status.hpp"
#include "model/model.hpp"

namespace mxs {

using Json = nlohmann::json;

mxs_status model_from_json(const Json &root, LoadedModel *model) {
  if (root.is_object() && root.contains("tensors")) return model_from_list(root, model);
  if (root.is_object() && (root.contains("architectures") || root.contains("model_type")))
    return model_from_config(root, model);
  return set_error(MXS_INVALID_ARGUMENT,
                   "it is neither a list ({\"tensors\": [...]}) nor a configuration (architectures, model_type) nor an "
                   "index of safetensors files (weight_map)");
}

mxs_status model_from_json(std::string_view text, LoadedModel *model) {
  Json root;
  const mxs_status status = parse_json(text, &root);
  return status == MXS_OK ? model_from_json(root, model) : status;
}

}  // namespace mxs
