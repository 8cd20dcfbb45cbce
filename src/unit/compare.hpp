// SPDX-License-Identifier: Apache-2.0
// Are all ranks about to create the same unit of the same plan? If not, who differs, and in which tensor.
#pragma once

#include <cstdint>

#include "matrixshard/status.h"
#include "plan/plan.hpp"

namespace mxs {

class Comm;

struct UnitDescription {
  uint64_t index = 0;
  uint64_t options_hash = 0;
  uint64_t has_pool = 0;  // 1: this rank has units of this plan and these options already
};

// Collective. MXS_MISMATCH on all ranks if one differs.
mxs_status compare_units(Comm &comm, const Plan &plan, const UnitDescription &description);

}  // namespace mxs
