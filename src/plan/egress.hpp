// SPDX-License-Identifier: Apache-2.0
// What a gather of one unit takes out of each rank and each node: see egress.cpp.
#pragma once

#include "plan/bounds.hpp"
#include "plan/plan.hpp"

namespace mxs {

// Fills plan->objectives, and egress and bounds of its units.
void measure_objectives(const PlanBounds &bounds, Plan *plan);

}  // namespace mxs
