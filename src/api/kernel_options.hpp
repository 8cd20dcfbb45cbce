// SPDX-License-Identifier: Apache-2.0
// Options that an optimizer and a kernel alone have in common.
#pragma once

#include "kernels/presets.hpp"

namespace mxs {

// Where Muon's is asked for; check_backend and check_threads are in kernels/presets.hpp.
inline mxs_status check_preset(mxs_preset preset) { return check_preset(MXS_RULE_MUON, preset); }

}  // namespace mxs
