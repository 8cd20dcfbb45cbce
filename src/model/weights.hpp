// SPDX-License-Identifier: Apache-2.0
// From headers of safetensors files to the tensors of a model. Pure: weight_files.cpp reads the files.
#pragma once

#include <string>

#include "model/model.hpp"
#include "model/safetensors.hpp"

namespace mxs {

// any_dtype: the caller has chosen another, so that those of the file don't matter.
mxs_status add_weights(SafetensorsHeader &&header, bool any_dtype, LoadedModel *model);

// In the order of layers; kind: model_type of a config.json beside the weights, or "".
void arrange_weights(const std::string &kind, LoadedModel *model);

}  // namespace mxs
