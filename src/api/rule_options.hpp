// SPDX-License-Identifier: Apache-2.0
// Muon's options, as a stepper and an optimizer read them: the only ones with a struct inside.
#pragma once

#include <string>

#include "api/door.hpp"
#include "matrixshard/kernels.h"

namespace mxs {

// options->newton_schulz, if it isn't nullptr, is then newton_schulz, whose coefficients are the caller's.
inline mxs_status read_muon_options(const mxs_muon_options *given, const char *name, mxs_muon_options *options,
                                    mxs_newton_schulz *newton_schulz) {
  const mxs_status status = read_struct(given, sizeof *options, name, options);
  if (status != MXS_OK || !options->newton_schulz) return status;
  const mxs_newton_schulz *const inner = options->newton_schulz;
  options->newton_schulz = newton_schulz;
  return read_struct(inner, sizeof *newton_schulz, (std::string(name) + ".newton_schulz").c_str(), newton_schulz);
}

}  // namespace mxs
