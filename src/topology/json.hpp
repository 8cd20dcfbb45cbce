// SPDX-License-Identifier: Apache-2.0
// A topology inside another JSON text, such as a saved plan.
#pragma once

#include "base/json_field.hpp"
#include "topology/topology.hpp"

namespace mxs {

// As topology_from_json: *topology stays as it is if a field is wrong.
void read_topology_field(const JsonField &root, Topology *topology);

}  // namespace mxs
