// SPDX-License-Identifier: Apache-2.0
// What must hold of every model that a reader lets through.
#pragma once

#include "base/text.hpp"
#include "fuzz.hpp"
#include "model/model.hpp"

namespace mxs::fuzz {

inline void check_model(LoadedModel *model) {
  if (finish_model(ModelSettings(), model) != MXS_OK) return;
  promise(!model->tensors.empty() && !model->title.empty());
  for (const LoadedTensor &tensor : model->tensors) {
    promise(!tensor.name.empty() && tensor.name.find('\0') == std::string::npos && is_utf8(tensor.name));
    promise(tensor.unit >= 0 && static_cast<size_t>(tensor.unit) < model->unit_names.size());
    promise(tensor.shape.size() <= MXS_DIMENSIONS_MAX && tensor.group >= 0);
    promise(tensor.rule >= MXS_RULE_AUTO && tensor.rule <= MXS_RULE_SOAP);
    promise(tensor.rule != MXS_RULE_AUTO || !tensor.tied_to.empty());
    for (const int64_t side : tensor.shape) promise(side >= 0);
  }
}

}  // namespace mxs::fuzz
