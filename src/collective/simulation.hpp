// SPDX-License-Identifier: Apache-2.0
// A collective on a topology, without a comm: chosen, predicted and simulated.
#pragma once

#include "collective/engine.hpp"
#include "matrixshard/collective.h"
#include "topology/topology.hpp"

namespace mxs {

// name: nullptr or "": chosen. options.layout, of as many ranks as the topology, and all else have been checked by
// nobody.
mxs_status simulate_collective(const Topology &topology, const MessageOptions &options, const char *name,
                               mxs_simulation *result);

}  // namespace mxs
