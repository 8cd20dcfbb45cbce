// SPDX-License-Identifier: Apache-2.0
// The table of a CPU level.
#include "kernels/cpu/level.hpp"

namespace mxs {

extern const Kernels MXS_LEVEL_TABLE;
const Kernels MXS_LEVEL_TABLE = {
    MXS_LEVEL_NAME,
    MXS_LEVEL::copy_to_many,
    MXS_LEVEL::sum_in_order,
    MXS_LEVEL::add,
    MXS_LEVEL::narrow,
    MXS_LEVEL::widen,
    MXS_LEVEL::sum_of_squares,
    MXS_LEVEL::momentum,
    MXS_LEVEL::direction,
    MXS_LEVEL::apply,
    MXS_LEVEL::adamw,
    MXS_LEVEL::scale_weights,
    MXS_LEVEL::scale,
    MXS_LEVEL::multiply,
};

}  // namespace mxs
