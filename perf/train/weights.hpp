// SPDX-License-Identifier: Apache-2.0
// Weights: all masters of a model as one number and as one file, from whatever ranks have them.
#pragma once

#include <cstdint>
#include <string>

#include "placement.hpp"

namespace train {

// A hash that doesn't depend on how the elements are spread: a sum, over elements, of a mix of tensor name, index and
// bits. Collective.
uint64_t hash_weights(const Model &model, mxs_comm *comm, Placement *placement);

// fp32, tensors in the order of their names, nothing in between. Every rank writes its own runs into the one file,
// which all must therefore see. Collective.
void save_weights(const std::string &path, const Model &model, mxs_comm *comm, Placement *placement);

}  // namespace train
