// SPDX-License-Identifier: Apache-2.0
// A topology for people, as a tree, and for programs, in the form of a saved file.
#pragma once

#include <string>

#include "matrixshard/topology.h"

namespace mxs_cli {

std::string topology_tree(const mxs_topology *topology);
std::string topology_json(const mxs_topology *topology);

}  // namespace mxs_cli
