// SPDX-License-Identifier: Apache-2.0
// The pure values behind handles: what a caller's mxs_layout and mxs_topology hold.
#pragma once

#include "layout/layout.hpp"
#include "topology/topology.hpp"

struct mxs_layout {
  mxs::Layout value;
};

struct mxs_topology {
  mxs::Topology value;
};
